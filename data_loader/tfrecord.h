// TFRecord files of tf.train.Example messages, found without copying. A record is: length (8 bytes, little-endian), masked CRC-32C
// of the length (4), the data, masked CRC-32C of the data (4). https://www.tensorflow.org/tutorials/load_data/tfrecord
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

struct TfRecord {
    uint64_t offset = 0, size = 0;  // of the data
};

// Every length's checksum is compared and every length checked against the file; data is not read. DataError naming `path`, the
// record and its offset for an empty or cut file and for a wrong checksum.
std::vector<TfRecord> read_tfrecord_index(std::span<const std::byte> file, const std::filesystem::path& path);

// Does the file begin with a length and its right checksum?
bool looks_like_tfrecord(std::span<const std::byte> file);

// DataError when the data does not have its checksum.
void check_tfrecord(std::span<const std::byte> file, const TfRecord& record, int64_t number, const std::filesystem::path& path);

// The features that make a sample: bytes "image/encoded" and the integer "image/class/label". Without one of them: nullopt.
struct TfExample {
    std::span<const std::byte> image;  // inside the data
    int64_t label = 0;
};
std::optional<TfExample> parse_tf_example(std::span<const std::byte> data);

}  // namespace lockstep
