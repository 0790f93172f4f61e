#include "nn/graph.h"

#include <utility>

namespace lockstep {

namespace {

ParameterSpec spec_of(const Op& op, const char* suffix, ParameterKind kind, Shape shape, Initializer init = {}) {
    return {.name = op.name + suffix, .kind = kind, .shape = std::move(shape), .init = init};
}

std::vector<ParameterSpec> parameters_of(const Op& op, const ConvOp& conv, const FeatureShape& input) {
    std::vector<ParameterSpec> specs{spec_of(op, ".weight", ParameterKind::weight,
                                             {conv.out_channels, input.channels / conv.groups, conv.kernel_h, conv.kernel_w},
                                             conv.weight_init)};
    if (conv.bias) specs.push_back(spec_of(op, ".bias", ParameterKind::bias, {conv.out_channels}, conv.bias_init));
    return specs;
}

std::vector<ParameterSpec> parameters_of(const Op& op, const DeconvOp& deconv, const FeatureShape& input) {
    std::vector<ParameterSpec> specs{
        spec_of(op, ".weight", ParameterKind::weight,
                {input.channels, deconv.out_channels / deconv.groups, deconv.kernel_h, deconv.kernel_w}, deconv.weight_init)};
    if (deconv.bias) specs.push_back(spec_of(op, ".bias", ParameterKind::bias, {deconv.out_channels}, deconv.bias_init));
    return specs;
}

std::vector<ParameterSpec> parameters_of(const Op& op, const FullyConnectedOp& fc, const FeatureShape& input) {
    std::vector<ParameterSpec> specs{
        spec_of(op, ".weight", ParameterKind::weight, {fc.out_features, input.count()}, fc.weight_init)};
    if (fc.bias) specs.push_back(spec_of(op, ".bias", ParameterKind::bias, {fc.out_features}, fc.bias_init));
    return specs;
}

std::vector<ParameterSpec> parameters_of(const Op& op, const BatchNormOp& norm, const FeatureShape& input) {
    std::vector<ParameterSpec> specs;
    if (norm.affine) {
        specs.push_back(spec_of(op, ".weight", ParameterKind::bn_scale, {input.channels}, constant_init(norm.scale_init)));
        specs.push_back(spec_of(op, ".bias", ParameterKind::bn_shift, {input.channels}));
    }
    specs.push_back(spec_of(op, ".running_mean", ParameterKind::bn_mean, {input.channels}));
    specs.push_back(spec_of(op, ".running_var", ParameterKind::bn_variance, {input.channels}, constant_init(1.0F)));
    for (ParameterSpec& spec : specs) spec.keep = norm.keep;
    return specs;
}

std::vector<ParameterSpec> parameters_of(const Graph& graph, const std::vector<FeatureShape>& shapes, int index) {
    const Op& op = graph.ops.at(static_cast<size_t>(index));
    if (op.inputs.empty()) return {};
    const FeatureShape& input = shapes.at(static_cast<size_t>(op.inputs.front()));
    if (const auto* conv = std::get_if<ConvOp>(&op.attributes)) return parameters_of(op, *conv, input);
    if (const auto* deconv = std::get_if<DeconvOp>(&op.attributes)) return parameters_of(op, *deconv, input);
    if (const auto* fc = std::get_if<FullyConnectedOp>(&op.attributes)) return parameters_of(op, *fc, input);
    if (const auto* norm = std::get_if<BatchNormOp>(&op.attributes)) return parameters_of(op, *norm, input);
    return {};
}

}  // namespace

int Graph::add(std::string op_name, OpAttributes attributes, std::vector<int> inputs) {
    ops.push_back({std::move(op_name), std::move(attributes), std::move(inputs)});
    return static_cast<int>(ops.size()) - 1;
}

int64_t class_count(const Graph& graph) {
    return infer_shapes(graph).at(static_cast<size_t>(graph.ops.back().inputs.front())).channels;
}

std::vector<bool> ops_of_last_loss(const Graph& graph) {
    std::vector<bool> needed(graph.ops.size(), false);
    needed.back() = true;
    for (size_t index = graph.ops.size(); index-- > 0;) {
        if (!needed[index]) continue;
        for (const int input : graph.ops[index].inputs) needed[static_cast<size_t>(input)] = true;
    }
    return needed;
}

std::vector<ParameterSpec> op_parameters(const Graph& graph, int op) { return parameters_of(graph, infer_shapes(graph), op); }

std::vector<ParameterOwner> backward_order(const Graph& graph) {
    const std::vector<FeatureShape> shapes = infer_shapes(graph);
    std::vector<ParameterOwner> owners;
    for (int op = static_cast<int>(graph.ops.size()) - 1; op >= 0; --op) {
        for (ParameterSpec& spec : parameters_of(graph, shapes, op)) owners.push_back({op, std::move(spec)});
    }
    return owners;
}

std::vector<int64_t> forward_macs_by_op(const Graph& graph) {
    const std::vector<FeatureShape> shapes = infer_shapes(graph);
    std::vector<int64_t> macs(graph.ops.size(), 0);
    for (size_t index = 1; index < graph.ops.size(); ++index) {
        const Op& op = graph.ops[index];
        const FeatureShape& input = shapes[static_cast<size_t>(op.inputs.front())];
        if (const auto* conv = std::get_if<ConvOp>(&op.attributes)) {
            macs[index] = shapes[index].count() * (input.channels / conv->groups) * conv->kernel_h * conv->kernel_w;
        } else if (const auto* deconv = std::get_if<DeconvOp>(&op.attributes)) {
            macs[index] = input.count() * (deconv->out_channels / deconv->groups) * deconv->kernel_h * deconv->kernel_w;
        } else if (const auto* fc = std::get_if<FullyConnectedOp>(&op.attributes)) {
            macs[index] = input.count() * fc->out_features;
        }
    }
    return macs;
}

int64_t forward_macs_per_image(const Graph& graph) {
    const std::vector<int64_t> macs = forward_macs_by_op(graph);
    const std::vector<bool> needed = ops_of_last_loss(graph);
    int64_t sum = 0;
    for (size_t index = 0; index < macs.size(); ++index) sum += needed[index] ? macs[index] : 0;
    return sum;
}

}  // namespace lockstep
