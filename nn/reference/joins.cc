// Ops that move elements between tensors: add, concat and the parameter-free shortcut.
#include <algorithm>
#include <utility>

#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

class Add final : public Node {
public:
    explicit Add(NodeContext context) : context_(std::move(context)) {}

    void forward(const ForwardInput& /*input*/) override {
        const std::span<const float> left = context_.inputs[0].value;
        const std::span<const float> right = context_.inputs[1].value;
        for (size_t element = 0; element < left.size(); ++element) context_.output.value[element] = left[element] + right[element];
    }

    void backward(bool /*accumulate*/) override {
        for (const Activation& input : context_.inputs) {
            for (size_t element = 0; element < input.gradient.size(); ++element) {
                input.gradient[element] += context_.output.gradient[element];
            }
        }
    }

private:
    NodeContext context_;
};

class Concat final : public Node {
public:
    explicit Concat(NodeContext context) : context_(std::move(context)) {}

    void forward(const ForwardInput& /*input*/) override {
        for_each_block([&](const Activation& input, size_t in, size_t out, size_t count) {
            std::copy_n(input.value.begin() + static_cast<ptrdiff_t>(in), count,
                        context_.output.value.begin() + static_cast<ptrdiff_t>(out));
        });
    }

    void backward(bool /*accumulate*/) override {
        for_each_block([&](const Activation& input, size_t in, size_t out, size_t count) {
            if (!input.wants_gradient()) return;
            for (size_t element = 0; element < count; ++element) {
                input.gradient[in + element] += context_.output.gradient[out + element];
            }
        });
    }

private:
    // One image of one input is one block, in the input and in the output.
    template <typename Body>
    void for_each_block(const Body& body) const {
        size_t out = 0;
        for (int64_t image = 0; image < context_.output.batch; ++image) {
            for (const Activation& input : context_.inputs) {
                const auto count = static_cast<size_t>(input.shape.count());
                body(input, static_cast<size_t>(image) * count, out, count);
                out += count;
            }
        }
    }

    NodeContext context_;
};

class PadShortcut final : public Node {
public:
    PadShortcut(NodeContext context, const PadShortcutOp& op) : context_(std::move(context)), stride_(op.stride) {}

    void forward(const ForwardInput& /*input*/) override {
        std::ranges::fill(context_.output.value, 0.0F);
        for_each_pair([&](size_t in, size_t out) { context_.output.value[out] = context_.input().value[in]; });
    }

    void backward(bool /*accumulate*/) override {
        if (!context_.input().wants_gradient()) return;
        for_each_pair([&](size_t in, size_t out) { context_.input().gradient[in] += context_.output.gradient[out]; });
    }

private:
    // Input element (n, c, row * stride, column * stride) is output element (n, c + half of the added channels, row, column).
    template <typename Body>
    void for_each_pair(const Body& body) const {
        const FeatureShape& in = context_.input().shape;
        const FeatureShape& out = context_.output.shape;
        const int64_t channels_before = (out.channels - in.channels) / 2;
        for (int64_t image = 0; image < context_.output.batch; ++image) {
            for (int64_t channel = 0; channel < in.channels; ++channel) {
                const int64_t in_plane = (image * in.channels + channel) * in.height * in.width;
                const int64_t out_plane = (image * out.channels + channels_before + channel) * out.height * out.width;
                for (int64_t row = 0; row < out.height; ++row) {
                    for (int64_t column = 0; column < out.width; ++column) {
                        body(static_cast<size_t>(in_plane + row * stride_ * in.width + column * stride_),
                             static_cast<size_t>(out_plane + row * out.width + column));
                    }
                }
            }
        }
    }

    NodeContext context_;
    int64_t stride_;
};

}  // namespace

std::unique_ptr<Node> make_add(NodeContext context) { return std::make_unique<Add>(std::move(context)); }

std::unique_ptr<Node> make_concat(NodeContext context) { return std::make_unique<Concat>(std::move(context)); }

std::unique_ptr<Node> make_pad_shortcut(NodeContext context, const PadShortcutOp& op) {
    return std::make_unique<PadShortcut>(std::move(context), op);
}

}  // namespace lockstep::reference
