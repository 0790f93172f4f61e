#include "data_loader/jpeg_decoder.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <string>
#include <vector>

#include <jpeglib.h>
// jerror.h needs jpeglib.h first.
#include <jerror.h>

#include <fmt/format.h>

#include "core/error.h"
#include "data_loader/decoder.h"

namespace lockstep {

namespace {

constexpr int kMaxScans = 500;       // a real progressive file has about ten; thousands are an attack on the reader's time
constexpr long kBytesPerPixel = 16;  // what the library may take, at most: coefficients of a progressive file and rows
constexpr size_t kTailBytes = 64;    // where the end marker is looked for
constexpr int kRowsPerCall = 16;     // row pointers handed to the library at once
constexpr JOCTET kEndMarker[2] = {0xFF, JPEG_EOI};

bool has_end_marker(std::span<const std::byte> bytes) {
    const std::span<const std::byte> tail = bytes.last(std::min(bytes.size(), kTailBytes));
    for (size_t index = 0; index + 1 < tail.size(); ++index) {
        if (tail[index] == std::byte{0xFF} && tail[index + 1] == std::byte{JPEG_EOI}) return true;
    }
    return false;
}

// x * y / 255, rounded.
uint8_t multiply_255(unsigned x, unsigned y) {
    const unsigned product = x * y + 128;
    return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

// In place. `inverted`: 255 means no ink, as Adobe's programs write it.
void inks_to_rgbx(const ImageView& image, bool inverted) {
    const uint8_t flip = inverted ? 0 : 255;
    for (int y = 0; y < image.height; ++y) {
        uint8_t* pixel = image.row(y);
        for (int x = 0; x < image.width; ++x, pixel += 4) {
            const uint8_t paper = pixel[3] ^ flip;  // what black leaves
            for (int channel = 0; channel < 3; ++channel) {
                const uint8_t ink = pixel[channel] ^ flip ^ 255;
                pixel[channel] = static_cast<uint8_t>(paper - multiply_255(ink, paper));
            }
        }
    }
}

}  // namespace

struct JpegDecoder::State {
    jpeg_decompress_struct library{};
    jpeg_error_mgr errors{};
    jpeg_source_mgr source{};
    jpeg_progress_mgr progress{};
    std::jmp_buf jump{};
    std::array<char, JMSG_LENGTH_MAX> message{};
    std::string name;
    std::vector<uint8_t> unwanted;  // one row: where decoded rows go that nobody wants
    int64_t warnings = 0;
    bool opened = false;
    bool end_marker_seen = false;   // near the end of the file
    bool input_ended = false;       // the library asked for bytes beyond the end and got an end marker instead
    bool data_ended_early = false;  // a marker stood where pixels were expected

    static State& of(j_common_ptr library) { return *static_cast<State*>(library->client_data); }
    static State& of(j_decompress_ptr library) { return *static_cast<State*>(library->client_data); }

    static void on_error(j_common_ptr library) {
        State& state = of(library);
        library->err->format_message(library, state.message.data());
        std::longjmp(state.jump, 1);
    }
    static void on_message(j_common_ptr library, int level) {
        if (level >= 0) return;  // a trace
        State& state = of(library);
        ++state.warnings;
        if (library->err->msg_code == JWRN_HIT_MARKER) state.data_ended_early = true;
    }
    static void on_source_call(j_decompress_ptr) {}
    static boolean fill_input(j_decompress_ptr library) {
        State& state = of(library);
        state.input_ended = true;
        state.source.next_input_byte = kEndMarker;
        state.source.bytes_in_buffer = sizeof kEndMarker;
        return TRUE;
    }
    static void skip_input(j_decompress_ptr library, long count) {
        State& state = of(library);
        if (count <= 0) return;
        if (static_cast<size_t>(count) > state.source.bytes_in_buffer) {
            fill_input(library);
            return;
        }
        state.source.next_input_byte += count;
        state.source.bytes_in_buffer -= static_cast<size_t>(count);
    }
    static void on_progress(j_common_ptr library) {
        if (reinterpret_cast<j_decompress_ptr>(library)->input_scan_number > kMaxScans) {
            State& state = of(library);
            std::snprintf(state.message.data(), state.message.size(), "more than %d scans", kMaxScans);
            std::longjmp(state.jump, 1);
        }
    }

    // Runs library calls; an error inside jumps back here and becomes a DataError. `calls` must own nothing: its frame is jumped
    // over.
    template <typename Calls>
    void guarded(Calls calls) {
        if (setjmp(jump) == 0) {
            calls();
            return;
        }
        fail(message.data());
    }
    [[noreturn]] void fail(std::string_view reason) {
        jpeg_abort_decompress(&library);
        opened = false;
        throw DataError(fmt::format("{}: bad JPEG image: {}; replace or remove it", name, reason));
    }
    bool is_progressive_incomplete() const;
    void check_size();
    void read_rows(int row_count, const ImageView& view);
    void pass_over_rows(int row_count);
};

bool JpegDecoder::State::is_progressive_incomplete() const {
    if (!library.progressive_mode || library.coef_bits == nullptr) return false;
    for (int component = 0; component < library.num_components; ++component) {
        for (int coefficient = 0; coefficient < DCTSIZE2; ++coefficient) {
            if (library.coef_bits[component][coefficient] > 0 || library.coef_bits[component][0] < 0) return true;
        }
    }
    return false;
}

void JpegDecoder::State::check_size() {
    const int64_t pixels = int64_t{library.image_width} * int64_t{library.image_height};
    if (pixels > kMaxImagePixels) {
        fail(fmt::format("it declares {}x{} pixels, more than the {} allowed", library.image_width, library.image_height,
                         kMaxImagePixels));
    }
    if (library.num_components != 1 && library.num_components != 3 && library.num_components != 4) {
        fail(fmt::format("{} colour components are not supported", library.num_components));
    }
}

void JpegDecoder::State::read_rows(int row_count, const ImageView& view) {
    std::array<JSAMPROW, kRowsPerCall> rows;
    int done = 0;
    while (done < row_count) {
        const int wanted = std::min(kRowsPerCall, row_count - done);
        for (int index = 0; index < wanted; ++index) rows[static_cast<size_t>(index)] = view.row(done + index);
        done += static_cast<int>(jpeg_read_scanlines(&library, rows.data(), static_cast<JDIMENSION>(wanted)));
    }
}

// Decodes rows that nobody wants: all into the same place, which stays in the cache.
void JpegDecoder::State::pass_over_rows(int row_count) {
    std::array<JSAMPROW, kRowsPerCall> rows;
    rows.fill(unwanted.data());
    for (int left = row_count; left > 0;) {
        left -= static_cast<int>(jpeg_read_scanlines(&library, rows.data(), static_cast<JDIMENSION>(std::min(kRowsPerCall, left))));
    }
}

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {
    State& state = *state_;
    state.library.err = jpeg_std_error(&state.errors);
    state.errors.error_exit = State::on_error;
    state.errors.emit_message = State::on_message;
    state.name = "(start)";
    state.library.client_data = &state;
    state.guarded([&state] { jpeg_create_decompress(&state.library); });
    state.library.mem->max_memory_to_use = kMaxImagePixels * kBytesPerPixel;
    state.source.init_source = State::on_source_call;
    state.source.fill_input_buffer = State::fill_input;
    state.source.skip_input_data = State::skip_input;
    state.source.resync_to_restart = jpeg_resync_to_restart;
    state.source.term_source = State::on_source_call;
    state.library.src = &state.source;
    state.progress.progress_monitor = State::on_progress;
    state.library.progress = &state.progress;
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->library); }

ImageSize JpegDecoder::open(std::span<const std::byte> bytes, std::string_view name) {
    State& state = *state_;
    if (state.opened) jpeg_abort_decompress(&state.library);
    state.name = name;
    state.opened = true;
    state.input_ended = false;
    state.data_ended_early = false;
    state.end_marker_seen = has_end_marker(bytes);
    state.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    state.source.bytes_in_buffer = bytes.size();
    state.guarded([&state] { jpeg_read_header(&state.library, TRUE); });
    state.check_size();
    return {static_cast<int>(state.library.image_width), static_cast<int>(state.library.image_height)};
}

Chroma JpegDecoder::chroma() const {
    const jpeg_decompress_struct& library = state_->library;
    check(state_->opened, "JpegDecoder::chroma needs an opened image");
    if (library.num_components == 1) return Chroma::none;
    const jpeg_component_info* parts = library.comp_info;
    const bool plain = library.num_components == 3 && parts[1].h_samp_factor == 1 && parts[1].v_samp_factor == 1 &&
                       parts[2].h_samp_factor == 1 && parts[2].v_samp_factor == 1;
    if (plain && parts[0].h_samp_factor == 2 && parts[0].v_samp_factor == 2) return Chroma::half;
    if (plain && parts[0].h_samp_factor == 1 && parts[0].v_samp_factor == 1) return Chroma::full;
    return Chroma::other;
}

namespace {

// Where the wanted pixels lie in the image as the library gives it.
CropBox shrunk(const CropBox& box, int shrink, const jpeg_decompress_struct& library) {
    const int right = std::min((box.x + box.width + shrink - 1) / shrink, static_cast<int>(library.output_width));
    const int bottom = std::min((box.y + box.height + shrink - 1) / shrink, static_cast<int>(library.output_height));
    const int x = box.x / shrink, y = box.y / shrink;
    return {x, y, right - x, bottom - y};
}

// Leaves out whole columns of blocks. Smooth upsampling treats the outermost columns as borders of the picture, so some more are
// kept on both sides. Returns the first column that will come.
int leave_out_columns(jpeg_decompress_struct& library, const CropBox& box) {
    constexpr int kMargin = 4;
    JDIMENSION first = static_cast<JDIMENSION>(std::max(box.x - kMargin, 0));
    JDIMENSION width = std::min(static_cast<JDIMENSION>(box.x + box.width + kMargin), library.output_width) - first;
    if (first == 0 && width == library.output_width) return 0;
    jpeg_crop_scanline(&library, &first, &width);
    return static_cast<int>(first);
}

}  // namespace

ImageView JpegDecoder::decode(const DecodeRequest& request, Image& out) {
    State& state = *state_;
    check(state.opened, "JpegDecoder::decode needs an opened image");
    jpeg_decompress_struct& library = state.library;
    const bool grey = library.num_components == 1;
    const bool inks = library.num_components == 4;
    library.out_color_space = grey ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_EXT_RGBX;
    library.scale_num = 1;
    library.scale_denom = static_cast<unsigned>(request.shrink);
    CropBox box;
    int first_column = 0;
    state.guarded([&] {
        jpeg_start_decompress(&library);
        box = shrunk(request.box, request.shrink, library);
        if (!request.everything) first_column = leave_out_columns(library, box);
    });
    const ImageView view = out.reshape(static_cast<int>(library.output_width), box.height, grey ? 1 : 4);
    if (state.unwanted.size() < view.stride_bytes) state.unwanted.resize(view.stride_bytes);
    state.guarded([&] {
        if (request.everything) {
            state.pass_over_rows(box.y);
        } else if (box.y > 0) {
            jpeg_skip_scanlines(&library, static_cast<JDIMENSION>(box.y));
        }
        state.read_rows(box.height, view);
        // To see whether the file is whole, rows below the wanted ones are decoded too.
        const bool to_the_end = request.everything || !state.end_marker_seen;
        if (to_the_end) state.pass_over_rows(static_cast<int>(library.output_height) - box.y - box.height);
    });
    if (state.input_ended && (state.data_ended_early || state.is_progressive_incomplete())) {
        state.fail(fmt::format("the file ends before the image is complete ({} rows)", library.image_height));
    }
    const ImageView wanted = view.crop(box.x - first_column, 0, box.width, box.height);
    if (inks) inks_to_rgbx(wanted, library.saw_Adobe_marker);
    // Nothing of interest follows: abort is cheaper than finish and never fails.
    jpeg_abort_decompress(&library);
    state.opened = false;
    return wanted;
}

int64_t JpegDecoder::warnings() const { return state_->warnings; }

}  // namespace lockstep
