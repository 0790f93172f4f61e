#include "data_loader/tfrecord.h"

#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "data_loader/crc32c.h"
#include "data_loader/wire_reader.h"

namespace lockstep {

namespace {

constexpr uint64_t kHeadBytes = 12, kTailBytes = 4;

template <typename Number>
Number number_at(std::span<const std::byte> file, uint64_t offset) {
    Number number = 0;
    std::memcpy(&number, file.data() + offset, sizeof number);
    return number;
}

[[noreturn]] void fail(const std::filesystem::path& path, int64_t number, uint64_t offset, std::string_view reason) {
    throw DataError(fmt::format("{}: record {} at offset {}: {}; the TFRecord file is damaged, copy or make it again",
                                path.string(), number, offset, reason));
}

bool head_fits(std::span<const std::byte> file, uint64_t offset) {
    return masked_crc32c(file.subspan(offset, 8)) == number_at<uint32_t>(file, offset + 8);
}

std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Feature { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 }, each list { repeated value = 1 }.
bool first_bytes(std::span<const std::byte> feature, std::span<const std::byte>& value) {
    WireReader kinds(feature);
    for (WireReader::Field kind; kinds.next(kind);) {
        if (kind.number != 1 || !kind.has_bytes) continue;
        WireReader values(kind.bytes);
        for (WireReader::Field field; values.next(field);) {
            if (field.number != 1 || !field.has_bytes) continue;
            value = field.bytes;
            return true;
        }
    }
    return false;
}

bool first_integer(std::span<const std::byte> feature, int64_t& value) {
    WireReader kinds(feature);
    for (WireReader::Field kind; kinds.next(kind);) {
        if (kind.number != 3 || !kind.has_bytes) continue;
        WireReader values(kind.bytes);
        for (WireReader::Field field; values.next(field);) {
            if (field.number != 1) continue;
            WireReader packed(field.bytes);
            value = static_cast<int64_t>(field.has_bytes ? packed.varint() : field.value);
            return packed.ok();
        }
    }
    return false;
}

}  // namespace

std::vector<TfRecord> read_tfrecord_index(std::span<const std::byte> file, const std::filesystem::path& path) {
    std::vector<TfRecord> records;
    for (uint64_t offset = 0; offset < file.size();) {
        const int64_t number = std::ssize(records);
        const uint64_t left = file.size() - offset;
        if (left < kHeadBytes) fail(path, number, offset, fmt::format("the file ends {} bytes into its head", left));
        if (!head_fits(file, offset)) fail(path, number, offset, "wrong checksum of the length");
        const uint64_t size = number_at<uint64_t>(file, offset);
        if (left < kHeadBytes + kTailBytes || size > left - kHeadBytes - kTailBytes) {
            fail(path, number, offset, fmt::format("it claims {} bytes, {} remain", size, left - kHeadBytes));
        }
        records.push_back({offset + kHeadBytes, size});
        offset += kHeadBytes + size + kTailBytes;
    }
    if (records.empty()) throw DataError(fmt::format("{}: an empty file is no TFRecord file; make it again", path.string()));
    return records;
}

bool looks_like_tfrecord(std::span<const std::byte> file) { return file.size() >= kHeadBytes + kTailBytes && head_fits(file, 0); }

void check_tfrecord(std::span<const std::byte> file, const TfRecord& record, int64_t number, const std::filesystem::path& path) {
    const uint32_t stored = number_at<uint32_t>(file, record.offset + record.size);
    if (masked_crc32c(file.subspan(record.offset, record.size)) == stored) return;
    fail(path, number, record.offset - kHeadBytes, "wrong checksum of the data");
}

// Example { Features features = 1 }, Features { map<string, Feature> feature = 1 }; a map entry has its key as 1 and its value
// as 2.
std::optional<TfExample> parse_tf_example(std::span<const std::byte> data) {
    TfExample example;
    bool has_image = false, has_label = false;
    WireReader top(data);
    for (WireReader::Field features; top.next(features);) {
        if (features.number != 1 || !features.has_bytes) continue;
        WireReader entries(features.bytes);
        for (WireReader::Field entry; entries.next(entry);) {
            if (entry.number != 1 || !entry.has_bytes) continue;
            WireReader pair(entry.bytes);
            std::span<const std::byte> key, value;
            for (WireReader::Field part; pair.next(part);) {
                if (part.number == 1) key = part.bytes;
                if (part.number == 2) value = part.bytes;
            }
            if (text_of(key) == "image/encoded") has_image = first_bytes(value, example.image);
            if (text_of(key) == "image/class/label") has_label = first_integer(value, example.label);
        }
    }
    if (!top.ok() || !has_image || !has_label) return std::nullopt;
    return example;
}

}  // namespace lockstep
