#include "data_loader/datum.h"

#include "data_loader/wire_reader.h"

namespace lockstep {

namespace {

constexpr uint64_t kMaxSide = 1 << 16;

bool sizes_fit(uint64_t channels, uint64_t height, uint64_t width, uint64_t bytes) {
    return (channels == 1 || channels == 3) && height >= 1 && height <= kMaxSide && width >= 1 && width <= kMaxSide &&
           channels * height * width == bytes;
}

}  // namespace

std::optional<Datum> parse_datum(std::span<const std::byte> message) {
    Datum datum;
    uint64_t sizes[3] = {};
    bool has_label = false;
    WireReader fields(message);
    for (WireReader::Field field; fields.next(field);) {
        if (field.number == 4 && field.has_bytes) {
            datum.data = field.bytes;
            continue;
        }
        if (field.number == 6) return std::nullopt;
        if (field.has_bytes) continue;
        if (field.number >= 1 && field.number <= 3) sizes[field.number - 1] = field.value;
        if (field.number == 5) {
            datum.label = static_cast<int64_t>(field.value);
            has_label = true;
        }
        if (field.number == 7) datum.encoded = field.value != 0;
    }
    if (!fields.ok() || !has_label || datum.data.empty()) return std::nullopt;
    if (datum.encoded) return datum;
    if (!sizes_fit(sizes[0], sizes[1], sizes[2], datum.data.size())) return std::nullopt;
    datum.channels = static_cast<int>(sizes[0]);
    datum.height = static_cast<int>(sizes[1]);
    datum.width = static_cast<int>(sizes[2]);
    return datum;
}

}  // namespace lockstep
