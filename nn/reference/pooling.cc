// Max, average and global average pooling. Padding is never a maximum; whether it counts in an average is an option.
#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

struct Window {  // the part of a pooling window inside the image
    int64_t row_begin, row_end, column_begin, column_end;
    int64_t padded_count;  // of its part inside the padded image
    int64_t count() const { return (row_end - row_begin) * (column_end - column_begin); }
};

Window window_at(const PoolOp& op, const FeatureShape& image, int64_t row, int64_t column) {
    const int64_t top = row * op.stride_h - op.pad_h;
    const int64_t left = column * op.stride_w - op.pad_w;
    const int64_t height = std::min(top + op.kernel_h, image.height + op.pad_h) - top;
    const int64_t width = std::min(left + op.kernel_w, image.width + op.pad_w) - left;
    return {std::max<int64_t>(top, 0), std::min(top + op.kernel_h, image.height), std::max<int64_t>(left, 0),
            std::min(left + op.kernel_w, image.width), height * width};
}

// Visits the outputs of one (image, channel) plane with their windows.
template <typename Body>
void for_each_window(const PoolOp& op, const FeatureShape& input, const FeatureShape& output, const Body& body) {
    for (int64_t row = 0; row < output.height; ++row) {
        for (int64_t column = 0; column < output.width; ++column) {
            body(row * output.width + column, window_at(op, input, row, column));
        }
    }
}

class MaxPool final : public Node {
public:
    MaxPool(NodeContext context, const PoolOp& op)
        : context_(std::move(context)), op_(op), winner_(static_cast<size_t>(context_.output.count())) {}

    void forward(const ForwardInput& /*input*/) override {
        const Activation& in = context_.input();
        const Activation& out = context_.output;
        parallel_for(context_.threads, out.batch * out.shape.channels, [&](int64_t plane) {
            const float* values = in.value.data() + plane * in.plane();
            for_each_window(op_, in.shape, out.shape, [&](int64_t output, const Window& window) {
                const auto slot = static_cast<size_t>(plane * out.plane() + output);
                const int64_t best = first_maximum(values, window);
                winner_[slot] = plane * in.plane() + best;
                out.value[slot] = values[best];
            });
        });
    }

    void backward(bool /*accumulate*/) override {
        const Activation& in = context_.input();
        const Activation& out = context_.output;
        if (!in.wants_gradient()) return;
        parallel_for(context_.threads, out.batch * out.shape.channels, [&](int64_t plane) {
            for (int64_t output = plane * out.plane(); output < (plane + 1) * out.plane(); ++output) {
                const auto slot = static_cast<size_t>(output);
                in.gradient[static_cast<size_t>(winner_[slot])] += out.gradient[slot];
            }
        });
    }

private:
    // Ties go to the first element in row-major order; NaN wins, so a broken network stays visible.
    int64_t first_maximum(const float* values, const Window& window) const {
        const int64_t width = context_.input().shape.width;
        int64_t best = window.row_begin * width + window.column_begin;
        for (int64_t row = window.row_begin; row < window.row_end; ++row) {
            for (int64_t element = row * width + window.column_begin; element < row * width + window.column_end; ++element) {
                if (values[element] > values[best] || std::isnan(values[element])) best = element;
            }
        }
        return best;
    }

    NodeContext context_;
    PoolOp op_;
    std::vector<int64_t> winner_;  // by output element: the input element taken
};

class AveragePool final : public Node {
public:
    AveragePool(NodeContext context, const PoolOp& op) : context_(std::move(context)), op_(op) {}

    void forward(const ForwardInput& /*input*/) override {
        const Activation& in = context_.input();
        const Activation& out = context_.output;
        parallel_for(context_.threads, out.batch * out.shape.channels, [&](int64_t plane) {
            for_each_window(op_, in.shape, out.shape, [&](int64_t output, const Window& window) {
                double sum = 0.0;
                for_each_element(plane, window, [&](size_t element) { sum += in.value[element]; });
                out.value[static_cast<size_t>(plane * out.plane() + output)] = static_cast<float>(sum / divisor(window));
            });
        });
    }

    void backward(bool /*accumulate*/) override {
        const Activation& in = context_.input();
        const Activation& out = context_.output;
        if (!in.wants_gradient()) return;
        parallel_for(context_.threads, out.batch * out.shape.channels, [&](int64_t plane) {
            for_each_window(op_, in.shape, out.shape, [&](int64_t output, const Window& window) {
                const double share = out.gradient[static_cast<size_t>(plane * out.plane() + output)] / divisor(window);
                for_each_element(plane, window, [&](size_t element) { add_to(in.gradient[element], share); });
            });
        });
    }

private:
    double divisor(const Window& window) const {
        return static_cast<double>(op_.count_padding ? window.padded_count : window.count());
    }

    template <typename Body>
    void for_each_element(int64_t plane, const Window& window, const Body& body) const {
        const Activation& in = context_.input();
        for (int64_t row = window.row_begin; row < window.row_end; ++row) {
            const int64_t begin = plane * in.plane() + row * in.shape.width;
            for (int64_t column = window.column_begin; column < window.column_end; ++column) {
                body(static_cast<size_t>(begin + column));
            }
        }
    }

    NodeContext context_;
    PoolOp op_;
};

}  // namespace

std::unique_ptr<Node> make_pool(NodeContext context, const PoolOp& op) {
    if (op.kind == PoolOp::Kind::max) return std::make_unique<MaxPool>(std::move(context), op);
    return std::make_unique<AveragePool>(std::move(context), op);
}

std::unique_ptr<Node> make_global_average_pool(NodeContext context) {
    const FeatureShape& whole = context.input().shape;
    const PoolOp op{.kind = PoolOp::Kind::average,
                    .kernel_h = whole.height,
                    .kernel_w = whole.width,
                    .stride_h = whole.height,
                    .stride_w = whole.width};
    return std::make_unique<AveragePool>(std::move(context), op);
}

}  // namespace lockstep::reference
