#include "nn/onednn/inference_tail.h"

#include <cmath>
#include <utility>

#include "nn/onednn/steps.h"

namespace lockstep::onednn {

namespace {

// (x - mean) scale / sqrt(variance + epsilon) + shift = x factor + term, channel by channel.
class NormFactorsStep final : public Step {
public:
    struct Parameters {
        std::optional<Value> scale, shift;  // where affine
        Value mean, variance;
    };
    NormFactorsStep(Parameters parameters, float epsilon, Value factors, Value terms)
        : parameters_(std::move(parameters)),
          epsilon_(epsilon),
          factors_(std::move(factors)),
          terms_(std::move(terms)),
          channels_(parameters_.mean.desc.dims()[0]) {}

    void run(const RunContext& /*context*/) override {
        const float* const scale = parameters_.scale ? floats(*parameters_.scale) : nullptr;
        const float* const shift = parameters_.shift ? floats(*parameters_.shift) : nullptr;
        const float* const mean = floats(parameters_.mean);
        const float* const variance = floats(parameters_.variance);
        float* const factors = floats(factors_);
        float* const terms = floats(terms_);
        for (int64_t channel = 0; channel < channels_; ++channel) {
            const double factor =
                (scale == nullptr ? 1.0 : scale[channel]) / std::sqrt(static_cast<double>(variance[channel]) + epsilon_);
            factors[channel] = static_cast<float>(factor);
            terms[channel] = static_cast<float>((shift == nullptr ? 0.0 : shift[channel]) - mean[channel] * factor);
        }
    }
    std::string_view name() const override { return "batch norm factors"; }

private:
    static float* floats(const Value& value) { return static_cast<float*>(value.memory.get_data_handle()); }

    Parameters parameters_;
    float epsilon_;
    Value factors_, terms_;
    int64_t channels_;
};

MemoryDesc per_channel(int64_t channels) { return plain_desc({1, channels, 1, 1}, dnnl::memory::data_type::f32); }

}  // namespace

// The shortcut is an operand of its own: as a sum onto what the result's memory holds it would have to come first.
dnnl::post_ops post_ops_of(const InferenceTail& tail, const MemoryDesc& result) {
    const MemoryDesc channels = per_channel(result.dims()[1]);
    dnnl::post_ops post_ops;
    post_ops.append_binary(dnnl::algorithm::binary_mul, channels);
    post_ops.append_binary(dnnl::algorithm::binary_add, channels);
    if (tail.addend) post_ops.append_binary(dnnl::algorithm::binary_add, result);
    if (tail.relu) post_ops.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    return post_ops;
}

TailOperands tail_operands(Compiler& compiler, const InferenceTail& tail, const MemoryDesc& result) {
    const auto& norm = std::get<BatchNormOp>(compiler.op(tail.norm).attributes);
    const int64_t channels = result.dims()[1];
    size_t entry = compiler.first_entry(tail.norm);
    NormFactorsStep::Parameters parameters;
    if (norm.affine) {
        parameters.scale = compiler.parameter_value(entry++, {channels});
        parameters.shift = compiler.parameter_value(entry++, {channels});
    }
    parameters.mean = compiler.parameter_value(entry, {channels});
    parameters.variance = compiler.parameter_value(entry + 1, {channels});
    TailOperands operands{.factors = compiler.new_value(per_channel(channels), "batch norm factors"),
                          .terms = compiler.new_value(per_channel(channels), "batch norm terms")};
    compiler.add_step(std::make_unique<NormFactorsStep>(parameters, norm.epsilon, operands.factors, operands.terms),
                      {&operands.factors, &operands.terms});
    if (tail.addend) operands.addend = compiler.as_layout(compiler.output(*tail.addend), result);
    return operands;
}

Arguments TailOperands::arguments() const {
    const auto operand = [](int position) { return DNNL_ARG_ATTR_MULTIPLE_POST_OP(position) | DNNL_ARG_SRC_1; };
    Arguments all{{operand(0), factors}, {operand(1), terms}};
    if (addend) all.emplace_back(operand(2), *addend);
    return all;
}

}  // namespace lockstep::onednn
