#include "nn/onednn/winograd_steps.h"

#include <utility>

namespace lockstep::onednn {

namespace {

constexpr std::string_view kCode = "own:winograd";

class ForwardStep final : public Step {
public:
    ForwardStep(const WinogradShape& shape, ConvolutionOperands operands, Value scratch, ConvolutionFinish finish, bool keep)
        : shape_(shape), operands_(std::move(operands)), scratch_(std::move(scratch)), finish_(std::move(finish)) {
        if (keep) kept_ = std::make_unique<WinogradKept>(shape);
    }

    void run(const RunContext& /*context*/) override {
        winograd_forward(shape_, {.source = floats(operands_.source),
                                  .weights = floats(operands_.weights),
                                  .scale = floats(finish_.scale),
                                  .bias = floats(finish_.scale ? finish_.bias : operands_.bias),
                                  .addend = floats(finish_.addend),
                                  .relu = finish_.relu,
                                  .result = floats(operands_.result),
                                  .scratch = floats(scratch_),
                                  .kept = kept_.get()});
    }
    std::string_view name() const override { return "convolution"; }
    size_t kept_bytes() const override { return kept_ ? kept_->byte_count() : 0; }

private:
    WinogradShape shape_;
    ConvolutionOperands operands_;
    Value scratch_;
    ConvolutionFinish finish_;
    std::unique_ptr<WinogradKept> kept_;  // in evaluation with few pixels
};

class SourceGradientStep final : public Step {
public:
    SourceGradientStep(const WinogradShape& shape, ConvolutionOperands operands, Value scratch)
        : shape_(shape), operands_(std::move(operands)), scratch_(std::move(scratch)) {}

    void run(const RunContext& /*context*/) override {
        winograd_source_gradient(shape_, {.result_gradient = floats(operands_.result),
                                          .weights = floats(operands_.weights),
                                          .source_gradient = floats(operands_.source),
                                          .scratch = floats(scratch_)});
    }
    std::string_view name() const override { return "convolution gradient"; }

private:
    WinogradShape shape_;
    ConvolutionOperands operands_;
    Value scratch_;
};

class WeightGradientStep final : public Step {
public:
    WeightGradientStep(const WinogradShape& shape, ConvolutionOperands operands, Value scratch)
        : shape_(shape), operands_(std::move(operands)), scratch_(std::move(scratch)) {}

    void run(const RunContext& context) override {
        winograd_weight_gradient(shape_, {.source = floats(operands_.source),
                                          .result_gradient = floats(operands_.result),
                                          .weight_gradient = floats(operands_.weights),
                                          .bias_gradient = floats(operands_.bias),
                                          .accumulate = context.accumulate,
                                          .scratch = floats(scratch_)});
    }
    std::string_view name() const override { return "convolution weight gradient"; }

private:
    WinogradShape shape_;
    ConvolutionOperands operands_;
    Value scratch_;
};

bool has_known_kernel(const ConvOp& conv) {
    return (conv.kernel_h == 3 || conv.kernel_h == 5) && conv.kernel_w == conv.kernel_h && conv.stride_h == 1 &&
           conv.stride_w == 1 && conv.dilation_h == 1 && conv.dilation_w == 1 && conv.groups == 1 && conv.pad_h == conv.pad_w &&
           conv.pad_h < conv.kernel_h;
}

}  // namespace

std::optional<WinogradShape> winograd_shape(const ConvOp& conv, const MemoryDesc& source, const MemoryDesc& weights,
                                            const MemoryDesc& result) {
    using Tag = dnnl::memory::format_tag;
    constexpr auto kFloat = dnnl::memory::data_type::f32;
    if (!has_known_kernel(conv)) return std::nullopt;
    for (const auto& [block, data_tag, weight_tag] :
         {std::tuple{int64_t{8}, Tag::nChw8c, Tag::OIhw8i8o}, std::tuple{int64_t{16}, Tag::nChw16c, Tag::OIhw16i16o}}) {
        if (!winograd_runs_here(block) || source != MemoryDesc(source.dims(), kFloat, data_tag) ||
            result != MemoryDesc(result.dims(), kFloat, data_tag) || weights != MemoryDesc(weights.dims(), kFloat, weight_tag)) {
            continue;
        }
        const dnnl::memory::dims dims = source.dims();
        if (conv.bias && conv.out_channels % block != 0) return std::nullopt;  // the bias has no values for the block's rest
        return WinogradShape{.images = dims[0],
                             .block = block,
                             .in_blocks = (dims[1] + block - 1) / block,
                             .out_blocks = (result.dims()[1] + block - 1) / block,
                             .height = dims[2],
                             .width = dims[3],
                             .kernel = conv.kernel_h,
                             .pad = conv.pad_h};
    }
    return std::nullopt;
}

bool keeps_weights(const Compiler& compiler, const WinogradShape& shape) {
    return !compiler.training() && winograd_should_keep(shape);
}

void add_winograd_forward(Compiler& compiler, const WinogradShape& shape, const ConvolutionOperands& operands,
                          const ConvolutionFinish& finish) {
    const bool keep = keeps_weights(compiler, shape);
    const auto scratch = new_scratch(compiler, winograd_forward_scratch(shape, compiler.library().options.threads, keep));
    add_own_convolution(compiler, std::make_unique<ForwardStep>(shape, operands, *scratch, finish, keep), kCode, operands, finish,
                        scratch);
}

void add_winograd_source_gradient(Compiler& compiler, const WinogradShape& shape, const ConvolutionOperands& operands) {
    const auto scratch = new_scratch(compiler, winograd_source_gradient_scratch(shape, compiler.library().options.threads));
    add_own_convolution(compiler, std::make_unique<SourceGradientStep>(shape, operands, *scratch), kCode, operands, {}, scratch);
}

void add_winograd_weight_gradient(Compiler& compiler, const WinogradShape& shape, const ConvolutionOperands& operands) {
    const auto scratch = new_scratch(compiler, winograd_weight_gradient_scratch(shape, compiler.library().options.threads));
    add_own_convolution(compiler, std::make_unique<WeightGradientStep>(shape, operands, *scratch), kCode, operands, {}, scratch);
}

}  // namespace lockstep::onednn
