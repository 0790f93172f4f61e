#include "data_loader/decoder.h"

#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

void check_raw(const Record& record) {
    const bool sane = (record.channels == 1 || record.channels == 3) && record.height > 0 && record.width > 0 &&
                      int64_t{record.height} * record.width <= kMaxImagePixels;
    check(sane, "raw record with impossible dimensions");
    check(record.bytes.size() ==
              static_cast<size_t>(record.channels) * static_cast<size_t>(record.height) * static_cast<size_t>(record.width),
          "raw record whose size does not fit its dimensions");
}

// Planes of rows [first_row, first_row + row_count) to interleaved pixels.
void interleave(const Record& record, int first_row, const ImageView& out) {
    const size_t width = static_cast<size_t>(record.width);
    const size_t plane = width * static_cast<size_t>(record.height);
    const auto* planes = reinterpret_cast<const uint8_t*>(record.bytes.data());
    for (int y = 0; y < out.height; ++y) {
        const uint8_t* in = planes + static_cast<size_t>(first_row + y) * width;
        uint8_t* row = out.row(y);
        for (size_t x = 0; x < width; ++x) {
            if (record.channels == 1) {
                row[x] = in[x];
                continue;
            }
            row[4 * x] = in[x];
            row[4 * x + 1] = in[plane + x];
            row[4 * x + 2] = in[2 * plane + x];
            row[4 * x + 3] = 0xFF;
        }
    }
}

}  // namespace

ImageSize Decoder::open(const Record& record) {
    record_ = &record;
    kind_ = Kind::none;
    if (record.encoding == Encoding::raw) {
        check_raw(record);
        kind_ = Kind::raw;
        return {record.width, record.height};
    }
    switch (detect_content(record.bytes)) {
        case ContentKind::jpeg: {
            const ImageSize size = jpeg_.open(record.bytes, record.key);
            kind_ = Kind::jpeg;
            return size;
        }
        case ContentKind::png: {
            const ImageSize size = png_.open(record.bytes, record.key);
            kind_ = Kind::png;
            return size;
        }
        default:
            break;
    }
    throw DataError(
        fmt::format("{}: not a JPEG or PNG image but {}; replace or remove it", record.key, describe_content(record.bytes)));
}

ContentKind Decoder::kind() const {
    return kind_ == Kind::jpeg ? ContentKind::jpeg : kind_ == Kind::png ? ContentKind::png : ContentKind::unknown;
}

Chroma Decoder::chroma() const { return kind_ == Kind::jpeg ? jpeg_.chroma() : Chroma::none; }

ImageView Decoder::decode(int first_row, int row_count, Image& out) {
    const Kind kind = std::exchange(kind_, Kind::none);
    switch (kind) {
        case Kind::none:
            check(false, "Decoder::decode needs an opened record");
            break;
        case Kind::jpeg:
            jpeg_.decode(first_row, row_count, out);
            break;
        case Kind::raw:
            out.reshape(record_->width, row_count, record_->channels == 1 ? 1 : 4);
            interleave(*record_, first_row, out.view());
            break;
        case Kind::png:
            png_.decode(out);
            return out.view().crop(0, first_row, out.view().width, row_count);
    }
    return out.view().crop(0, 0, out.view().width, row_count);
}

}  // namespace lockstep
