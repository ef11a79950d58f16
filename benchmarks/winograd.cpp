// What Winograd's F(2x2, 3x3) would reach in float32 on AVX-512, one thread: images channels last, bias and ReLU.
//
//     g++ -O3 -march=native benchmarks/winograd.cpp -o /tmp/winograd && taskset -c 1 /tmp/winograd
//
// Prints, for 3x3 layers of ResNet-50 and one of VGG, the median time and its parts, and the rate of the direct
// convolution that would take as long. A block of T tiles is transformed, multiplied by the 16 transformed filters and
// transformed back before the next one, so that nothing but the filters leaves the second-level cache; the best T counts.
// Results are compared with sums in double. docs/adr/0005 draws the conclusion.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

float* zeros(std::size_t count) {
    const std::size_t page = std::size_t{2} << 20, bytes = (count * sizeof(float) + page - 1) / page * page;
    void* memory = std::aligned_alloc(page, bytes);
    madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<float*>(std::memset(memory, 0, bytes));
}

// ROWS tiles by 32 filters over all channels, sums in registers.
template <int ROWS>
void product(const float* a, long a_row, const float* b, float* c, long c_row, int channels) {
    __m512 sums[ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    for (int k = 0; k < channels; ++k) {
        const __m512 first = _mm512_load_ps(b + 32 * k), second = _mm512_load_ps(b + 32 * k + 16);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
            const __m512 value = _mm512_set1_ps(a[i * a_row + k]);
            sums[i][0] = _mm512_fmadd_ps(value, first, sums[i][0]);
            sums[i][1] = _mm512_fmadd_ps(value, second, sums[i][1]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
        _mm512_storeu_ps(c + i * c_row, sums[i][0]);
        _mm512_storeu_ps(c + i * c_row + 16, sums[i][1]);
    }
}

struct Layer {
    int channels, filters, size, block;
    const float* x;  // padded: side() by side() pixels
    const float* bias;
    float *taps, *image, *products, *y;
    double in = 0, multiply = 0, out = 0;

    int side() const { return size + 2 + size % 2; }
    int across() const { return (size + 1) / 2; }
    int tiles() const { return across() * across(); }
    long image_row() const { return channels + 16; }  // no power of two between rows
    long product_row() const { return filters + 16; }

    void transform_filters(const float* g) {
        const float matrix[4][3] = {{1, 0, 0}, {.5F, .5F, .5F}, {.5F, -.5F, .5F}, {0, 0, 1}};
        for (int k = 0; k < filters; ++k)
            for (int c = 0; c < channels; ++c)
                for (int place = 0; place < 16; ++place) {
                    float sum = 0;
                    for (int tap = 0; tap < 9; ++tap)
                        sum +=
                            matrix[place / 4][tap / 3] * matrix[place % 4][tap % 3] * g[(k * channels + c) * 9 + tap];
                    taps[((place * (filters / 32) + k / 32) * static_cast<long>(channels) + c) * 32 + k % 32] = sum;
                }
    }

    void transform_image(int first, int count) {
        const long row = static_cast<long>(side()) * channels, plane = block * image_row();
        for (int t = 0; t < count; ++t) {
            const int down = (first + t) / across(), right = (first + t) % across();
            for (int c = 0; c < channels; c += 16) {
                const float* from = x + 2 * down * row + 2L * right * channels + c;
                __m512 d[4][4];
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
                    const __m512 p0 = _mm512_loadu_ps(from + j * channels),
                                 p1 = _mm512_loadu_ps(from + row + j * channels);
                    const __m512 p2 = _mm512_loadu_ps(from + 2 * row + j * channels);
                    const __m512 p3 = _mm512_loadu_ps(from + 3 * row + j * channels);
                    d[0][j] = _mm512_sub_ps(p0, p2), d[1][j] = _mm512_add_ps(p1, p2);
                    d[2][j] = _mm512_sub_ps(p2, p1), d[3][j] = _mm512_sub_ps(p1, p3);
                }
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    float* to = image + 4 * i * plane + t * image_row() + c;
                    _mm512_storeu_ps(to, _mm512_sub_ps(d[i][0], d[i][2]));
                    _mm512_storeu_ps(to + plane, _mm512_add_ps(d[i][1], d[i][2]));
                    _mm512_storeu_ps(to + 2 * plane, _mm512_sub_ps(d[i][2], d[i][1]));
                    _mm512_storeu_ps(to + 3 * plane, _mm512_sub_ps(d[i][1], d[i][3]));
                }
            }
        }
    }

    void multiply_all(int count) {
        for (int place = 0; place < 16; ++place)
            for (int panel = 0; panel < filters / 32; ++panel) {
                const float* b = taps + (place * (filters / 32) + panel) * 32L * channels;
                const float* a = image + place * block * image_row();
                float* c = products + place * block * product_row() + 32 * panel;
                int t = 0;
                for (; t + 14 <= count; t += 14)
                    product<14>(a + t * image_row(), image_row(), b, c + t * product_row(), product_row(), channels);
                for (; t + 8 <= count; t += 8)
                    product<8>(a + t * image_row(), image_row(), b, c + t * product_row(), product_row(), channels);
                for (; t < count; ++t)
                    product<1>(a + t * image_row(), image_row(), b, c + t * product_row(), product_row(), channels);
            }
    }

    void transform_back(int first, int count) {
        const long plane = block * product_row();
        for (int t = 0; t < count; ++t) {
            const int down = (first + t) / across(), right = (first + t) % across();
            for (int k = 0; k < filters; k += 16) {
                __m512 e[2][4];
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
                    const float* from = products + j * plane + t * product_row() + k;
                    const __m512 m1 = _mm512_loadu_ps(from + 4 * plane), m2 = _mm512_loadu_ps(from + 8 * plane);
                    e[0][j] = _mm512_add_ps(_mm512_add_ps(_mm512_loadu_ps(from), m1), m2);
                    e[1][j] = _mm512_sub_ps(_mm512_sub_ps(m1, m2), _mm512_loadu_ps(from + 12 * plane));
                }
                const __m512 shift = _mm512_loadu_ps(bias + k), zero = _mm512_setzero_ps();
                for (int i = 0; i < 2 && 2 * down + i < size; ++i) {
                    float* to = y + ((2L * down + i) * size + 2 * right) * filters + k;
                    const __m512 left = _mm512_add_ps(_mm512_add_ps(e[i][0], e[i][1]), e[i][2]);
                    const __m512 other = _mm512_sub_ps(_mm512_sub_ps(e[i][1], e[i][2]), e[i][3]);
                    _mm512_storeu_ps(to, _mm512_max_ps(zero, _mm512_add_ps(left, shift)));
                    if (2 * right + 1 < size)
                        _mm512_storeu_ps(to + filters, _mm512_max_ps(zero, _mm512_add_ps(other, shift)));
                }
            }
        }
    }

    void run() {
        for (int first = 0; first < tiles(); first += block) {
            const int count = std::min(block, tiles() - first);
            const double begin = seconds();
            transform_image(first, count);
            const double transformed = seconds();
            multiply_all(count);
            const double multiplied = seconds();
            transform_back(first, count);
            in += transformed - begin, multiply += multiplied - transformed, out += seconds() - multiplied;
        }
    }
};

void measure(int channels, int filters, int size) {
    Layer layer{channels, filters, size, 0, nullptr, zeros(filters), nullptr, nullptr, nullptr, nullptr};
    float *x = zeros(1L * layer.side() * layer.side() * channels), *g = zeros(9L * filters * channels);
    for (int i = 0; i < size; ++i)
        for (int j = 0; j < size * channels; ++j)
            x[((i + 1L) * layer.side() + 1) * channels + j] = std::rand() / static_cast<float>(RAND_MAX) - .5F;
    for (long i = 0; i < 9L * filters * channels; ++i) g[i] = std::rand() / static_cast<float>(RAND_MAX) - .5F;
    layer.x = x, layer.y = zeros(1L * size * size * filters), layer.taps = zeros(16L * channels * filters);
    layer.transform_filters(g);
    double best = 1e9;
    Layer chosen = layer;
    for (const int block : {14, 28, 56, 112}) {
        layer.block = block;
        layer.image = zeros(16 * block * layer.image_row()), layer.products = zeros(16 * block * layer.product_row());
        layer.run();
        layer.in = layer.multiply = layer.out = 0;
        std::vector<double> times;
        for (const double end = seconds() + .5; seconds() < end || times.size() < 5;) {
            const double begin = seconds();
            layer.run();
            times.push_back(seconds() - begin);
        }
        std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
        const double median = times[times.size() / 2];
        for (double* part : {&layer.in, &layer.multiply, &layer.out}) *part /= times.size();
        if (median < best) best = median, chosen = layer;
        std::free(layer.image), std::free(layer.products);
    }
    double error = 0;
    for (int trial = 0; trial < 200; ++trial) {
        const int i = std::rand() % size, j = std::rand() % size, k = std::rand() % filters;
        double sum = 0;
        for (int tap = 0; tap < 9; ++tap)
            for (int c = 0; c < channels; ++c)
                sum += static_cast<double>(x[((i + tap / 3L) * layer.side() + j + tap % 3) * channels + c]) *
                       g[(k * channels + c) * 9 + tap];
        error = std::max(error, std::fabs(std::max(sum, 0.) - layer.y[(1L * i * size + j) * filters + k]));
    }
    const double work = 2. * channels * filters;
    std::printf(
        "%d-%d @%d: %.0f us, blocks of %d tiles; image %.0f, products %.0f (%.0f GFLOP/s), back %.0f us; "
        "direct: %.0f GFLOP/s; error %.1e\n",
        channels, filters, size, best * 1e6, chosen.block, chosen.in * 1e6, chosen.multiply * 1e6,
        work * 16 * layer.tiles() / chosen.multiply / 1e9, chosen.out * 1e6, work * 9 * size * size / best / 1e9,
        error);
}

}  // namespace

int main() {
    measure(64, 64, 56);
    measure(128, 128, 28);
    measure(256, 256, 14);
    measure(512, 512, 7);
    measure(64, 128, 224);
}
