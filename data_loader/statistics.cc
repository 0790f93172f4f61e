#include "data_loader/statistics.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#include "core/error.h"
#include "data_loader/decoder.h"
#include "data_loader/verify.h"

namespace lockstep {

namespace {

// Of one picture; size 0x0: bad.
struct Moments {
    std::array<double, 3> mean{}, square{};
    ImageSize size{};
};

// Sums of bytes and of their squares are exact: 2^27 pixels of 255^2 fit 64 bits.
Moments moments_of(const ImageView& image) {
    std::array<uint64_t, 3> sum{}, square{};
    const size_t step = static_cast<size_t>(image.bytes_per_pixel);
    for (int y = 0; y < image.height; ++y) {
        const uint8_t* row = image.row(y);
        for (size_t x = 0; x < static_cast<size_t>(image.width); ++x) {
            for (size_t channel = 0; channel < 3; ++channel) {
                const uint64_t value = row[x * step + (step == 1 ? 0 : channel)];
                sum[channel] += value;
                square[channel] += value * value;
            }
        }
    }
    Moments moments{.size = {image.width, image.height}};
    const double pixels = static_cast<double>(image.width) * image.height;
    for (size_t channel = 0; channel < 3; ++channel) {
        moments.mean[channel] = static_cast<double>(sum[channel]) / pixels / 255.0;
        moments.square[channel] = static_cast<double>(square[channel]) / pixels / (255.0 * 255.0);
    }
    return moments;
}

void measure(const Source& source, std::atomic<int64_t>& next_index, std::vector<Moments>& all) {
    Decoder decoder;
    Record record;
    Image image;
    for (int64_t index = next_index.fetch_add(1); index < source.size(); index = next_index.fetch_add(1)) {
        try {
            source.read(index, record);
            const ImageSize size = decoder.open(record);
            all[static_cast<size_t>(index)] = moments_of(decoder.decode_all(size, image));
        } catch (const DataError&) {  // counted below; `data verify` names it
        }
    }
}

int64_t area(ImageSize size) { return int64_t{size.width} * size.height; }

}  // namespace

SetStatistics statistics_of(const Source& source, int threads) {
    std::vector<Moments> all(static_cast<size_t>(source.size()));
    std::atomic<int64_t> next_index{0};
    {
        std::vector<std::jthread> workers;
        for (int thread = 0; thread < std::max(threads, 1); ++thread)
            workers.emplace_back([&] { measure(source, next_index, all); });
    }
    SetStatistics result{.images = source.size(), .images_of_class = count_labels(source)};
    std::array<double, 3> square{};
    for (const Moments& one : all) {  // in the order of the source, so that the sums have the same bits for any thread count
        if (area(one.size) == 0) {
            ++result.bad;
            continue;
        }
        for (size_t channel = 0; channel < 3; ++channel) {
            result.mean[channel] += one.mean[channel];
            square[channel] += one.square[channel];
        }
        if (area(result.smallest) == 0 || area(one.size) < area(result.smallest)) result.smallest = one.size;
        if (area(one.size) > area(result.largest)) result.largest = one.size;
        ++result.shorter_sides[static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(one.size.width, one.size.height))))];
    }
    const double good = static_cast<double>(std::max<int64_t>(result.images - result.bad, 1));
    for (size_t channel = 0; channel < 3; ++channel) {
        result.mean[channel] /= good;
        result.stddev[channel] = std::sqrt(std::max(square[channel] / good - result.mean[channel] * result.mean[channel], 0.0));
    }
    return result;
}

}  // namespace lockstep
