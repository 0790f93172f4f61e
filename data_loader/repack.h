// One picture on its way into a shard: copied as it is, or reduced and encoded anew.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data_loader/decoder.h"
#include "data_loader/image.h"
#include "data_loader/pack.h"
#include "data_loader/resample.h"
#include "data_loader/source.h"

namespace lockstep {

struct Repacked {
    std::span<const std::byte> bytes;  // of the record, or of `storage`
    std::string_view suffix;           // jpg or png, by content
    ImageSize size;
    bool copied = false;
    std::vector<uint8_t> storage;
};

// The longer side becomes `max_side`, the other is rounded; unchanged when it is not longer, or max_side is 0.
ImageSize limited_to(ImageSize size, int max_side);

// One per thread, reused.
class Repacker {
public:
    // `record` must outlive the use of `out`. DataError for a picture that cannot be opened, or decoded where it has to be.
    void run(const Record& record, const PackOptions& options, Repacked& out);

private:
    Decoder decoder_;
    Resampler resampler_;
    Image image_, reduced_;
};

}  // namespace lockstep
