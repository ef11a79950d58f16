// What a direct convolution in float32 on AVX-512 reaches with vectors along pixels instead of filters: images in rows.
//
//     g++ -O3 -march=native benchmarks/pixels.cpp -o /tmp/pixels && taskset -c 1 /tmp/pixels
//
// Prints the median time of layers whose filters do not fill vectors, and of some whose filters do, with the copies of
// image and result, filters packed beforehand. The image is copied once with zeros around it; its rows then
// follow each other as one axis of pixels, in which a tap is an offset: tiles of ROWS filters by NV vectors walk it
// without regard to where rows end, and the columns between two rows are computed in vain. benchmarks/NOTES.md of
// 2026-11-26 draws the conclusion. Results are compared with sums in double.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Free {
    void operator()(float* memory) const { std::free(memory); }
};
using Array = std::unique_ptr<float, Free>;

Array zeros(long count) {
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(float) / 4096 + 1) * 4096;
    return Array(static_cast<float*>(std::memset(std::aligned_alloc(4096, bytes), 0, bytes)));
}

struct Layer {
    int channels, filters, size;
};

// ROWS filters by NV vectors of pixels over all channels and TAPS x TAPS taps, sums in registers.
template <int ROWS, int NV, int TAPS>
void tile(const float* image, long plane, long row, int channels, const float* filters, float* out, long out_row) {
    __m512 sums[ROWS][NV];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
        for (int v = 0; v < NV; ++v) sums[i][v] = _mm512_setzero_ps();
    for (int c = 0; c < channels; ++c)
        for (int r = 0; r < TAPS; ++r)
#pragma GCC unroll 5
            for (int s = 0; s < TAPS; ++s, filters += ROWS) {
                __m512 pixels[NV];
                for (int v = 0; v < NV; ++v) pixels[v] = _mm512_loadu_ps(image + c * plane + r * row + s + 16 * v);
#pragma GCC unroll 16
                for (int i = 0; i < ROWS; ++i)
                    for (int v = 0; v < NV; ++v)
                        sums[i][v] = _mm512_fmadd_ps(_mm512_set1_ps(filters[i]), pixels[v], sums[i][v]);
            }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
        for (int v = 0; v < NV; ++v) _mm512_storeu_ps(out + i * out_row + 16 * v, sums[i][v]);
}

// A tile of any number of rows up to MOST, by as many routines.
template <int MOST, int NV, int TAPS, class... Rest>
void tile_of(int rows, Rest... rest) {
    if constexpr (MOST > 0) {
        if (rows == MOST)
            tile<MOST, NV, TAPS>(rest...);
        else
            tile_of<MOST - 1, NV, TAPS>(rows, rest...);
    }
}

template <int MOST, int NV, int TAPS>
void measure(const Layer& layer) {
    constexpr int around = TAPS / 2, step = 16 * NV;
    const int size = layer.size, channels = layer.channels, filters = layer.filters, taps = TAPS * TAPS;
    const long row = size + 2 * around, pixels = (size * row + step - 1) / step * step;
    const long plane = ((row + 1) * row + step) / 16 * 16 + 16;  // not a whole number of pages, whatever the image
    const Array x = zeros(1L * channels * size * size), w = zeros(1L * filters * channels * taps);
    const Array image = zeros(channels * plane + 2 * step), panels = zeros(1L * filters * channels * taps);
    const Array flat = zeros(filters * pixels), y = zeros(1L * filters * size * size);
    for (long i = 0; i < 1L * channels * size * size; ++i)
        x.get()[i] = static_cast<float>(std::rand()) / RAND_MAX - 0.5F;
    for (long i = 0; i < 1L * filters * channels * taps; ++i)
        w.get()[i] = static_cast<float>(std::rand()) / RAND_MAX - 0.5F;

    const int tiles = (filters + MOST - 1) / MOST;  // as equal as they come
    auto first = [&](int t) { return static_cast<int>(1L * filters * t / tiles); };
    float* packed = panels.get();
    for (int t = 0; t < tiles; ++t)
        for (int c = 0; c < channels; ++c)
            for (int tap = 0; tap < taps; ++tap)
                for (int k = first(t); k < first(t + 1); ++k) *packed++ = w.get()[(1L * k * channels + c) * taps + tap];

    std::vector<double> times;
    for (int turn = 0; turn < 40; ++turn) {
        const auto start = Clock::now();
        for (int c = 0; c < channels; ++c)
            for (int r = 0; r < size; ++r)
                std::memcpy(image.get() + c * plane + (r + around) * row + around, x.get() + (1L * c * size + r) * size,
                            sizeof(float) * size);
        for (long pixel = 0; pixel < pixels; pixel += step)
            for (int t = 0; t < tiles; ++t)
                tile_of<MOST, NV, TAPS>(first(t + 1) - first(t), image.get() + pixel, plane, row, channels,
                                        panels.get() + 1L * first(t) * channels * taps,
                                        flat.get() + first(t) * pixels + pixel, pixels);
        for (int k = 0; k < filters; ++k)
            for (int r = 0; r < size; ++r)
                std::memcpy(y.get() + (1L * k * size + r) * size, flat.get() + k * pixels + r * row,
                            sizeof(float) * size);
        times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());

    double worst = 0;
    for (int sample = 0; sample < 2000; ++sample) {
        const int k = std::rand() % filters, p = std::rand() % size, q = std::rand() % size;
        double sum = 0;
        for (int c = 0; c < channels; ++c)
            for (int r = std::max(0, around - p); r < TAPS && p + r - around < size; ++r)
                for (int s = std::max(0, around - q); s < TAPS && q + s - around < size; ++s)
                    sum += static_cast<double>(x.get()[(1L * c * size + p + r - around) * size + q + s - around]) *
                           w.get()[(1L * k * channels + c) * taps + r * TAPS + s];
        worst = std::max(worst, std::fabs(sum - y.get()[(1L * k * size + p) * size + q]));
    }
    const double time = times[times.size() / 2];
    std::printf("%3d-%-3d %dx%d@%-3d %2d by %d  %8.0f us  %5.1f GFLOP/s  off by %.0e\n", channels, filters, TAPS, TAPS,
                size, MOST, NV, time * 1e6, 2e-9 * channels * filters * taps * size * size / time, worst);
}

template <int TAPS>
void measure_all(const Layer& layer) {
    measure<13, 2, TAPS>(layer);
    measure<9, 3, TAPS>(layer);
    measure<7, 4, TAPS>(layer);
}

}  // namespace

int main() {
    for (const Layer& layer : {Layer{31, 37, 56}, Layer{37, 31, 56}, Layer{64, 64, 56}, Layer{128, 128, 28},
                               Layer{3, 64, 224}, Layer{64, 128, 224}})
        measure_all<3>(layer);
    measure_all<5>({17, 19, 56});
    for (const Layer& layer : {Layer{96, 24, 56}, Layer{144, 24, 56}, Layer{32, 16, 112}, Layer{384, 96, 14}})
        measure_all<1>(layer);
}
