#include "data_loader/plain_jpeg.h"

#include <csetjmp>
#include <cstdio>
#include <vector>

#include <jpeglib.h>

#include "data_loader/decoder.h"

namespace lockstep {

struct PlainJpegDecoder::State {
    jpeg_decompress_struct library{};
    jpeg_error_mgr errors{};
    std::jmp_buf jump{};
    std::vector<uint8_t> pixels;

    static State& of(j_common_ptr library) { return *static_cast<State*>(library->client_data); }

    // Owns nothing on its frame, which an error jumps over. False: refused.
    bool decode(std::span<const std::byte> file) {
        if (setjmp(jump) != 0) return false;
        jpeg_mem_src(&library, reinterpret_cast<const unsigned char*>(file.data()), file.size());
        jpeg_read_header(&library, TRUE);
        if (int64_t{library.image_width} * library.image_height > kMaxImagePixels) return false;
        jpeg_start_decompress(&library);
        const size_t row_bytes = size_t{library.output_width} * static_cast<size_t>(library.output_components);
        if (pixels.size() < row_bytes * library.output_height) pixels.resize(row_bytes * library.output_height);
        while (library.output_scanline < library.output_height) {
            JSAMPROW rows[16];
            JDIMENSION count = 0;
            for (; count < 16 && library.output_scanline + count < library.output_height; ++count) {
                rows[count] = pixels.data() + row_bytes * (library.output_scanline + count);
            }
            jpeg_read_scanlines(&library, rows, count);
        }
        return true;
    }
};

PlainJpegDecoder::PlainJpegDecoder() : state_(std::make_unique<State>()) {
    State& state = *state_;
    state.library.err = jpeg_std_error(&state.errors);
    state.errors.error_exit = [](j_common_ptr library) { std::longjmp(State::of(library).jump, 1); };
    state.errors.emit_message = [](j_common_ptr, int) {};
    state.library.client_data = &state;
    jpeg_create_decompress(&state.library);
}

PlainJpegDecoder::~PlainJpegDecoder() { jpeg_destroy_decompress(&state_->library); }

std::optional<ImageSize> PlainJpegDecoder::decode(std::span<const std::byte> file) {
    if (file.empty()) return std::nullopt;
    const bool decoded = state_->decode(file);
    const ImageSize size{static_cast<int>(state_->library.image_width), static_cast<int>(state_->library.image_height)};
    jpeg_abort_decompress(&state_->library);
    return decoded ? std::optional(size) : std::nullopt;
}

std::span<const uint8_t> PlainJpegDecoder::pixels() const { return state_->pixels; }

}  // namespace lockstep
