#include "data_loader/jpeg_encoder.h"

#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include "core/error.h"

namespace lockstep {

void encode_jpeg(const ImageView& image, const JpegEncoding& encoding, std::vector<uint8_t>& file) {
    check(image.width > 0 && image.height > 0 && image.width <= JPEG_MAX_DIMENSION && image.height <= JPEG_MAX_DIMENSION,
          "encode_jpeg: impossible size");
    jpeg_compress_struct library{};
    jpeg_error_mgr errors{};
    library.err = jpeg_std_error(&errors);
    // The arguments are checked above and memory is the only thing that could fail.
    errors.error_exit = [](j_common_ptr) { check(false, "libjpeg cannot encode: out of memory"); };
    jpeg_create_compress(&library);
    unsigned char* bytes = nullptr;
    unsigned long byte_count = 0;
    jpeg_mem_dest(&library, &bytes, &byte_count);
    const bool grey = image.bytes_per_pixel == 1;
    library.image_width = static_cast<JDIMENSION>(image.width);
    library.image_height = static_cast<JDIMENSION>(image.height);
    library.input_components = grey ? 1 : 4;
    library.in_color_space = grey ? JCS_GRAYSCALE : JCS_EXT_RGBX;
    jpeg_set_defaults(&library);
    jpeg_set_quality(&library, encoding.quality, TRUE);
    if (!encoding.half_chroma) library.comp_info[0].h_samp_factor = library.comp_info[0].v_samp_factor = 1;
    if (encoding.progressive) jpeg_simple_progression(&library);
    jpeg_start_compress(&library, TRUE);
    while (library.next_scanline < library.image_height) {
        JSAMPROW row = image.row(static_cast<int>(library.next_scanline));
        jpeg_write_scanlines(&library, &row, 1);
    }
    jpeg_finish_compress(&library);
    file.assign(bytes, bytes + byte_count);
    jpeg_destroy_compress(&library);
    std::free(bytes);
}

}  // namespace lockstep
