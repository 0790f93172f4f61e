#include "models/graph_builder.h"

#include <cmath>
#include <utility>

namespace lockstep {

GraphBuilder::GraphBuilder(const ModelOptions& options, const Norms& norms)
    : graph_{.name = options.arch},
      bn_epsilon_(options.bn_epsilon.value_or(norms.epsilon)),
      bn_keep_(options.bn_keep.value_or(norms.keep)),
      label_smoothing_(options.label_smoothing),
      dropout_(options.dropout) {
    append("input", InputOp{.channels = options.channels, .height = options.image_size, .width = options.image_size}, {},
           options.channels);
}

int GraphBuilder::append(const std::string& name, OpAttributes attributes, std::vector<int> inputs, int64_t channels) {
    channels_.push_back(channels);
    return graph_.add(name, std::move(attributes), std::move(inputs));
}

int64_t GraphBuilder::channels(int op) const { return channels_.at(static_cast<size_t>(op)); }

FeatureShape GraphBuilder::shape(int op) const { return infer_shapes(graph_).at(static_cast<size_t>(op)); }

int GraphBuilder::convolution(const std::string& name, int from, const ConvOp& conv) {
    return append(name, conv, {from}, conv.out_channels);
}

ConvOp GraphBuilder::Conv::op() const {
    return {.out_channels = out_channels,
            .kernel_h = kernel,
            .kernel_w = kernel,
            .stride_h = stride,
            .stride_w = stride,
            .pad_h = pad,
            .pad_w = pad,
            .groups = groups,
            .bias = bias};
}

int GraphBuilder::conv(const std::string& name, int from, const Conv& conv) {
    const auto fan_out = static_cast<double>(conv.kernel * conv.kernel * conv.out_channels);
    ConvOp op = conv.op();
    op.weight_init = {.kind = Initializer::Kind::normal, .value = static_cast<float>(std::sqrt(2.0 / fan_out))};
    return convolution(name, from, op);
}

int GraphBuilder::batch_norm(const std::string& name, int from, float scale_init) {
    return append(name, BatchNormOp{.epsilon = bn_epsilon_, .scale_init = scale_init, .keep = bn_keep_}, {from}, channels(from));
}

int GraphBuilder::normalisation(const std::string& name, int from) {
    return append(name, BatchNormOp{.epsilon = bn_epsilon_, .affine = false, .keep = bn_keep_}, {from}, channels(from));
}

int GraphBuilder::lrn(const std::string& name, int from, const LrnOp& lrn) { return append(name, lrn, {from}, channels(from)); }

int GraphBuilder::sigmoid(const std::string& name, int from) { return append(name, SigmoidOp{}, {from}, channels(from)); }

int GraphBuilder::pool(const std::string& name, int from, const PoolOp& pool) { return append(name, pool, {from}, channels(from)); }

int GraphBuilder::concat(const std::string& name, const std::vector<int>& from) {
    int64_t total = 0;
    for (const int input : from) total += channels(input);
    return append(name, ConcatOp{}, from, total);
}

int GraphBuilder::own_dropout(const std::string& name, int from, float own_probability) {
    return dropout(name, from, dropout_ > 0.0F ? dropout_ : own_probability);
}

int GraphBuilder::relu(const std::string& name, int from) { return append(name, ReluOp{}, {from}, channels(from)); }

int GraphBuilder::max_pool(const std::string& name, int from, int64_t kernel, int64_t stride, int64_t pad) {
    return append(name,
                  PoolOp{.kind = PoolOp::Kind::max,
                         .kernel_h = kernel,
                         .kernel_w = kernel,
                         .stride_h = stride,
                         .stride_w = stride,
                         .pad_h = pad,
                         .pad_w = pad},
                  {from}, channels(from));
}

int GraphBuilder::global_average_pool(const std::string& name, int from) {
    return append(name, GlobalAveragePoolOp{}, {from}, channels(from));
}

int GraphBuilder::add(const std::string& name, int left, int right) { return append(name, AddOp{}, {left, right}, channels(left)); }

int GraphBuilder::dropout(const std::string& name, int from, float probability) {
    return append(name, DropoutOp{.probability = probability}, {from}, channels(from));
}

int GraphBuilder::pad_shortcut(const std::string& name, int from, int64_t out_channels, int64_t stride) {
    return append(name, PadShortcutOp{.out_channels = out_channels, .stride = stride}, {from}, out_channels);
}

int GraphBuilder::fully_connected(const std::string& name, int from, int64_t out_features, float weight_stddev) {
    return append(
        name,
        FullyConnectedOp{.out_features = out_features, .weight_init = {.kind = Initializer::Kind::normal, .value = weight_stddev}},
        {from}, out_features);
}

int GraphBuilder::fully_connected(const std::string& name, int from, const FullyConnectedOp& layer) {
    return append(name, layer, {from}, layer.out_features);
}

void GraphBuilder::auxiliary_loss(const std::string& name, int logits, float weight) {
    append(name, SoftmaxCrossEntropyOp{.label_smoothing = label_smoothing_, .weight = weight}, {logits}, 1);
}

Graph GraphBuilder::finish(int logits) {
    append("loss", SoftmaxCrossEntropyOp{.label_smoothing = label_smoothing_}, {logits}, 1);
    validate(graph_);
    return std::move(graph_);
}

}  // namespace lockstep
