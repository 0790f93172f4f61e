// Batch normalisation (arXiv:1502.03167): y = scale * (x - mean) / sqrt(variance + epsilon) + shift, per channel over (N, H, W).
// Training uses the batch's own mean and biased variance; evaluation the running ones. Without `affine`, scale 1 and shift 0.
#include <cmath>
#include <utility>

#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

enum Slot : size_t { kScale = 0, kShift = 1, kMean = 2, kVariance = 3 };  // the statistics come first where there is no scale

class BatchNorm final : public Node {
public:
    BatchNorm(NodeContext context, const BatchNormOp& op)
        : context_(std::move(context)),
          epsilon_(op.epsilon),
          affine_(op.affine),
          channels_(context_.output.shape.channels),
          values_per_channel_(context_.output.batch * context_.output.plane()),
          statistics_(static_cast<size_t>(channels_)) {}

    void forward(const ForwardInput& /*input*/) override {
        parallel_for(context_.threads, channels_, [&](int64_t channel) {
            Statistics& own = statistics_[static_cast<size_t>(channel)];
            if (context_.phase == Phase::training) {
                measure(channel, own);
            } else {
                own.mean = parameter(kMean, channel);
                own.variance = parameter(kVariance, channel);
            }
            own.inverse_deviation = 1.0 / std::sqrt(own.variance + epsilon_);
            normalise(channel, own);
        });
    }

    void backward(bool accumulate) override {
        parallel_for(context_.threads, channels_, [&](int64_t channel) { backward_channel(channel, accumulate); });
    }

private:
    struct Statistics {
        double mean = 0.0, variance = 0.0, inverse_deviation = 0.0;  // variance: biased
    };

    const Parameter& place(Slot slot) const { return context_.parameters[affine_ ? slot : slot - kMean]; }
    double parameter(Slot slot, int64_t channel) const { return place(slot).value[static_cast<size_t>(channel)]; }
    double scale(int64_t channel) const { return affine_ ? parameter(kScale, channel) : 1.0; }

    template <typename Body>
    void for_each_element(int64_t channel, const Body& body) const {
        const int64_t plane = context_.output.plane();
        for (int64_t image = 0; image < context_.output.batch; ++image) {
            const int64_t begin = (image * channels_ + channel) * plane;
            for (int64_t element = begin; element < begin + plane; ++element) body(static_cast<size_t>(element));
        }
    }

    void measure(int64_t channel, Statistics& own) const {
        const std::span<const float> input = context_.input().value;
        const auto count = static_cast<double>(values_per_channel_);
        double sum = 0.0;
        for_each_element(channel, [&](size_t element) { sum += input[element]; });
        own.mean = sum / count;
        double squares = 0.0;
        for_each_element(channel, [&](size_t element) {
            const double centred = input[element] - own.mean;
            squares += centred * centred;
        });
        own.variance = squares / count;
    }

    void normalise(int64_t channel, const Statistics& own) const {
        const double factor = scale(channel) * own.inverse_deviation;
        const double shift = affine_ ? parameter(kShift, channel) : 0.0;
        for_each_element(channel, [&](size_t element) {
            context_.output.value[element] = static_cast<float>((context_.input().value[element] - own.mean) * factor + shift);
        });
    }

    // With x' = (x - mean) / deviation and M values per channel:
    //   dshift = sum dy, dscale = sum dy x', dx = scale / deviation * (dy - dshift / M - x' dscale / M)
    void backward_channel(int64_t channel, bool accumulate) const {
        const Statistics& own = statistics_[static_cast<size_t>(channel)];
        const std::span<const float> input = context_.input().value;
        const std::span<const float> gradient = context_.output.gradient;
        const auto normal = [&](size_t element) { return (input[element] - own.mean) * own.inverse_deviation; };
        double shift_gradient = 0.0;
        double scale_gradient = 0.0;
        for_each_element(channel, [&](size_t element) {
            shift_gradient += gradient[element];
            scale_gradient += gradient[element] * normal(element);
        });
        if (context_.input().wants_gradient()) {
            const auto count = static_cast<double>(values_per_channel_);
            const double factor = scale(channel) * own.inverse_deviation;
            for_each_element(channel, [&](size_t element) {
                const double centred = gradient[element] - shift_gradient / count - normal(element) * scale_gradient / count;
                add_to(context_.input().gradient[element], factor * centred);
            });
        }
        if (affine_) {
            store(gradient_slot(kScale, channel), scale_gradient, accumulate);
            store(gradient_slot(kShift, channel), shift_gradient, accumulate);
        }
        store_statistics(channel, own, accumulate);
    }

    void store_statistics(int64_t channel, const Statistics& own, bool accumulate) const {
        const auto images = static_cast<double>(context_.output.batch);
        const auto count = static_cast<double>(values_per_channel_);
        const double unbiased = values_per_channel_ > 1 ? own.variance * count / (count - 1.0) : own.variance;
        store(gradient_slot(kMean, channel), images * own.mean, accumulate);
        store(gradient_slot(kVariance, channel), images * unbiased, accumulate);
    }

    float& gradient_slot(Slot slot, int64_t channel) const { return place(slot).gradient[static_cast<size_t>(channel)]; }

    NodeContext context_;
    double epsilon_;
    bool affine_;
    int64_t channels_;
    int64_t values_per_channel_;
    std::vector<Statistics> statistics_;  // of the last forward, by channel
};

}  // namespace

std::unique_ptr<Node> make_batch_norm(NodeContext context, const BatchNormOp& op) {
    return std::make_unique<BatchNorm>(std::move(context), op);
}

}  // namespace lockstep::reference
