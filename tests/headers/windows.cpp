// A convolution's tiles with and without the taps beside their image, against a plain sum in double: random images, windows, borders and gaps.
#include <math.h>
#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "check.h"
#include "tracea/conv.h"

using namespace tracea;

namespace {

constexpr int tile_pixels = 3;

struct Case {
    int64_t height, width, channels, filters, gap;
    int64_t taps[2], stride[2], padding[2], dilation[2];
    int64_t results(int axis) const {
        const int64_t size = axis == 0 ? height : width;
        return (size + 2 * padding[axis] - (taps[axis] - 1) * dilation[axis] - 1) / stride[axis] + 1;
    }
    bool has_results() const {
        return height + 2 * padding[0] > (taps[0] - 1) * dilation[0] && width + 2 * padding[1] > (taps[1] - 1) * dilation[1];
    }
};

Case drawn(Random& random) {
    Case made = {};
    do {
        made = {1 + random.below(6), 1 + random.below(9), 1 + random.below(21), 0, random.below(3), {}, {}, {}, {}};
        made.filters = 1 + random.below(2 * Vec<float>::lanes);
        if (random.below(2) == 0) made.filters = 2 * Vec<float>::lanes;  // whole tiles
        for (int axis = 0; axis < 2; ++axis) {
            made.taps[axis] = 1 + random.below(5);
            made.stride[axis] = 1 + random.below(3);
            made.padding[axis] = random.below(5);
            made.dilation[axis] = 1 + random.below(3);
        }
    } while (!made.has_results());
    return made;
}

// The sums of one row of results: rows that the image has not are left out always, columns if `columns`.
template <class Tile>
std::vector<float> row_of(const Case& given, int64_t row, const std::vector<float>& halo, int64_t pitch, const std::vector<float>& panel, bool columns) {
    const int64_t pixel = given.channels + given.gap;
    const int64_t wide = given.results(1);
    std::vector<float> sums(wide * given.filters, NAN);
    const ConvTaps taps = {given.taps[0], given.taps[1], given.channels, given.dilation[0] * pitch, given.dilation[1] * pixel, given.channels * Tile::columns};
    const ImageRows rows = {row * given.stride[0] - given.padding[0], given.height, given.dilation[0]};
    for (int64_t first = 0; first < wide; first += tile_pixels) {
        const int64_t pixels = std::min<int64_t>(tile_pixels, wide - first);
        const float* a = halo.data() + row * given.stride[0] * pitch + first * given.stride[1] * pixel;
        float* c = sums.data() + first * given.filters;
        const int64_t step = given.stride[1] * pixel;
        if (columns) {
            const ImageColumns image = {first * given.stride[1] - given.padding[1], given.width, given.dilation[1], given.stride[1]};
            Tile::template run_within<tile_pixels, 1>(rows, image, pixels, given.filters, taps, a, step, panel.data(), c, given.filters, false);
        } else {
            Tile::template run_within<tile_pixels, 1>(rows, pixels, given.filters, taps, a, step, panel.data(), c, given.filters, false);
        }
    }
    return sums;
}

void check(Random& random) {
    using Tile = ConvTile<float, tile_pixels, 2, 2, 0>;
    const Case given = drawn(random);
    const int64_t high = given.results(0), wide = given.results(1);
    const int64_t pixel = given.channels + given.gap;
    const int64_t rows = (high - 1) * given.stride[0] + (given.taps[0] - 1) * given.dilation[0] + 1;
    const int64_t columns = (wide - 1) * given.stride[1] + (given.taps[1] - 1) * given.dilation[1] + 1;
    std::vector<float> image(given.height * given.width * given.channels), halo(rows * columns * pixel);
    std::vector<float> panel(given.taps[0] * given.taps[1] * given.channels * Tile::columns);
    for (float& x : image) x = static_cast<float>(random.value());
    for (float& x : panel) x = static_cast<float>(random.value());
    const ImageStrides strides = {given.width * given.channels, given.channels, 1};
    copy_halo(image.data(), strides, given.height, given.width, -given.padding[0], -given.padding[1], rows, columns, given.channels, halo.data(), columns * pixel, pixel);
    for (int64_t row = 0; row < high; ++row) {
        const auto whole = row_of<Tile>(given, row, halo, columns * pixel, panel, false);
        const auto within = row_of<Tile>(given, row, halo, columns * pixel, panel, true);
        for (int64_t at = 0; at < wide * given.filters; ++at) {
            double want = 0, magnitude = 0;
            for (int64_t r = 0; r < given.taps[0]; ++r) {
                for (int64_t s = 0; s < given.taps[1]; ++s) {
                    const int64_t y = row * given.stride[0] - given.padding[0] + r * given.dilation[0];
                    const int64_t x = at / given.filters * given.stride[1] - given.padding[1] + s * given.dilation[1];
                    if (y < 0 || y >= given.height || x < 0 || x >= given.width) continue;
                    for (int64_t k = 0; k < given.channels; ++k) {
                        const double product = static_cast<double>(image[(y * given.width + x) * given.channels + k]) *
                                               panel[((r * given.taps[1] + s) * given.channels + k) * Tile::columns + at % given.filters];
                        want += product;
                        magnitude += fabs(product);
                    }
                }
            }
            const int64_t terms = given.taps[0] * given.taps[1] * given.channels;
            CHECK(fabs(within[at] - want) <= 0x1p-24 * static_cast<double>(terms + 1) * magnitude, "row %ld, sum %ld: %g, not %g", static_cast<long>(row), static_cast<long>(at), within[at], want);
            CHECK(within[at] == whole[at], "row %ld, sum %ld: other bits without the taps beside the image", static_cast<long>(row), static_cast<long>(at));
        }
    }
}

}  // namespace

int main(int, char** arguments) {
    Random random{static_cast<uint64_t>(strtoull(arguments[1], nullptr, 10))};
    for (int trial = 0; trial < 2000; ++trial) check(random);
    return 0;
}
