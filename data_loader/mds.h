// MosaicML's MDS shards, without a copy. index.json (version 2) names the shards and their columns; a shard is: sample count
// (uint32), count + 1 offsets into the file (uint32 each), a copy of its description, the samples. A sample is the sizes of its
// columns of varying size (uint32 each), then the columns. All little-endian.
// https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct MdsColumn {
    std::string name, encoding;  // "jpeg", "png", "bytes", "int", "uint8", ...
    uint64_t size = 0;           // 0: varies
};

struct MdsShard {
    std::string file;  // beside index.json
    uint64_t samples = 0, bytes = 0;
    std::vector<MdsColumn> columns;
};

// DataError naming `path` for text that is no index of this version, and for compressed shards.
std::vector<MdsShard> parse_mds_index(std::string_view text, const std::filesystem::path& path);

struct MdsSample {
    uint64_t offset = 0;  // of the sample in the file
    std::span<const std::byte> image;
    int64_t label = 0;
};

// All samples of a shard. The image is the one column encoded as jpeg, png, or bytes, or else that named image, jpg, jpeg or png;
// the label the one integer column, or else that named label, class, cls or y. DataError with path, record and offset for whatever
// does not fit.
std::vector<MdsSample> read_mds_shard(std::span<const std::byte> file, const MdsShard& shard, const std::filesystem::path& path);

}  // namespace lockstep
