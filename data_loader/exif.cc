#include "data_loader/exif.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace lockstep {

namespace {

constexpr int kOrientationTag = 0x0112;
constexpr size_t kEntryBytes = 12;

// Numbers of one byte order; outside the bytes there is nothing.
class Numbers {
public:
    Numbers(std::span<const std::byte> bytes, bool little) : bytes_(bytes), little_(little) {}
    std::optional<uint32_t> at(size_t place, size_t width) const {
        if (place > bytes_.size() || width > bytes_.size() - place) return std::nullopt;
        uint32_t value = 0;
        for (size_t index = 0; index < width; ++index) {
            value = value << 8 | static_cast<uint32_t>(bytes_[place + (little_ ? width - 1 - index : index)]);
        }
        return value;
    }

private:
    std::span<const std::byte> bytes_;
    bool little_;
};

// The first directory of a TIFF structure.
int orientation_in(std::span<const std::byte> tiff) {
    if (tiff.size() < 8) return 1;
    const Numbers numbers(tiff, tiff[0] == std::byte{'I'});
    const std::optional<uint32_t> directory = numbers.at(4, 4);
    const std::optional<uint32_t> count = numbers.at(*directory, 2);
    for (size_t index = 0; count && index < *count; ++index) {
        const size_t entry = *directory + 2 + index * kEntryBytes;
        const std::optional<uint32_t> tag = numbers.at(entry, 2), value = numbers.at(entry + 8, 2);
        if (!tag || !value) return 1;
        if (*tag == kOrientationTag) return *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
    }
    return 1;
}

// Which stored pixel is seen at (x, y): in EXIF's order, the first row and the first column of the file are seen at top and left,
// top and right, bottom and right, bottom and left, left and top, right and top, right and bottom, left and bottom.
struct Point {
    int x, y;
};
Point stored_point(Point seen, ImageSize stored, int orientation) {
    const bool turned = orientation >= 5;
    const Point place = turned ? Point{seen.y, seen.x} : seen;
    const bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    return {flip_x ? stored.width - 1 - place.x : place.x, flip_y ? stored.height - 1 - place.y : place.y};
}

}  // namespace

int exif_orientation(std::span<const std::byte> file) {
    constexpr std::string_view kName("Exif\0\0", 6);
    const Numbers numbers(file, false);
    for (size_t place = 2;;) {
        const std::optional<uint32_t> marker = numbers.at(place, 2), length = numbers.at(place + 2, 2);
        if (!marker || !length || *marker >> 8 != 0xFF || *length < 2 || *marker == 0xFFDA) return 1;
        const size_t begin = place + 4, size = *length - 2;
        if (*marker == 0xFFE1 && size >= kName.size() && size <= file.size() - begin &&
            std::memcmp(file.data() + begin, kName.data(), kName.size()) == 0) {
            return orientation_in(file.subspan(begin + kName.size(), size - kName.size()));
        }
        place = begin + size;
    }
}

ImageSize oriented_size(ImageSize stored, int orientation) {
    return orientation >= 5 ? ImageSize{stored.height, stored.width} : stored;
}

CropBox stored_box(const CropBox& seen, ImageSize stored, int orientation) {
    const Point a = stored_point({seen.x, seen.y}, stored, orientation);
    const Point b = stored_point({seen.x + seen.width - 1, seen.y + seen.height - 1}, stored, orientation);
    return {std::min(a.x, b.x), std::min(a.y, b.y), std::abs(a.x - b.x) + 1, std::abs(a.y - b.y) + 1};
}

ImageView orient(const ImageView& in, int orientation, Image& out) {
    const ImageSize stored{in.width, in.height}, seen = oriented_size(stored, orientation);
    const ImageView result = out.reshape(seen.width, seen.height, in.bytes_per_pixel);
    const size_t bytes = static_cast<size_t>(in.bytes_per_pixel);
    for (int y = 0; y < seen.height; ++y) {
        for (int x = 0; x < seen.width; ++x) {
            const Point from = stored_point({x, y}, stored, orientation);
            std::memcpy(result.row(y) + static_cast<size_t>(x) * bytes, in.row(from.y) + static_cast<size_t>(from.x) * bytes,
                        bytes);
        }
    }
    return result;
}

}  // namespace lockstep
