#include "nn/onednn/convolution_chooser.h"

#include <fmt/format.h>

namespace lockstep::onednn {

// Transforms cost per channel and products per pair of channels; the weights' transform is shared by all pixels; and tiles that
// stick out of the image are wasted work.
ConvolutionChoice choice_of(ConvolutionPass pass, const WinogradShape& shape, bool keeps_weights) {
    constexpr int64_t kFewestChannels = 16;
    const int64_t fewest_pixels = keeps_weights ? 100 : 400;
    const int64_t in = shape.in_blocks * shape.block, out = shape.out_blocks * shape.block;
    const int64_t pixels = shape.out_height() * shape.out_width();
    const int64_t tiled_pixels = (shape.out_height() + 3) / 4 * ((shape.out_width() + 3) / 4) * 16;
    return {.key = fmt::format("{}{} {}x{}x{} to {} kernel {} pad {} batch {}", name_of(pass),
                               keeps_weights ? " with kept weights" : "", in, shape.height, shape.width, out, shape.kernel,
                               shape.pad, shape.images),
            .own = ConvolutionCode::winograd,
            .own_pays = in >= kFewestChannels && out >= kFewestChannels && shape.images * pixels >= fewest_pixels &&
                        tiled_pixels <= 2 * pixels};
}

// The library's sums are as fast. What it does with complete ones for a tail costs it as much as many products, and nothing here.
ConvolutionChoice choice_of(ConvolutionPass pass, const PointwiseShape& shape, bool has_tail) {
    return {.key = fmt::format("{}{} {}x{}x{} to {} kernel 1 stride {} batch {}", name_of(pass), has_tail ? " with tail" : "",
                               shape.in_blocks * shape.block, shape.height, shape.width, shape.out_blocks * shape.block,
                               shape.stride, shape.images),
            .own = ConvolutionCode::pointwise,
            .own_pays = has_tail && shape.block == 8};
}

ConvolutionChooser::ConvolutionChooser(const BackendOptions& options)
    : autotune_(options.autotune), exact_(options.exact_convolution) {}

ConvolutionChooser ConvolutionChooser::always_library() {
    ConvolutionChooser chooser{BackendOptions{}};
    chooser.always_own_ = false;
    return chooser;
}

ConvolutionChooser ConvolutionChooser::always_own() {
    ConvolutionChooser chooser{BackendOptions{}};
    chooser.always_own_ = true;
    return chooser;
}

ConvolutionCode ConvolutionChooser::choose(const ConvolutionChoice& choice) {
    const ConvolutionCode code = decide(choice);
    chosen_.codes.insert_or_assign(choice.key, code);
    return code;
}

ConvolutionCode ConvolutionChooser::decide(const ConvolutionChoice& choice) const {
    const bool forbidden = exact_ && choice.own == ConvolutionCode::winograd;
    if (forbidden || autotune_ == Autotune::off) return ConvolutionCode::direct;
    if (always_own_) return *always_own_ ? choice.own : ConvolutionCode::direct;
    const auto measured = table_.codes.find(choice.key);
    if (autotune_ == Autotune::measure && measured != table_.codes.end()) {
        return measured->second == choice.own ? choice.own : ConvolutionCode::direct;
    }
    return choice.own_pays ? choice.own : ConvolutionCode::direct;
}

}  // namespace lockstep::onednn
