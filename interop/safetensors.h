// The safetensors format: 8 bytes little-endian header length, JSON header, raw little-endian data. Reads never trust a length: a
// file whose ranges overlap, leave holes, run past the end or do not fit their shapes is refused, as is a name that comes twice.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

struct NamedTensor {
    std::string name;
    DataType type = DataType::f32;
    Shape shape;
    std::span<const std::byte> bytes;
};

class SafetensorsFile {
public:
    static std::unique_ptr<SafetensorsFile> open(const std::filesystem::path& path);  // DataError with file, offset and reason
    virtual ~SafetensorsFile() = default;
    virtual const std::vector<NamedTensor>& tensors() const = 0;  // borrowed from the map; sorted by name
    virtual const std::map<std::string, std::string>& metadata() const = 0;
};

// Atomic and synced (core/files.h); tensors are written in the given order straight from their memory, 64-byte aligned start of
// data. Throws DeviceError when the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

// A file of the format in memory, laid out once and filled again and again: filling allocates nothing. Its bytes are those that
// write_safetensors writes for the same tensors.
class SafetensorsImage {
public:
    // Of `tensors` only name, type and shape count. All values are zero at first.
    SafetensorsImage(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata);

    std::span<std::byte> tensor(size_t index) { return buffer_.bytes().subspan(places_[index].first, places_[index].second); }
    std::span<const std::byte> bytes() const { return buffer_.bytes(); }

private:
    std::vector<std::pair<size_t, size_t>> places_;  // of each tensor: first byte, bytes
    HeapPool pool_;
    Buffer buffer_;
};

}  // namespace lockstep
