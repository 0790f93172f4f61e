#include "nn/graph.h"

#include <numeric>
#include <utility>

namespace lockstep {

namespace {

ParameterSpec spec_of(const Op& op, const char* suffix, ParameterKind kind, Shape shape, Initializer init = {}) {
    return {.name = op.name + suffix, .kind = kind, .shape = std::move(shape), .init = init};
}

Initializer constant(float value) { return {.kind = Initializer::Kind::constant, .value = value}; }

std::vector<ParameterSpec> parameters_of(const Op& op, const ConvOp& conv, const FeatureShape& input) {
    std::vector<ParameterSpec> specs{spec_of(op, ".weight", ParameterKind::weight,
                                             {conv.out_channels, input.channels / conv.groups, conv.kernel_h, conv.kernel_w},
                                             conv.weight_init)};
    if (conv.bias) specs.push_back(spec_of(op, ".bias", ParameterKind::bias, {conv.out_channels}));
    return specs;
}

std::vector<ParameterSpec> parameters_of(const Op& op, const FullyConnectedOp& fc, const FeatureShape& input) {
    std::vector<ParameterSpec> specs{
        spec_of(op, ".weight", ParameterKind::weight, {fc.out_features, input.count()}, fc.weight_init)};
    if (fc.bias) specs.push_back(spec_of(op, ".bias", ParameterKind::bias, {fc.out_features}, fc.bias_init));
    return specs;
}

std::vector<ParameterSpec> parameters_of(const Op& op, const BatchNormOp& norm, const FeatureShape& input) {
    return {spec_of(op, ".weight", ParameterKind::bn_scale, {input.channels}, constant(norm.scale_init)),
            spec_of(op, ".bias", ParameterKind::bn_shift, {input.channels}),
            spec_of(op, ".running_mean", ParameterKind::bn_mean, {input.channels}),
            spec_of(op, ".running_var", ParameterKind::bn_variance, {input.channels}, constant(1.0F))};
}

std::vector<ParameterSpec> parameters_of(const Graph& graph, const std::vector<FeatureShape>& shapes, int index) {
    const Op& op = graph.ops.at(static_cast<size_t>(index));
    if (op.inputs.empty()) return {};
    const FeatureShape& input = shapes.at(static_cast<size_t>(op.inputs.front()));
    if (const auto* conv = std::get_if<ConvOp>(&op.attributes)) return parameters_of(op, *conv, input);
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
        } else if (const auto* fc = std::get_if<FullyConnectedOp>(&op.attributes)) {
            macs[index] = input.count() * fc->out_features;
        }
    }
    return macs;
}

int64_t forward_macs_per_image(const Graph& graph) {
    const std::vector<int64_t> macs = forward_macs_by_op(graph);
    return std::accumulate(macs.begin(), macs.end(), int64_t{0});
}

}  // namespace lockstep
