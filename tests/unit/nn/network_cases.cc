#include "tests/unit/nn/network_cases.h"

#include <functional>

namespace lockstep::testing_support {

namespace {

using Middle = std::function<int(Graph&, int from)>;

struct Frame {
    InputOp input{.channels = 3, .height = 6, .width = 7};
    int64_t channels = 4;  // into the middle
    float label_smoothing = 0.0F;
    int batch = 2;
    bool bends = false;
};

// Few elements, so that few of them lie near a bend.
Frame bending_frame() { return {.input = {.channels = 3, .height = 4, .width = 5}, .channels = 3, .bends = true}; }

// Input -> 3x3 convolution -> middle -> fully connected -> loss. The gradients of the first convolution prove the middle's input
// gradient; the fully connected layer gives each of its outputs another gradient.
NetworkCase around(const std::string& name, const Frame& frame, const Middle& middle) {
    Graph graph{.name = name};
    graph.add("input", frame.input, {});
    const int before = graph.add(
        "before", ConvOp{.out_channels = frame.channels, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1, .bias = true}, {0});
    const int after = graph.add("fc", FullyConnectedOp{.out_features = 5}, {middle(graph, before)});
    graph.add("loss", SoftmaxCrossEntropyOp{.label_smoothing = frame.label_smoothing}, {after});
    return {name, graph, frame.batch, frame.bends};
}

Middle single(const OpAttributes& attributes) {
    return [attributes](Graph& graph, int from) { return graph.add("middle", attributes, {from}); };
}

NetworkCase one_op(const std::string& name, const OpAttributes& attributes, const Frame& frame = {}) {
    return around(name, frame, single(attributes));
}

void add_convolutions(std::vector<NetworkCase>& cases) {
    cases.push_back(one_op("conv_3x3", ConvOp{.out_channels = 5, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}));
    cases.push_back(one_op("conv_bias", ConvOp{.out_channels = 5, .kernel_h = 3, .kernel_w = 3, .bias = true}));
    cases.push_back(one_op("conv_1x1", ConvOp{.out_channels = 17, .bias = true}));
    cases.push_back(one_op("conv_1x1_stride", ConvOp{.out_channels = 5, .stride_h = 2, .stride_w = 2}));
    cases.push_back(
        one_op("conv_stride_pad",
               ConvOp{.out_channels = 5, .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}));
    cases.push_back(
        one_op("conv_uneven_axes",
               ConvOp{.out_channels = 3, .kernel_h = 3, .kernel_w = 2, .stride_h = 1, .stride_w = 3, .pad_h = 0, .pad_w = 1}));
    cases.push_back(
        one_op("conv_dilation",
               ConvOp{.out_channels = 3, .kernel_h = 3, .kernel_w = 3, .pad_h = 2, .pad_w = 1, .dilation_h = 2, .dilation_w = 2}));
    cases.push_back(one_op("conv_dilation_stride", ConvOp{.out_channels = 3,
                                                          .kernel_h = 2,
                                                          .kernel_w = 2,
                                                          .stride_h = 2,
                                                          .stride_w = 2,
                                                          .pad_h = 1,
                                                          .pad_w = 1,
                                                          .dilation_h = 3,
                                                          .dilation_w = 3}));
    cases.push_back(one_op(
        "conv_groups", ConvOp{.out_channels = 6, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1, .groups = 2, .bias = true}));
    cases.push_back(
        one_op("conv_depthwise", ConvOp{.out_channels = 4, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1, .groups = 4}));
    cases.push_back(one_op(
        "conv_depthwise_multiplied",
        ConvOp{
            .out_channels = 32, .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1, .groups = 16},
        {.channels = 16}));
    cases.push_back(
        one_op("conv_7x7_stride",
               ConvOp{.out_channels = 5, .kernel_h = 7, .kernel_w = 7, .stride_h = 2, .stride_w = 2, .pad_h = 3, .pad_w = 3}));
    cases.push_back(one_op("conv_16_channels", ConvOp{.out_channels = 16, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1},
                           {.channels = 16}));
    cases.push_back(one_op("conv_wide_rows",
                           ConvOp{.out_channels = 2, .kernel_h = 3, .kernel_w = 3, .stride_w = 2, .pad_h = 1, .pad_w = 1},
                           {.input = {.channels = 1, .height = 2, .width = 150}, .channels = 2}));
    cases.push_back(
        one_op("conv_batch_of_one", ConvOp{.out_channels = 5, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}, {.batch = 1}));
}

void add_deconvolutions(std::vector<NetworkCase>& cases) {
    cases.push_back(one_op("deconv_bias", DeconvOp{.out_channels = 5, .kernel_h = 3, .kernel_w = 3, .bias = true}));
    const DeconvOp doubling{.out_channels = 3,
                            .kernel_h = 3,
                            .kernel_w = 3,
                            .stride_h = 2,
                            .stride_w = 2,
                            .pad_h = 1,
                            .pad_w = 1,
                            .output_pad_h = 1,
                            .output_pad_w = 1};
    cases.push_back(one_op("deconv_output_pad", doubling));
    DeconvOp grouped = doubling;
    grouped.out_channels = 6;
    grouped.groups = 2;
    grouped.bias = true;
    cases.push_back(one_op("deconv_groups", grouped));
    cases.push_back(one_op(
        "deconv_uneven_axes",
        DeconvOp{.out_channels = 2, .kernel_h = 2, .kernel_w = 4, .stride_w = 3, .pad_h = 1, .pad_w = 2, .output_pad_w = 2}));
    cases.push_back(
        one_op("deconv_16_channels",
               DeconvOp{.out_channels = 8, .kernel_h = 4, .kernel_w = 4, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1},
               {.channels = 16}));
}

void add_normalisation_and_elementwise(std::vector<NetworkCase>& cases) {
    cases.push_back(one_op("batch_norm", BatchNormOp{}, {.batch = 3}));
    cases.push_back(one_op("batch_norm_large_epsilon", BatchNormOp{.epsilon = 0.5F}, {.channels = 17}));
    cases.push_back(around("batch_norm_relu", bending_frame(), [](Graph& graph, int from) {
        return graph.add("relu", ReluOp{}, {graph.add("bn", BatchNormOp{}, {from})});
    }));
    cases.push_back(one_op("batch_norm_without_scale", BatchNormOp{.affine = false}, {.channels = 8, .batch = 3}));
    cases.push_back(around("batch_norm_without_scale_relu", bending_frame(), [](Graph& graph, int from) {
        return graph.add("relu", ReluOp{}, {graph.add("bn", BatchNormOp{.affine = false}, {from})});
    }));
    cases.push_back(around("batch_norm_sigmoid", {.channels = 8, .batch = 3}, [](Graph& graph, int from) {
        return graph.add("sigmoid", SigmoidOp{}, {graph.add("bn", BatchNormOp{}, {from})});
    }));
    cases.push_back(around("batch_norm_without_scale_sigmoid", {.channels = 16, .batch = 3}, [](Graph& graph, int from) {
        return graph.add("sigmoid", SigmoidOp{}, {graph.add("bn", BatchNormOp{.affine = false}, {from})});
    }));
    cases.push_back(around("sigmoid_of_a_batch_norm_read_twice", {.channels = 8, .batch = 3}, [](Graph& graph, int from) {
        const int bn = graph.add("bn", BatchNormOp{}, {from});
        return graph.add("add", AddOp{}, {graph.add("sigmoid", SigmoidOp{}, {bn}), bn});
    }));
    cases.push_back(one_op("lrn", LrnOp{.size = 5, .alpha = 2.0F}, {.channels = 8}));
    cases.push_back(one_op("lrn_odd_channels", LrnOp{.size = 3, .alpha = 0.5F, .beta = 0.6F, .k = 2.0F}, {.channels = 5}));
    cases.push_back(one_op("lrn_wider_than_the_channels", LrnOp{.size = 7, .alpha = 1.0F}, {.channels = 3}));
    cases.push_back(one_op("relu", ReluOp{}, bending_frame()));
    cases.push_back(one_op("leaky_relu", LeakyReluOp{.slope = 0.2F}, bending_frame()));
    cases.push_back(one_op("sigmoid", SigmoidOp{}));
    cases.push_back(one_op("dropout", DropoutOp{.probability = 0.4F}));
    cases.push_back(one_op("label_smoothing", SigmoidOp{}, {.label_smoothing = 0.1F}));
}

void add_pools(std::vector<NetworkCase>& cases) {
    const PoolOp overlapping{.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    for (const PoolOp::Kind kind : {PoolOp::Kind::max, PoolOp::Kind::average}) {
        const std::string prefix = kind == PoolOp::Kind::max ? "max_pool" : "average_pool";
        const Frame frame = kind == PoolOp::Kind::max ? bending_frame() : Frame{};
        PoolOp pool{.kind = kind};
        cases.push_back(one_op(prefix, pool, frame));
        pool = overlapping;
        pool.kind = kind;
        cases.push_back(one_op(prefix + "_pad", pool, frame));
        pool.ceil_mode = true;
        cases.push_back(one_op(prefix + "_pad_ceil", pool, frame));
        Frame blocks = frame;  // channels in blocks, the last one padded
        blocks.channels = 12;
        cases.push_back(one_op(prefix + "_blocks", pool, blocks));
        pool.pad_h = pool.pad_w = 0;
        pool.stride_w = 3;
        cases.push_back(one_op(prefix + "_ceil_uneven", pool, frame));
    }
    PoolOp counting = overlapping;
    counting.kind = PoolOp::Kind::average;
    counting.count_padding = true;
    cases.push_back(one_op("average_pool_count_padding", counting));
    cases.push_back(one_op("average_pool_count_padding_blocks", counting, {.channels = 16}));
    counting.ceil_mode = true;
    cases.push_back(one_op("average_pool_count_padding_ceil", counting));
    cases.push_back(one_op("global_average_pool", GlobalAveragePoolOp{}, {.channels = 17}));
}

void add_joins(std::vector<NetworkCase>& cases) {
    const ConvOp conv{.out_channels = 4, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
    ConvOp conv_of_3 = conv;
    conv_of_3.out_channels = 3;
    cases.push_back(around("residual_add", {}, [conv](Graph& graph, int from) {
        return graph.add("add", AddOp{}, {graph.add("conv", conv, {from}), from});
    }));
    cases.push_back(around("residual_batch_norm_add_relu", bending_frame(), [conv_of_3](Graph& graph, int from) {
        const int bn = graph.add("bn", BatchNormOp{}, {graph.add("conv", conv_of_3, {from})});
        return graph.add("relu", ReluOp{}, {graph.add("add", AddOp{}, {bn, from})});
    }));
    cases.push_back(around("residual_with_shortcut_convolution", {.channels = 8}, [](Graph& graph, int from) {
        const auto norm_of = [&](const std::string& name) {
            return graph.add(name + ".bn", BatchNormOp{}, {graph.add(name, ConvOp{.out_channels = 8}, {from})});
        };
        const int left = norm_of("left"), right = norm_of("right");
        return graph.add("sigmoid", SigmoidOp{}, {graph.add("add", AddOp{}, {left, right})});
    }));
    cases.push_back(around("residual_whose_addend_is_read_again", {.channels = 8}, [](Graph& graph, int from) {
        const int bn = graph.add("bn", BatchNormOp{}, {graph.add("conv", ConvOp{.out_channels = 8, .bias = true}, {from})});
        return graph.add("second", AddOp{}, {graph.add("first", AddOp{}, {from, bn}), from});
    }));
    cases.push_back(around("add_to_itself", {}, [](Graph& graph, int from) { return graph.add("add", AddOp{}, {from, from}); }));
    cases.push_back(around("three_consumers", {}, [conv](Graph& graph, int from) {
        const int left = graph.add("left", conv, {from});
        const int right = graph.add("right", SigmoidOp{}, {from});
        return graph.add("sum", AddOp{}, {graph.add("inner", AddOp{}, {left, right}), from});
    }));
    cases.push_back(around("concat", {.channels = 3}, [](Graph& graph, int from) {
        const int five = graph.add("five", ConvOp{.out_channels = 5}, {from});
        const int sixteen = graph.add("sixteen", ConvOp{.out_channels = 16}, {from});
        return graph.add("concat", ConcatOp{}, {five, from, sixteen});
    }));
    cases.push_back(around("concat_of_whole_blocks", {.channels = 8}, [](Graph& graph, int from) {
        const int sixteen = graph.add("sixteen", ConvOp{.out_channels = 16}, {from});
        const int twenty_four = graph.add("twenty_four", ConvOp{.out_channels = 24}, {from});
        return graph.add("concat", ConcatOp{}, {twenty_four, from, sixteen});
    }));
    cases.push_back(around("auxiliary_loss", {}, [conv](Graph& graph, int from) {
        const int shared = graph.add("shared", SigmoidOp{}, {graph.add("conv", conv, {from})});
        const int head = graph.add("head", GlobalAveragePoolOp{}, {shared});
        const int logits = graph.add("head.fc", FullyConnectedOp{.out_features = 5}, {head});
        graph.add("head.loss", SoftmaxCrossEntropyOp{.label_smoothing = 0.1F, .weight = 0.3F}, {logits});
        return graph.add("deeper", conv, {shared});
    }));
    cases.push_back(one_op("pad_shortcut", PadShortcutOp{.out_channels = 8, .stride = 2}));
    cases.push_back(one_op("pad_shortcut_odd", PadShortcutOp{.out_channels = 17, .stride = 1}, {.channels = 16}));
    cases.push_back(one_op("pad_shortcut_stride_only", PadShortcutOp{.out_channels = 4, .stride = 3}));
    cases.push_back(around("fully_connected_chain", {}, [](Graph& graph, int from) {
        const int hidden = graph.add("hidden", FullyConnectedOp{.out_features = 67, .bias = false}, {from});
        return graph.add("sigmoid", SigmoidOp{}, {hidden});
    }));
}

}  // namespace

std::vector<NetworkCase> network_cases() {
    std::vector<NetworkCase> cases;
    add_convolutions(cases);
    add_deconvolutions(cases);
    add_normalisation_and_elementwise(cases);
    add_pools(cases);
    add_joins(cases);
    return cases;
}

Graph graph_with(const InputOp& input, const std::string& name, const OpAttributes& middle, int64_t classes) {
    Graph graph{.name = "graph_with_" + name};
    graph.add("input", input, {});
    const int top = graph.add(name, middle, {0});
    graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = classes}, {top})});
    return graph;
}

}  // namespace lockstep::testing_support
