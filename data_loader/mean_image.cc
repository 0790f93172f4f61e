#include "data_loader/mean_image.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "core/error.h"
#include "data_loader/wire_reader.h"

namespace lockstep {

namespace {

constexpr uint64_t kMaxSide = 1 << 14;

// Numbers of the fields in caffe.proto.
enum BlobField : uint32_t { kNum = 1, kChannels = 2, kHeight = 3, kWidth = 4, kData = 5, kShape = 7, kDoubleData = 8 };

struct Blob {
    std::vector<uint64_t> sizes;      // `shape`, or the four numbers of older files
    std::span<const std::byte> data;  // packed
    std::vector<float> single;        // data that was written number by number
    bool has_doubles = false;
};

// BlobShape: repeated int64 dim = 1.
bool read_shape(std::span<const std::byte> message, std::vector<uint64_t>& sizes) {
    WireReader fields(message);
    for (WireReader::Field field; fields.next(field);) {
        if (field.number != 1) continue;
        if (!field.has_bytes) {
            sizes.push_back(field.value);
            continue;
        }
        WireReader packed(field.bytes);
        while (!packed.at_end() && packed.ok()) sizes.push_back(packed.varint());
        if (!packed.ok()) return false;
    }
    return fields.ok();
}

std::optional<Blob> read_blob(std::span<const std::byte> file) {
    Blob blob;
    uint64_t older[4] = {};
    WireReader fields(file);
    for (WireReader::Field field; fields.next(field);) {
        if (field.number >= kNum && field.number <= kWidth && !field.has_bytes) older[field.number - kNum] = field.value;
        if (field.number == kShape && (!field.has_bytes || !read_shape(field.bytes, blob.sizes))) return std::nullopt;
        if (field.number == kDoubleData) blob.has_doubles = true;
        if (field.number != kData) continue;
        if (field.has_bytes) {
            blob.data = field.bytes;
        } else {
            const auto bits = static_cast<uint32_t>(field.value);
            std::memcpy(&blob.single.emplace_back(), &bits, sizeof bits);
        }
    }
    if (!fields.ok()) return std::nullopt;
    if (blob.sizes.empty()) blob.sizes.assign(older, older + 4);
    return blob;
}

// Channels, height and width: the last three sizes; what stands before them is 1.
bool take_sizes(const std::vector<uint64_t>& sizes, MeanImage& mean) {
    if (sizes.size() < 3 || sizes.size() > 4 || (sizes.size() == 4 && sizes[0] != 1)) return false;
    const uint64_t* last = sizes.data() + sizes.size() - 3;
    if ((last[0] != 1 && last[0] != 3) || last[1] < 1 || last[1] > kMaxSide || last[2] < 1 || last[2] > kMaxSide) return false;
    mean.channels = static_cast<int>(last[0]);
    mean.height = static_cast<int>(last[1]);
    mean.width = static_cast<int>(last[2]);
    return true;
}

[[noreturn]] void fail(std::string_view path, const std::string& reason) {
    throw DataError(fmt::format("{}: {}; data.mean_file is a BlobProto as Caffe's compute_image_mean writes it", path, reason));
}

// Red first, in [0, 1].
void take_values(const std::vector<float>& stored, std::string_view path, MeanImage& mean) {
    const size_t plane = static_cast<size_t>(mean.height) * static_cast<size_t>(mean.width);
    const size_t channels = static_cast<size_t>(mean.channels);
    mean.values.resize(stored.size());
    for (size_t place = 0; place < stored.size(); ++place) {
        if (!std::isfinite(stored[place])) fail(path, fmt::format("value {} is no number", place));
        const size_t channel = channels - 1 - place / plane;
        mean.values[channel * plane + place % plane] = stored[place] / 255.0F;
    }
}

}  // namespace

MeanImage parse_mean_image(std::span<const std::byte> file, std::string_view path) {
    const std::optional<Blob> blob = read_blob(file);
    if (!blob) fail(path, fmt::format("not a message, or damaged ({} bytes)", file.size()));
    MeanImage mean;
    if (!take_sizes(blob->sizes, mean)) fail(path, "its sizes are not those of one image of 1 or 3 channels");
    if (blob->has_doubles) fail(path, "it holds double numbers; write it as float");
    std::vector<float> stored = blob->single;
    if (stored.empty()) {
        stored.resize(blob->data.size() / sizeof(float));
        if (!stored.empty()) std::memcpy(stored.data(), blob->data.data(), stored.size() * sizeof(float));
    }
    const size_t wanted = static_cast<size_t>(mean.channels) * static_cast<size_t>(mean.height) * static_cast<size_t>(mean.width);
    if (stored.size() != wanted || blob->data.size() % sizeof(float) != 0 || (!blob->single.empty() && !blob->data.empty())) {
        fail(path, fmt::format("it declares {}x{}x{} values and holds {}", mean.channels, mean.height, mean.width, stored.size()));
    }
    take_values(stored, path, mean);
    return mean;
}

void subtract_mean_image(const MeanImage& mean, const std::array<float, 3>& stddev, bool mirrored, std::span<float> out) {
    check(out.size() == mean.values.size(), "subtract_mean_image: the mean does not fit the image");
    const size_t width = static_cast<size_t>(mean.width), plane = width * static_cast<size_t>(mean.height);
    for (size_t row = 0; row < out.size(); row += width) {
        const float deviation = stddev[row / plane];
        for (size_t x = 0; x < width; ++x) {
            const size_t from = mirrored ? width - 1 - x : x;
            out[row + x] = (out[row + x] - mean.values[row + from]) / deviation;
        }
    }
}

}  // namespace lockstep
