// From a stored sample to normalised floats: decode, transform, normalise. One per thread; buffers are reused.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "data_loader/decoder.h"
#include "data_loader/geometry.h"
#include "data_loader/image.h"
#include "data_loader/kernels/pixel_kernels.h"
#include "data_loader/pipeline_options.h"
#include "data_loader/resample.h"
#include "data_loader/source.h"
#include "data_loader/stage_times.h"
#include "data_loader/transform_checks.h"

namespace lockstep {

// What a run did to its image, for people who look at it.
struct PipelineChoices {
    struct Operation {
        std::string_view name;
        double value = 0.0;
    };
    ImageSize stored{};
    std::vector<CropBox> crops;  // in turn, each in the pixels of the image it was taken from, padding included
    bool flipped = false;
    std::vector<Operation> operations;  // on colours and shape, in turn
    CropBox erased{};                   // in the network's pixels; of no size: nothing was erased
};

class Pipeline {
public:
    explicit Pipeline(const PipelineOptions& options);

    // Writes `record`'s image to `out` (C, H, W). The random numbers are those of (options.seed, "augment", epoch, sample),
    // whatever the thread and whatever was done before. DataError naming the record's key.
    void run(const Record& record, int64_t epoch, int64_t sample, std::span<float> out);

    // The image before it is normalised: all transforms on pixels are done, those on floats are not. Valid until the next call.
    ImageView pixels(const Record& record, int64_t epoch, int64_t sample);

    const PipelineChoices& choices() const { return choices_; }  // of the last run

    int64_t decoder_warnings() const { return decoder_.warnings(); }
    const StageTimes& times() const { return clock_.times(); }  // of all runs; nothing under read

private:
    ImageView transformed(const Record& record, RandomStream& random, size_t& next_transform);
    ImageView decode(const Record& record, RandomStream& random, size_t& next_transform);
    ImageView decode_crop(const Transform& crop, const CropBox& seen, int orientation);
    ImageView apply(const Transform& transform, const ImageView& image, RandomStream& random, const Record& record);
    ImageView resize(const Transform& transform, const ImageView& image, const Record& record);
    ImageView pad(const ImageView& image, int left, int top, int right, int bottom);
    ImageView random_crop(const Transform& transform, ImageView image, RandomStream& random, const Record& record);
    ImageView center_crop(const Transform& transform, ImageView image);
    void flip(const Transform& transform, const ImageView& image, RandomStream& random);
    void jitter(const Transform& transform, const ImageView& image, RandomStream& random);
    ImageView augment(const Transform& transform, ImageView image, RandomStream& random);
    void light(const Transform& transform, RandomStream& random);
    void erase(const Transform& transform, RandomStream& random, std::span<float> out);
    CropBox draw_crop(const Transform& transform, ImageSize size, RandomStream& random);
    Image& other_buffer();

    PipelineOptions options_;
    PipelineChoices choices_;
    StageClock clock_;
    Decoder decoder_;
    Resampler resampler_;
    std::array<Image, 2> buffers_;
    int used_buffer_ = 0;         // the one that holds the current image
    size_t first_free_flip_ = 0;  // from this transform on, none can tell whether the image is mirrored yet
    bool mirrored_ = false;       // the current image is still to be mirrored
    pixel_kernels::Normalisation normalisation_;
};

}  // namespace lockstep
