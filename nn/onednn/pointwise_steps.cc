#include "nn/onednn/pointwise_steps.h"

#include <tuple>
#include <utility>

namespace lockstep::onednn {

namespace {

constexpr std::string_view kCode = "own:pointwise";

class ForwardStep final : public Step {
public:
    ForwardStep(const PointwiseShape& shape, ConvolutionOperands operands, std::optional<Value> scratch, ConvolutionFinish finish)
        : shape_(shape), operands_(std::move(operands)), scratch_(std::move(scratch)), finish_(std::move(finish)) {}

    void run(const RunContext& /*context*/) override {
        pointwise_forward(shape_, {.source = floats(operands_.source),
                                   .weights = floats(operands_.weights),
                                   .scale = floats(finish_.scale),
                                   .bias = floats(finish_.scale ? finish_.bias : operands_.bias),
                                   .addend = floats(finish_.addend),
                                   .relu = finish_.relu,
                                   .result = floats(operands_.result),
                                   .scratch = floats(scratch_)});
    }
    std::string_view name() const override { return "convolution"; }

private:
    PointwiseShape shape_;
    ConvolutionOperands operands_;
    std::optional<Value> scratch_;
    ConvolutionFinish finish_;
};

bool has_known_kernel(const ConvOp& conv) {
    return conv.kernel_h == 1 && conv.kernel_w == 1 && conv.pad_h == 0 && conv.pad_w == 0 && conv.stride_h == conv.stride_w &&
           conv.groups == 1;
}

}  // namespace

std::optional<PointwiseShape> pointwise_shape(const ConvOp& conv, const MemoryDesc& source, const MemoryDesc& weights,
                                              const MemoryDesc& result) {
    using Tag = dnnl::memory::format_tag;
    constexpr auto kFloat = dnnl::memory::data_type::f32;
    if (!has_known_kernel(conv)) return std::nullopt;
    const dnnl::memory::dims from = source.dims(), to = result.dims();
    for (const auto& [block, data_tag, weight_tag] :
         {std::tuple{int64_t{8}, Tag::nChw8c, Tag::OIhw8i8o}, std::tuple{int64_t{16}, Tag::nChw16c, Tag::OIhw16i16o}}) {
        if (!pointwise_runs_here(block) || from[1] % block != 0 || to[1] % block != 0 ||
            source != MemoryDesc(from, kFloat, data_tag) || result != MemoryDesc(to, kFloat, data_tag) ||
            weights != MemoryDesc(weights.dims(), kFloat, weight_tag)) {
            continue;
        }
        return PointwiseShape{.images = from[0],
                              .block = block,
                              .in_blocks = from[1] / block,
                              .out_blocks = to[1] / block,
                              .height = from[2],
                              .width = from[3],
                              .stride = conv.stride_h};
    }
    return std::nullopt;
}

void add_pointwise_forward(Compiler& compiler, const PointwiseShape& shape, const ConvolutionOperands& operands,
                           const ConvolutionFinish& finish) {
    const auto scratch = new_scratch(compiler, pointwise_forward_scratch(shape, compiler.library().options.threads));
    add_own_convolution(compiler, std::make_unique<ForwardStep>(shape, operands, scratch, finish), kCode, operands, finish,
                        scratch);
}

}  // namespace lockstep::onednn
