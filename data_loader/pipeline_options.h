// What is done to each image, as plain data.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "data_loader/mean_image.h"
#include "data_loader/resample.h"

namespace lockstep {

// How random_resized_crop draws its box. torchvision: the logarithm of the aspect is uniform, sides are rounded half to even.
// lbann: the aspect itself is uniform, sides are truncated, and width and height are exchanged in half of the draws.
enum class CropDraws : uint8_t { torchvision, lbann };

// One step of the pixel pipeline; sizes in pixels. The names and their exact meaning are torchvision's.
struct Transform {
    enum class Kind : uint8_t {
        resize,
        center_crop,
        random_resized_crop,
        random_crop,
        horizontal_flip,
        color_jitter,
        rand_augment,
        pca_lighting,  // works on floats, as random_erasing does: they come after all others
        random_erasing,
    } kind = Kind::resize;
    int height = 0, width = 0;  // target; resize with width 0: the shorter side becomes `height`
    int pad = 0;                // random_crop: zeros on each side first
    // random_resized_crop: share of the area, width / height. random_erasing: likewise, but height / width.
    double scale_min = 0.08, scale_max = 1.0, ratio_min = 0.75, ratio_max = 4.0 / 3.0;
    Filter filter = Filter::bilinear;  // resize, random_resized_crop
    Rounding rounding = Rounding::each_pass;
    CropDraws draws = CropDraws::torchvision;  // random_resized_crop
    int tries = 10;
    double probability = 0.5;  // horizontal_flip, random_erasing
    // color_jitter: factors are drawn from 1 - x to 1 + x (not below 0), hue is turned by -x to x of a full turn.
    double brightness = 0.0, contrast = 0.0, saturation = 0.0, hue = 0.0;
    int operations = 2, magnitude = 9, bins = 31;  // rand_augment
    double strength = 0.1;                         // pca_lighting: standard deviation of the three factors
    bool random_values = false;                    // random_erasing: normal noise in place of zeros
};

// skip: in training the sample is replaced by the next good one, in evaluation left out; counted.
enum class BadImagePolicy : uint8_t { error, skip };

// How much of a JPEG file is decoded under a leading random_resized_crop. full: all of it. exact: what the crop needs, with the
// same pixels. fast: also a half, a quarter or an eighth of the size (from the DCT's coefficients) when the crop is larger than the
// target by as much; other pixels.
enum class DecodeMode : uint8_t { full, exact, fast };

struct PipelineOptions {
    std::vector<Transform> transforms;
    int channels = 3, height = 224, width = 224;        // of the batch; what comes out of the transforms must match
    std::array<float, 3> mean{0.485F, 0.456F, 0.406F};  // of pixels in [0, 1]
    std::array<float, 3> stddev{0.229F, 0.224F, 0.225F};
    std::shared_ptr<const MeanImage> mean_image;  // in place of `mean`; shared by the threads, which only read it
    BadImagePolicy on_bad_image = BadImagePolicy::error;
    DecodeMode decode = DecodeMode::exact;
    bool apply_exif_orientation = false;  // false: pixels as stored, as torchvision's loader
    uint64_t seed = 0;                    // randomness = f(seed, epoch, sample index)
};

}  // namespace lockstep
