// The weights with which one axis of an image is resized: arithmetic without pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// How pixels of the input become one pixel of the output.
enum class Filter : uint8_t {
    bilinear,        // Pillow's BILINEAR: a triangle as wide as the reduction (antialias)
    bicubic,         // Pillow's BICUBIC: Keys' cubic with a = -1/2, as wide as the reduction
    nearest,         // Pillow's NEAREST
    bilinear_plain,  // the two nearest inputs, however large the reduction (no antialias)
    area,            // the mean of the covered area (OpenCV's INTER_AREA)
};

// Where an axis is cut out of its input, in pixels; a border may lie inside a pixel.
struct AxisRange {
    double begin = 0.0, end = 0.0;
    bool operator==(const AxisRange&) const = default;
};

// Output position p sums `count[p]` inputs from `first[p]` on, with exact(p)[0 ...] as weights that add up to about 1.
class ResampleAxis {
public:
    // Reuses memory; nothing to do when the arguments are those of the last call. The filter may see inputs outside `range`.
    void prepare(int input, AxisRange range, int output, Filter filter);

    int input() const { return input_; }
    int output() const { return output_; }
    int first(int place) const { return first_[static_cast<size_t>(place)]; }
    int count(int place) const { return count_[static_cast<size_t>(place)]; }
    const double* exact(int place) const { return exact_.data() + static_cast<size_t>(place) * stride_; }

    // The same, times 2^22 and rounded, as Pillow has them.
    static constexpr int kPrecisionBits = 22;
    const int32_t* fixed(int place) const { return fixed_.data() + static_cast<size_t>(place) * stride_; }

    // For vectors that multiply pairs of 16-bit numbers: a weight w is high * 2^11 + low. Inputs go in pairs, as many for each
    // place, from split_first()[place] on: none of them lies outside the axis, but for one where the axis has an odd number of
    // inputs and the filter takes all. Of each pair: both highs, both lows.
    static constexpr int kLowBits = 11;
    static constexpr int kNumbersPerPair = 4;
    int pairs() const { return pairs_; }
    const int* split_first() const { return split_first_.data(); }
    const int16_t* split(int place) const { return split_.data() + static_cast<size_t>(place * pairs_ * kNumbersPerPair); }

private:
    void weigh(int place, double scale, Filter filter);
    void round_and_split();

    int input_ = 0, output_ = 0, pairs_ = 0;
    AxisRange range_;
    Filter filter_ = Filter::bilinear;
    size_t stride_ = 0;
    double nearest_ = 0.0;
    std::vector<int> first_, count_, split_first_;
    std::vector<double> exact_;
    std::vector<int32_t> fixed_;
    std::vector<int16_t> split_;
};

}  // namespace lockstep
