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

// The planes' pixels of `box`, interleaved.
void interleave(const Record& record, const CropBox& box, const ImageView& out) {
    const size_t width = static_cast<size_t>(record.width);
    const size_t plane = width * static_cast<size_t>(record.height);
    const auto* planes = reinterpret_cast<const uint8_t*>(record.bytes.data());
    for (int y = 0; y < out.height; ++y) {
        const uint8_t* in = planes + static_cast<size_t>(box.y + y) * width + static_cast<size_t>(box.x);
        uint8_t* row = out.row(y);
        for (size_t x = 0; x < static_cast<size_t>(box.width); ++x) {
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

ImageView Decoder::decode(const DecodeRequest& request, Image& out) {
    const Kind kind = std::exchange(kind_, Kind::none);
    const CropBox& box = request.box;
    check(request.shrink == 1 || kind == Kind::jpeg, "only JPEG images can be shrunk while they are decoded");
    switch (kind) {
        case Kind::none:
            break;
        case Kind::jpeg:
            return jpeg_.decode(request, out);
        case Kind::raw:
            out.reshape(box.width, box.height, record_->channels == 1 ? 1 : 4);
            interleave(*record_, box, out.view());
            return out.view();
        case Kind::png:
            png_.decode(out);
            return out.view().crop(box);
    }
    check(false, "Decoder::decode needs an opened record");
    return {};
}

}  // namespace lockstep
