// Output shapes of all ops, and the checks of structure and options that make them meaningful.
#include <cmath>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "nn/graph.h"

namespace lockstep {

namespace {

std::string text_of(const FeatureShape& shape) { return fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width); }

[[noreturn]] void refuse(const Op& op, std::string_view reason) {
    throw ConfigError(fmt::format("network op '{}': {}", op.name, reason));
}

void require(const Op& op, bool condition, std::string_view reason) {
    if (!condition) refuse(op, reason);
}

using InputShapes = std::vector<FeatureShape>;

void require_input_count(const Op& op, size_t count) {
    if (op.inputs.size() != count) refuse(op, fmt::format("needs {} input(s), has {}", count, op.inputs.size()));
}

// One spatial axis of a window moving over a padded input.
struct Window {
    int64_t kernel, stride, pad, dilation;
    bool ceil_mode;
};

void require_window(const Op& op, const Window& window) {
    require(op, window.kernel >= 1 && window.stride >= 1 && window.dilation >= 1 && window.pad >= 0,
            "kernel, stride and dilation must be at least 1 and padding at least 0");
}

int64_t window_count(const Op& op, const Window& window, int64_t input, const FeatureShape& shape) {
    require_window(op, window);
    const int64_t span = window.dilation * (window.kernel - 1) + 1;
    const int64_t room = input + 2 * window.pad - span;
    if (room < 0) {
        refuse(op, fmt::format("its kernel covers {} pixels but the input {} with padding {} has only {}; use larger images", span,
                               text_of(shape), window.pad, input + 2 * window.pad));
    }
    int64_t count = room / window.stride + 1;
    if (window.ceil_mode && room % window.stride != 0) {
        // One more window, unless it would start right of the input.
        if (count * window.stride < input + window.pad) ++count;
    }
    return count;
}

FeatureShape output_of(const Op& op, const InputOp& input, const InputShapes& inputs) {
    require(op, inputs.empty(), "the input op takes no inputs");
    require(op, input.channels >= 1 && input.height >= 1 && input.width >= 1, "channels, height and width must be at least 1");
    return {input.channels, input.height, input.width};
}

FeatureShape output_of(const Op& op, const ConvOp& conv, const InputShapes& inputs) {
    require_input_count(op, 1);
    const FeatureShape& in = inputs[0];
    require(op, conv.out_channels >= 1 && conv.groups >= 1, "output channels and groups must be at least 1");
    if (in.channels % conv.groups != 0 || conv.out_channels % conv.groups != 0) {
        refuse(op, fmt::format("{} groups must divide the channels of input {} and the {} output channels", conv.groups,
                               text_of(in), conv.out_channels));
    }
    return {conv.out_channels, window_count(op, {conv.kernel_h, conv.stride_h, conv.pad_h, conv.dilation_h, false}, in.height, in),
            window_count(op, {conv.kernel_w, conv.stride_w, conv.pad_w, conv.dilation_w, false}, in.width, in)};
}

// One spatial axis of a deconvolution's output.
int64_t spread_size(const Op& op, int64_t input, int64_t kernel, int64_t stride, int64_t pad, int64_t output_pad) {
    require_window(op, {kernel, stride, pad, 1, false});
    if (output_pad < 0 || output_pad >= stride) {
        refuse(op, fmt::format("output padding {} must be at least 0 and smaller than the stride {}", output_pad, stride));
    }
    const int64_t size = (input - 1) * stride - 2 * pad + kernel + output_pad;
    if (size < 1) refuse(op, fmt::format("padding {} leaves no output of {} pixels with kernel {}", pad, input, kernel));
    return size;
}

FeatureShape output_of(const Op& op, const DeconvOp& deconv, const InputShapes& inputs) {
    require_input_count(op, 1);
    const FeatureShape& in = inputs[0];
    require(op, deconv.out_channels >= 1 && deconv.groups >= 1, "output channels and groups must be at least 1");
    if (in.channels % deconv.groups != 0 || deconv.out_channels % deconv.groups != 0) {
        refuse(op, fmt::format("{} groups must divide the channels of input {} and the {} output channels", deconv.groups,
                               text_of(in), deconv.out_channels));
    }
    return {deconv.out_channels, spread_size(op, in.height, deconv.kernel_h, deconv.stride_h, deconv.pad_h, deconv.output_pad_h),
            spread_size(op, in.width, deconv.kernel_w, deconv.stride_w, deconv.pad_w, deconv.output_pad_w)};
}

FeatureShape output_of(const Op& op, const LrnOp& lrn, const InputShapes& inputs) {
    require_input_count(op, 1);
    require(op, lrn.size >= 1 && lrn.size % 2 == 1, "size must be an odd number of channels");
    require(op, std::isfinite(lrn.alpha) && lrn.alpha >= 0.0F && std::isfinite(lrn.beta) && std::isfinite(lrn.k) && lrn.k > 0.0F,
            "alpha must be at least 0, k above 0, and beta a finite number");
    return inputs[0];
}

FeatureShape output_of(const Op& op, const PoolOp& pool, const InputShapes& inputs) {
    require_input_count(op, 1);
    // A window that lies in the padding alone has no maximum and no average.
    require(op, pool.pad_h < pool.kernel_h && pool.pad_w < pool.kernel_w, "padding must be smaller than the kernel");
    const FeatureShape& in = inputs[0];
    return {in.channels, window_count(op, {pool.kernel_h, pool.stride_h, pool.pad_h, 1, pool.ceil_mode}, in.height, in),
            window_count(op, {pool.kernel_w, pool.stride_w, pool.pad_w, 1, pool.ceil_mode}, in.width, in)};
}

FeatureShape output_of(const Op& op, const BatchNormOp& norm, const InputShapes& inputs) {
    require_input_count(op, 1);
    require(op, norm.epsilon > 0.0F && std::isfinite(norm.epsilon), "epsilon must be a positive number");
    require(op, norm.keep >= 0.0F && norm.keep <= 1.0F, "keep must be in [0, 1]");
    return inputs[0];
}

FeatureShape output_of(const Op& op, const ReluOp& /*relu*/, const InputShapes& inputs) {
    require_input_count(op, 1);
    return inputs[0];
}

FeatureShape output_of(const Op& op, const LeakyReluOp& relu, const InputShapes& inputs) {
    require_input_count(op, 1);
    require(op, std::isfinite(relu.slope), "slope must be a finite number");
    return inputs[0];
}

FeatureShape output_of(const Op& op, const SigmoidOp& /*sigmoid*/, const InputShapes& inputs) {
    require_input_count(op, 1);
    return inputs[0];
}

FeatureShape output_of(const Op& op, const GlobalAveragePoolOp& /*pool*/, const InputShapes& inputs) {
    require_input_count(op, 1);
    return {inputs[0].channels, 1, 1};
}

FeatureShape output_of(const Op& op, const AddOp& /*add*/, const InputShapes& inputs) {
    require_input_count(op, 2);
    if (inputs[0] != inputs[1]) {
        refuse(op, fmt::format("cannot add shapes {} and {}", text_of(inputs[0]), text_of(inputs[1])));
    }
    return inputs[0];
}

FeatureShape output_of(const Op& op, const ConcatOp& /*concat*/, const InputShapes& inputs) {
    require(op, inputs.size() >= 2, "concat needs at least two inputs");
    FeatureShape out = inputs[0];
    out.channels = 0;
    for (const FeatureShape& in : inputs) {
        if (in.height != out.height || in.width != out.width) {
            refuse(op, fmt::format("cannot concat shapes {} and {} along channels", text_of(inputs[0]), text_of(in)));
        }
        out.channels += in.channels;
    }
    return out;
}

FeatureShape output_of(const Op& op, const FullyConnectedOp& fc, const InputShapes& /*inputs*/) {
    require_input_count(op, 1);
    require(op, fc.out_features >= 1, "output features must be at least 1");
    return {fc.out_features, 1, 1};
}

FeatureShape output_of(const Op& op, const DropoutOp& dropout, const InputShapes& inputs) {
    require_input_count(op, 1);
    require(op, dropout.probability >= 0.0F && dropout.probability < 1.0F, "probability must be in [0, 1)");
    return inputs[0];
}

FeatureShape output_of(const Op& op, const PadShortcutOp& shortcut, const InputShapes& inputs) {
    require_input_count(op, 1);
    const FeatureShape& in = inputs[0];
    require(op, shortcut.stride >= 1, "stride must be at least 1");
    if (shortcut.out_channels < in.channels) {
        refuse(op, fmt::format("cannot pad the channels of input {} to {}", text_of(in), shortcut.out_channels));
    }
    return {shortcut.out_channels, (in.height - 1) / shortcut.stride + 1, (in.width - 1) / shortcut.stride + 1};
}

FeatureShape output_of(const Op& op, const SoftmaxCrossEntropyOp& loss, const InputShapes& inputs) {
    require_input_count(op, 1);
    require(op, loss.label_smoothing >= 0.0F && loss.label_smoothing < 1.0F, "label smoothing must be in [0, 1)");
    require(op, loss.weight > 0.0F && std::isfinite(loss.weight), "the weight of a loss must be a positive number");
    if (inputs[0].height != 1 || inputs[0].width != 1) {
        refuse(op, fmt::format("needs one value per class and image, its input is {}; add a global pool or a fully connected layer",
                               text_of(inputs[0])));
    }
    return {1, 1, 1};
}

InputShapes shapes_of_inputs(const Op& op, const std::vector<FeatureShape>& earlier) {
    InputShapes inputs;
    for (const int input : op.inputs) {
        if (input < 0 || static_cast<size_t>(input) >= earlier.size()) {
            refuse(op, fmt::format("input {} is not an earlier op", input));
        }
        inputs.push_back(earlier[static_cast<size_t>(input)]);
    }
    return inputs;
}

void require_ends(const Graph& graph) {
    if (graph.ops.size() < 3) throw ConfigError(fmt::format("network '{}': needs an input, layers and a loss", graph.name));
    if (!std::holds_alternative<InputOp>(graph.ops.front().attributes)) refuse(graph.ops.front(), "the first op must be the input");
    if (!std::holds_alternative<SoftmaxCrossEntropyOp>(graph.ops.back().attributes)) {
        refuse(graph.ops.back(), "the last op must be the loss");
    }
    require(graph.ops.back(), std::get<SoftmaxCrossEntropyOp>(graph.ops.back().attributes).weight == 1.0F,
            "the weight of the last loss is 1; give auxiliary losses theirs in relation to it");
}

void require_unique_roles_and_names(const Graph& graph) {
    std::set<std::string_view> names;
    for (const Op& op : graph.ops) {
        if (op.name.empty()) throw ConfigError(fmt::format("network '{}': an op has no name", graph.name));
        if (!names.insert(op.name).second) refuse(op, "two ops have this name");
        if (&op != &graph.ops.front() && std::holds_alternative<InputOp>(op.attributes)) refuse(op, "only op 0 may be an input");
    }
}

bool is_loss(const Op& op) { return std::holds_alternative<SoftmaxCrossEntropyOp>(op.attributes); }

// Every output must reach a loss, or backward would have no gradient for it; a loss is an end.
void require_all_used(const Graph& graph) {
    std::vector<bool> used(graph.ops.size(), false);
    for (const Op& op : graph.ops) {
        for (const int input : op.inputs) {
            if (is_loss(graph.ops[static_cast<size_t>(input)])) refuse(op, "a loss cannot be an input");
            used[static_cast<size_t>(input)] = true;
        }
    }
    for (size_t index = 0; index + 1 < graph.ops.size(); ++index) {
        if (!used[index] && !is_loss(graph.ops[index])) refuse(graph.ops[index], "its output is not used by any op");
    }
}

// All heads answer the same question.
void require_equal_classes(const Graph& graph, const std::vector<FeatureShape>& shapes) {
    const auto classes = [&](const Op& op) { return shapes[static_cast<size_t>(op.inputs.front())].channels; };
    for (const Op& op : graph.ops) {
        if (!is_loss(op) || classes(op) == classes(graph.ops.back())) continue;
        refuse(op, fmt::format("has {} classes, the last loss {}", classes(op), classes(graph.ops.back())));
    }
}

}  // namespace

std::vector<FeatureShape> infer_shapes(const Graph& graph) {
    std::vector<FeatureShape> shapes;
    for (const Op& op : graph.ops) {
        const InputShapes inputs = shapes_of_inputs(op, shapes);
        shapes.push_back(std::visit([&](const auto& attributes) { return output_of(op, attributes, inputs); }, op.attributes));
    }
    return shapes;
}

void validate(const Graph& graph) {
    require_ends(graph);
    require_unique_roles_and_names(graph);
    require_equal_classes(graph, infer_shapes(graph));
    require_all_used(graph);
}

}  // namespace lockstep
