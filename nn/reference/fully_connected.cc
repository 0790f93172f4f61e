// y[n, o] = bias[o] + sum over i of w[o, i] * x[n, i], with x flattened in (C, H, W) order.
#include <algorithm>
#include <array>
#include <utility>

#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

constexpr int64_t kPiece = 64;  // elements summed at a time

class FullyConnected final : public Node {
public:
    explicit FullyConnected(NodeContext context)
        : context_(std::move(context)),
          batch_(context_.output.batch),
          features_in_(context_.input().shape.count()),
          features_out_(context_.output.shape.channels) {}

    void forward(const ForwardInput& /*input*/) override {
        parallel_for(context_.threads, batch_ * features_out_, [&](int64_t index) {
            const float* input = context_.input().value.data() + index / features_out_ * features_in_;
            const float* weights = context_.parameters[0].value.data() + index % features_out_ * features_in_;
            double sum = 0.0;
#pragma omp simd reduction(+ : sum)
            for (int64_t in = 0; in < features_in_; ++in) sum += static_cast<double>(input[in]) * static_cast<double>(weights[in]);
            if (context_.parameters.size() > 1) sum += context_.parameters[1].value[static_cast<size_t>(index % features_out_)];
            context_.output.value[static_cast<size_t>(index)] = static_cast<float>(sum);
        });
    }

    void backward(bool accumulate) override {
        parallel_for(context_.threads, features_out_, [&](int64_t out) { backward_parameters(out, accumulate); });
        if (context_.input().wants_gradient()) {
            parallel_for(context_.threads, batch_, [&](int64_t image) { backward_input(image); });
        }
    }

private:
    double output_gradient(int64_t image, int64_t out) const {
        return context_.output.gradient[static_cast<size_t>(image * features_out_ + out)];
    }

    // sum over `count` rows of factor(row) * row, handed piece by piece to `take(in, sum)`.
    template <typename Factor, typename Take>
    void combine_rows(const float* rows, int64_t count, const Factor& factor, const Take& take) const {
        for (int64_t begin = 0; begin < features_in_; begin += kPiece) {
            const int64_t end = std::min(begin + kPiece, features_in_);
            std::array<double, kPiece> sums{};
            for (int64_t row = 0; row < count; ++row) {
                const double weight = factor(row);
                for (int64_t in = begin; in < end; ++in) {
                    sums[static_cast<size_t>(in - begin)] += weight * static_cast<double>(rows[row * features_in_ + in]);
                }
            }
            for (int64_t in = begin; in < end; ++in) take(in, sums[static_cast<size_t>(in - begin)]);
        }
    }

    void backward_parameters(int64_t out, bool accumulate) {
        const auto factor = [&](int64_t image) { return output_gradient(image, out); };
        float* gradient = context_.parameters[0].gradient.data() + out * features_in_;
        combine_rows(context_.input().value.data(), batch_, factor,
                     [&](int64_t in, double sum) { store(gradient[in], sum, accumulate); });
        if (context_.parameters.size() == 1) return;
        double sum = 0.0;
        for (int64_t image = 0; image < batch_; ++image) sum += output_gradient(image, out);
        store(context_.parameters[1].gradient[static_cast<size_t>(out)], sum, accumulate);
    }

    void backward_input(int64_t image) {
        const auto factor = [&](int64_t out) { return output_gradient(image, out); };
        float* gradient = context_.input().gradient.data() + image * features_in_;
        combine_rows(context_.parameters[0].value.data(), features_out_, factor,
                     [&](int64_t in, double sum) { add_to(gradient[in], sum); });
    }

    NodeContext context_;
    int64_t batch_, features_in_, features_out_;
};

}  // namespace

std::unique_ptr<Node> make_fully_connected(NodeContext context, const FullyConnectedOp& /*op*/) {
    return std::make_unique<FullyConnected>(std::move(context));
}

}  // namespace lockstep::reference
