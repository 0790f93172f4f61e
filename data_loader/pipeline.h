// From a stored sample to normalised floats: decode, transform, normalise. One per thread; buffers are reused.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "data_loader/decoder.h"
#include "data_loader/geometry.h"
#include "data_loader/image.h"
#include "data_loader/loader.h"
#include "data_loader/resample.h"
#include "data_loader/source.h"
#include "data_loader/stage_times.h"

namespace lockstep {

// ConfigError for transforms and sizes that cannot work on any image.
void validate(const PipelineOptions& options);

// What a run did to its image, for people who look at it.
struct PipelineChoices {
    ImageSize stored{};
    std::vector<CropBox> crops;  // in turn, each in the pixels of the image it was taken from, padding included
    bool flipped = false;
};

class Pipeline {
public:
    explicit Pipeline(const PipelineOptions& options);

    // Writes `record`'s image to `out` (C, H, W). The random numbers are those of (options.seed, "augment", epoch, sample),
    // whatever the thread and whatever was done before. DataError naming the record's key.
    void run(const Record& record, int64_t epoch, int64_t sample, std::span<float> out);

    const PipelineChoices& choices() const { return choices_; }  // of the last run

    int64_t decoder_warnings() const { return decoder_.warnings(); }
    const StageTimes& times() const { return clock_.times(); }  // of all runs; nothing under read

private:
    ImageView decode(const Record& record, RandomStream& random, size_t& next_transform);
    ImageView apply(const Transform& transform, const ImageView& image, RandomStream& random, const Record& record);
    ImageView pad(const ImageView& image, int left, int top, int right, int bottom);
    ImageView random_crop(const Transform& transform, ImageView image, RandomStream& random, const Record& record);
    ImageView center_crop(const Transform& transform, ImageView image);
    void normalise(const ImageView& image, std::span<float> out) const;
    Image& other_buffer();

    PipelineOptions options_;
    PipelineChoices choices_;
    StageClock clock_;
    Decoder decoder_;
    Resampler resampler_;
    std::array<Image, 2> buffers_;
    int used_buffer_ = 0;                             // the one that holds the current image
    std::vector<std::array<float, 256>> normalised_;  // per channel: the float of each pixel value
};

}  // namespace lockstep
