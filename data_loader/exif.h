// The orientation that a camera noted in a JPEG file, and what it means.
#pragma once

#include <cstddef>
#include <span>

#include "data_loader/image.h"

namespace lockstep {

// The value of the Exif tag 0x0112 (TIFF 6.0, "Orientation"), 1 to 8; 1 when there is none or it is damaged. Reads nothing outside
// `file`.
int exif_orientation(std::span<const std::byte> file);

// Of the picture as it is to be seen.
ImageSize oriented_size(ImageSize stored, int orientation);
// Where a box of the picture as seen lies in the stored one.
CropBox stored_box(const CropBox& seen, ImageSize stored, int orientation);
// Turns and mirrors stored pixels into those to be seen. `out` must not be the buffer behind `in`.
ImageView orient(const ImageView& in, int orientation, Image& out);

}  // namespace lockstep
