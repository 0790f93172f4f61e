// Softmax cross-entropy with label smoothing s over K classes: with p = softmax(logits) and target
// t = (1 - s) ((1 - m) [k = label] + m [k = second label]) + s / K, m being the second label's share in a mixture of two images,
// loss = -sum t log p and d loss / d logit = p - t (arXiv:1512.00567, section 7), both times the weight of an auxiliary loss.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

constexpr int32_t kNoImage = -1;

class SoftmaxCrossEntropy final : public Node {
public:
    SoftmaxCrossEntropy(NodeContext context, const SoftmaxCrossEntropyOp& op)
        : context_(std::move(context)),
          classes_(context_.input().shape.channels),
          smoothing_(op.label_smoothing),
          weight_(op.weight),
          labels_(static_cast<size_t>(context_.output.batch)),
          second_labels_(labels_.size()) {}

    void forward(const ForwardInput& input) override {
        std::ranges::copy(input.labels, labels_.begin());
        const bool mixed = !input.second_labels.empty();
        std::ranges::copy(mixed ? input.second_labels : input.labels, second_labels_.begin());
        second_share_ = mixed ? input.second_share : 0.0;
        for (size_t image = 0; image < labels_.size(); ++image) {
            require_label(labels_, image);
            require_label(second_labels_, image);
            context_.output.value[image] = labels_[image] == kNoImage ? 0.0F : static_cast<float>(weight_ * loss_of(image));
        }
    }

    void backward(bool /*accumulate*/) override {
        for (size_t image = 0; image < labels_.size(); ++image) {
            const std::span<const float> logits = row(context_.input().value, image);
            const std::span<float> gradient = row(context_.input().gradient, image);
            const double normaliser = log_sum_exp(logits);
            for (size_t k = 0; k < logits.size(); ++k) {
                add_to(gradient[k], weight_ * (std::exp(logits[k] - normaliser) - target(image, k)));
            }
        }
    }

private:
    template <typename T>
    std::span<T> row(std::span<T> rows, size_t image) const {
        return rows.subspan(image * static_cast<size_t>(classes_), static_cast<size_t>(classes_));
    }

    void require_label(const std::vector<int32_t>& labels, size_t image) const {
        const int32_t label = labels[image];
        if ((label >= 0 && label < classes_) || (label == kNoImage && context_.phase == Phase::evaluation)) return;
        throw DataError(fmt::format("label {} of image {} in the batch is outside 0..{}; check the labels or model.num_classes",
                                    label, image, classes_ - 1));
    }

    static double log_sum_exp(std::span<const float> logits) {
        const double largest = *std::ranges::max_element(logits);
        double sum = 0.0;
        for (const float logit : logits) sum += std::exp(logit - largest);
        return largest + std::log(sum);
    }

    double target(size_t image, size_t k) const {
        const int32_t label = static_cast<int32_t>(k);
        const double on_labels =
            (label == labels_[image] ? 1.0 - second_share_ : 0.0) + (label == second_labels_[image] ? second_share_ : 0.0);
        return (1.0 - smoothing_) * on_labels + smoothing_ / static_cast<double>(classes_);
    }

    double loss_of(size_t image) const {
        const std::span<const float> logits = row(std::span<const float>(context_.input().value), image);
        const double normaliser = log_sum_exp(logits);
        double loss = 0.0;
        for (size_t k = 0; k < logits.size(); ++k) {
            const double weight = target(image, k);
            // A target of 0 takes no part, even when the logit is infinite.
            if (weight != 0.0) loss += weight * (normaliser - logits[k]);
        }
        return loss;
    }

    NodeContext context_;
    int64_t classes_;
    double smoothing_;
    double weight_;
    std::vector<int32_t> labels_, second_labels_;  // of the last forward
    double second_share_ = 0.0;
};

}  // namespace

std::unique_ptr<Node> make_softmax_cross_entropy(NodeContext context, const SoftmaxCrossEntropyOp& op) {
    return std::make_unique<SoftmaxCrossEntropy>(std::move(context), op);
}

}  // namespace lockstep::reference
