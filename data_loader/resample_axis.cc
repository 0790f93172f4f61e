#include "data_loader/resample_axis.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

namespace {

double triangle(double x) {
    x = std::abs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {
    constexpr double kA = -0.5;
    x = std::abs(x);
    if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
    return 0.0;
}

// How far a filter reaches to each side, in inputs.
double support_of(Filter filter, double scale) {
    const double wide = std::max(scale, 1.0);
    switch (filter) {
        case Filter::bilinear:
            return wide;
        case Filter::bicubic:
            return 2.0 * wide;
        case Filter::area:
            return 0.5 * scale + 1.0;
        case Filter::nearest:
        case Filter::bilinear_plain:
            break;
    }
    return 1.0;
}

}  // namespace

// Pillow's arithmetic (precompute_coeffs) to the last bit, for the filters that are Pillow's.
void ResampleAxis::weigh(int place, double scale, Filter filter) {
    const size_t index = static_cast<size_t>(place);
    double* weights = exact_.data() + index * stride_;
    if (filter == Filter::nearest) {
        first_[index] = std::clamp(static_cast<int>(nearest_), 0, input_ - 1);
        count_[index] = 1;
        weights[0] = 1.0;
        nearest_ += scale;  // Pillow adds up too
        return;
    }
    const double centre = range_.begin + (place + 0.5) * scale;
    const double support = support_of(filter, scale);
    const int begin = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int end = std::min(static_cast<int>(centre + support + 0.5), input_);
    const double narrowing = filter == Filter::bilinear_plain ? 1.0 : 1.0 / std::max(scale, 1.0);
    double total = 0.0;
    for (int input = begin; input < end; ++input) {
        double weight = 0.0;
        if (filter == Filter::area) {
            const double left = centre - 0.5 * scale, right = centre + 0.5 * scale;
            weight = std::max(std::min(right, input + 1.0) - std::max(left, static_cast<double>(input)), 0.0);
        } else {
            const double distance = (input - begin + begin - centre + 0.5) * narrowing;
            weight = filter == Filter::bicubic ? cubic(distance) : triangle(distance);
        }
        weights[input - begin] = weight;
        total += weight;
    }
    for (int tap = 0; tap < end - begin; ++tap) {
        if (total != 0.0) weights[tap] /= total;
    }
    first_[index] = begin;
    count_[index] = end - begin;
}

void ResampleAxis::prepare(int input, AxisRange range, int output, Filter filter) {
    if (input == input_ && range == range_ && output == output_ && filter == filter_) return;
    input_ = input;
    range_ = range;
    output_ = output;
    filter_ = filter;
    const double scale = (range.end - range.begin) / output;
    stride_ = static_cast<size_t>(std::ceil(support_of(filter, scale))) * 2 + 1;
    first_.resize(static_cast<size_t>(output));
    count_.resize(static_cast<size_t>(output));
    exact_.resize(static_cast<size_t>(output) * stride_);
    nearest_ = range.begin + 0.5 * scale;
    for (int place = 0; place < output; ++place) weigh(place, scale, filter);
    round_and_split();
}

void ResampleAxis::round_and_split() {
    pairs_ = (*std::max_element(count_.begin(), count_.end()) + 1) / 2;
    fixed_.resize(exact_.size());
    split_first_.resize(first_.size());
    split_.assign(static_cast<size_t>(output_ * pairs_ * kNumbersPerPair), 0);
    for (int place = 0; place < output_; ++place) {
        const double* weights = exact(place);
        int32_t* rounded = fixed_.data() + static_cast<size_t>(place) * stride_;
        int16_t* split = split_.data() + static_cast<size_t>(place * pairs_ * kNumbersPerPair);
        const int start = std::max(std::min(first(place), input_ - 2 * pairs_), 0), shift = first(place) - start;
        split_first_[static_cast<size_t>(place)] = start;
        for (int tap = 0; tap < count(place); ++tap) {
            const double scaled = weights[tap] * (1 << kPrecisionBits);
            rounded[tap] = static_cast<int32_t>(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
            int16_t* numbers = split + (tap + shift) / 2 * kNumbersPerPair + (tap + shift) % 2;
            numbers[0] = static_cast<int16_t>(rounded[tap] >> kLowBits);
            numbers[2] = static_cast<int16_t>(rounded[tap] & ((1 << kLowBits) - 1));
        }
    }
}

}  // namespace lockstep
