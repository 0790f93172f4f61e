#include "data_loader/repack.h"

#include <algorithm>

#include "data_loader/geometry.h"
#include "data_loader/jpeg_encoder.h"
#include "data_loader/png_encoder.h"

namespace lockstep {

namespace {

// A kept sampling that is neither 4:2:0 nor 4:4:4 becomes the finer one.
bool wants_half(Subsampling wanted, ContentKind kind, Chroma chroma) {
    if (wanted != Subsampling::keep) return wanted == Subsampling::half;
    return kind != ContentKind::jpeg || chroma == Chroma::half;
}

bool fits(Subsampling wanted, Chroma chroma) {
    if (wanted == Subsampling::keep || chroma == Chroma::none) return true;
    return chroma == (wanted == Subsampling::half ? Chroma::half : Chroma::full);
}

}  // namespace

ImageSize limited_to(ImageSize size, int max_side) {
    const int longer = std::max(size.width, size.height);
    if (max_side == 0 || longer <= max_side) return size;
    const auto scaled = [&](int side) { return std::max(1, round_half_even(static_cast<double>(side) * max_side / longer)); };
    return {scaled(size.width), scaled(size.height)};
}

void Repacker::run(const Record& record, const PackOptions& options, Repacked& out) {
    const ImageSize size = decoder_.open(record);
    const ContentKind kind = decoder_.kind();
    const Chroma chroma = decoder_.chroma();
    out.size = limited_to(size, options.max_side);
    const bool reduce = out.size != size;
    out.copied = kind != ContentKind::unknown && !reduce && fits(options.subsampling, chroma);
    if (out.copied) {
        out.suffix = kind == ContentKind::png ? "png" : "jpg";
        out.bytes = record.bytes;
        return;
    }
    ImageView image = decoder_.decode_all(size, image_);
    if (reduce) image = resampler_.resize(image, out.size.width, out.size.height, reduced_);
    if (kind == ContentKind::unknown && !reduce) {
        out.suffix = "png";
        encode_png(image, out.storage);
    } else {
        out.suffix = "jpg";
        encode_jpeg(image, {.quality = options.quality, .half_chroma = wants_half(options.subsampling, kind, chroma)}, out.storage);
    }
    out.bytes = std::as_bytes(std::span(out.storage));
}

}  // namespace lockstep
