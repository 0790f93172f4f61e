#include "nn/onednn/convolution_chooser.h"

#include <fmt/format.h>

namespace lockstep::onednn {

std::string convolution_key(ConvolutionPass pass, const WinogradShape& shape) {
    return fmt::format("{} {}x{}x{} to {} kernel {} pad {} batch {}", name_of(pass), shape.in_blocks * shape.block, shape.height,
                       shape.width, shape.out_blocks * shape.block, shape.kernel, shape.pad, shape.images);
}

// Transforms cost per channel and products per pair of channels; the weights' transform is shared by all pixels; and tiles that
// stick out of the image are wasted work.
ConvolutionCode usual_code(ConvolutionPass /*pass*/, const WinogradShape& shape) {
    constexpr int64_t kFewestChannels = 16, kFewestPixels = 400;
    const int64_t in = shape.in_blocks * shape.block, out = shape.out_blocks * shape.block;
    const int64_t pixels = shape.out_height() * shape.out_width();
    const int64_t tiled_pixels = (shape.out_height() + 3) / 4 * ((shape.out_width() + 3) / 4) * 16;
    const bool pays =
        in >= kFewestChannels && out >= kFewestChannels && shape.images * pixels >= kFewestPixels && tiled_pixels <= 2 * pixels;
    return pays ? ConvolutionCode::winograd : ConvolutionCode::direct;
}

ConvolutionChooser::ConvolutionChooser(const BackendOptions& options)
    : autotune_(options.autotune), exact_(options.exact_convolution) {}

ConvolutionChooser ConvolutionChooser::always(ConvolutionCode code) {
    ConvolutionChooser chooser{BackendOptions{}};
    chooser.always_ = code;
    return chooser;
}

ConvolutionCode ConvolutionChooser::choose(ConvolutionPass pass, const WinogradShape& shape) {
    const ConvolutionCode code = decide(pass, shape);
    chosen_.codes.insert_or_assign(convolution_key(pass, shape), code);
    return code;
}

ConvolutionCode ConvolutionChooser::decide(ConvolutionPass pass, const WinogradShape& shape) const {
    if (always_) return *always_;
    if (exact_ || autotune_ == Autotune::off) return ConvolutionCode::direct;
    const auto measured = table_.codes.find(convolution_key(pass, shape));
    if (autotune_ == Autotune::measure && measured != table_.codes.end()) return measured->second;
    return usual_code(pass, shape);
}

}  // namespace lockstep::onednn
