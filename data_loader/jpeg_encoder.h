// Pixels to JPEG, for the sets the program draws itself and for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "data_loader/image.h"

namespace lockstep {

struct JpegEncoding {
    int quality = 92;
    bool half_chroma = true;  // 4:2:0; false: 4:4:4
    bool progressive = false;
};

// Grey or RGBX in, the file's bytes out (replacing what `file` held). The same pixels give the same bytes.
void encode_jpeg(const ImageView& image, const JpegEncoding& encoding, std::vector<uint8_t>& file);

}  // namespace lockstep
