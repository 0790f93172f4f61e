#include "data_loader/png_decoder.h"

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <png.h>

#include <fmt/format.h>

#include "core/error.h"
#include "data_loader/decoder.h"

namespace lockstep {

struct PngDecoder::State {
    png_structp library = nullptr;
    png_infop info = nullptr;
    std::jmp_buf jump{};
    char message[256] = {};
    std::string name;
    std::span<const std::byte> rest;
    std::vector<png_bytep> rows;
    int64_t warnings = 0;

    ~State() { close(); }
    void close() { png_destroy_read_struct(&library, &info, nullptr); }

    static void on_error(png_structp library, png_const_charp text) {
        State& state = *static_cast<State*>(png_get_error_ptr(library));
        std::snprintf(state.message, sizeof state.message, "%s", text);
        std::longjmp(state.jump, 1);
    }
    static void on_warning(png_structp library, png_const_charp) { ++static_cast<State*>(png_get_error_ptr(library))->warnings; }
    static void read(png_structp library, png_bytep out, size_t count) {
        State& state = *static_cast<State*>(png_get_io_ptr(library));
        if (count > state.rest.size()) png_error(library, "the file ends before the image is complete");
        std::memcpy(out, state.rest.data(), count);
        state.rest = state.rest.subspan(count);
    }

    // Runs library calls; an error inside jumps back here and becomes a DataError. `calls` must own nothing.
    template <typename Calls>
    void guarded(Calls calls) {
        if (setjmp(jump) == 0) {
            calls();
            return;
        }
        fail(message);
    }
    [[noreturn]] void fail(std::string_view reason) {
        close();
        throw DataError(fmt::format("{}: bad PNG image: {}; replace or remove it", name, reason));
    }
};

PngDecoder::PngDecoder() : state_(std::make_unique<State>()) {}
PngDecoder::~PngDecoder() = default;

ImageSize PngDecoder::open(std::span<const std::byte> bytes, std::string_view name) {
    State& state = *state_;
    state.close();
    state.name = name;
    state.rest = bytes;
    state.library = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, State::on_error, State::on_warning);
    state.info = state.library != nullptr ? png_create_info_struct(state.library) : nullptr;
    if (state.info == nullptr) throw DeviceError("libpng cannot start: out of memory or a different library version");
    state.guarded([&state] {
        png_set_read_fn(state.library, &state, State::read);
        png_set_user_limits(state.library, 1 << 20, 1 << 20);
        png_read_info(state.library, state.info);
    });
    const int64_t width = png_get_image_width(state.library, state.info);
    const int64_t height = png_get_image_height(state.library, state.info);
    if (width * height > kMaxImagePixels) {
        state.fail(fmt::format("it declares {}x{} pixels, more than the {} allowed", width, height, kMaxImagePixels));
    }
    return {static_cast<int>(width), static_cast<int>(height)};
}

void PngDecoder::decode(Image& out) {
    State& state = *state_;
    check(state.library != nullptr, "PngDecoder::decode needs an opened image");
    const int colour = png_get_color_type(state.library, state.info);
    const bool grey = (colour & PNG_COLOR_MASK_COLOR) == 0;
    const int width = static_cast<int>(png_get_image_width(state.library, state.info));
    const int height = static_cast<int>(png_get_image_height(state.library, state.info));
    const ImageView view = out.reshape(width, height, grey ? 1 : 4);
    state.rows.resize(static_cast<size_t>(height));
    for (int y = 0; y < height; ++y) state.rows[static_cast<size_t>(y)] = view.row(y);
    state.guarded([&] {
        png_set_strip_16(state.library);
        if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(state.library);
        if (grey) png_set_expand_gray_1_2_4_to_8(state.library);
        png_set_strip_alpha(state.library);
        if (!grey) png_set_filler(state.library, 0xFF, PNG_FILLER_AFTER);
        png_set_interlace_handling(state.library);
        png_read_update_info(state.library, state.info);
        // A palette with transparency would otherwise widen the rows: refuse to write past them, whatever the file says.
        if (png_get_rowbytes(state.library, state.info) != view.stride_bytes) png_error(state.library, "unexpected row size");
        png_read_image(state.library, state.rows.data());
        png_read_end(state.library, nullptr);
    });
    state.close();
}

int64_t PngDecoder::warnings() const { return state_->warnings; }

}  // namespace lockstep
