// Pixels to PNG: what has no file form of its own (CIFAR, MNIST) is packed without a loss.
#pragma once

#include <cstdint>
#include <vector>

#include "data_loader/image.h"

namespace lockstep {

// Grey or RGBX in, the file's bytes out (replacing what `file` held). The same pixels give the same bytes.
void encode_png(const ImageView& image, std::vector<uint8_t>& file);

}  // namespace lockstep
