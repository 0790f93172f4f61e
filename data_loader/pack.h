// Any source to WebDataset shards with side indexes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data_loader/source.h"

namespace lockstep {

enum class Subsampling : uint8_t { keep, half, full };  // half: 4:2:0, full: 4:4:4

struct PackOptions {
    std::filesystem::path out;  // gets PREFIX-000000.tar and so on, each with .idx; class_names.txt; pack.txt
    std::string prefix = "shard";
    uint64_t shard_bytes = uint64_t{256} << 20;  // a shard is closed before it would grow longer; one sample always fits
    int max_side = 0;                            // longer sides are reduced to this many pixels; 0: none are
    int quality = 90;                            // of JPEG files that have to be written anew
    Subsampling subsampling = Subsampling::keep;
    std::optional<uint64_t> shuffle_seed;  // the order of writing; none: that of the source
    int threads = 1;
    bool resume = false;    // go on after the last complete shard
    bool skip_bad = false;  // pictures that cannot be packed are left out and listed; false: the first one is an error
    std::function<void(int64_t done, int64_t total)> progress;  // now and then, from the calling thread
};

struct PackResult {
    int64_t images = 0;  // in all shards
    int64_t copied = 0, encoded = 0, resumed = 0;
    int64_t shards = 0;
    uint64_t picture_bytes = 0;    // written by this call
    std::vector<std::string> bad;  // with reasons, in the order of writing
};

// Sample P of the writing order becomes members {P:08}.jpg (or .png) and {P:08}.cls, so every run with the same source and options
// writes the same bytes, whatever the threads and interruptions. A file is copied byte for byte unless it is larger than max_side
// or sampled otherwise than asked for; then it becomes a JPEG. Raw pixels become PNG, which loses nothing, or JPEG when they are
// reduced. pack.txt holds source and options: `out` with another pack.txt, or with shards and no `resume`, is a ConfigError.
// DataError for a bad picture; DeviceError when a file cannot be written. Complete shards survive every failure.
PackResult pack(const Source& source, const PackOptions& options);

// "out/shard-{000000..000012}.tar"
std::string shard_pattern(const PackOptions& options, int64_t shards);

}  // namespace lockstep
