#include "nn/onednn/kernels/loss.h"

#include <algorithm>
#include <cmath>

#include "nn/onednn/kernels/parallel.h"

namespace lockstep::onednn {

namespace {

constexpr int64_t kSmallestPieceElements = 4096;

std::span<const float> row_of(std::span<const float> logits, int64_t row, int64_t classes) {
    return logits.subspan(static_cast<size_t>(row * classes), static_cast<size_t>(classes));
}

// log(sum of exp(logit)), summed in double.
double log_sum_exp(std::span<const float> row) {
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0.0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - largest);
    return largest + std::log(sum);
}

// What one row is measured against.
struct Target {
    int32_t label = 0, second = 0;
    float second_share = 0.0F, smoothing = 0.0F;
};

Target target_of(const LossTargets& targets, int64_t row) {
    const size_t index = static_cast<size_t>(row);
    const int32_t label = targets.labels[index];
    return {label, targets.second_share == 0.0F ? label : targets.second_labels[index], targets.second_share, targets.smoothing};
}

float row_loss(std::span<const float> row, const Target& target) {
    if (target.label < 0) return 0.0F;
    // Exactly the label's own logit when there is no second one, even when another is infinite.
    double on_labels = row[static_cast<size_t>(target.label)];
    if (target.second_share > 0.0F) {
        const double share = target.second_share;
        on_labels = (1.0 - share) * on_labels + share * row[static_cast<size_t>(target.second)];
    }
    double loss = log_sum_exp(row) - (1.0 - target.smoothing) * on_labels;
    if (target.smoothing > 0.0F) {
        double sum = 0.0;
        for (const float logit : row) sum += logit;
        loss -= target.smoothing * sum / static_cast<double>(row.size());
    }
    return static_cast<float>(loss);
}

void row_gradient(std::span<const float> row, const Target& target, float weight, float* gradient) {
    if (target.label < 0) {
        std::fill_n(gradient, row.size(), 0.0F);
        return;
    }
    const double normaliser = log_sum_exp(row);
    const double everywhere = static_cast<double>(target.smoothing) / static_cast<double>(row.size());
    for (size_t index = 0; index < row.size(); ++index) {
        gradient[index] = static_cast<float>(std::exp(row[index] - normaliser) - everywhere);
    }
    gradient[target.label] -= (1.0F - target.smoothing) * (1.0F - target.second_share);
    if (target.second_share > 0.0F) gradient[target.second] -= (1.0F - target.smoothing) * target.second_share;
    if (weight == 1.0F) return;
    for (size_t index = 0; index < row.size(); ++index) gradient[index] *= weight;
}

template <typename Work>  // work(row, its logits)
void for_each_row(std::span<const float> logits, size_t rows, const Work& work) {
    const int64_t classes = static_cast<int64_t>(logits.size() / std::max<size_t>(rows, 1));
    parallel_ranges(static_cast<int64_t>(rows), std::max<int64_t>(1, kSmallestPieceElements / classes),
                    [&](int64_t row, int64_t end) {
                        for (; row < end; ++row) work(row, row_of(logits, row, classes));
                    });
}

}  // namespace

void softmax_losses(std::span<const float> logits, const LossTargets& targets, std::span<float> losses) {
    for_each_row(logits, targets.labels.size(), [&](int64_t row, std::span<const float> values) {
        losses[static_cast<size_t>(row)] = row_loss(values, target_of(targets, row));
    });
}

void softmax_gradients(std::span<const float> logits, const LossTargets& targets, float weight, float* gradients) {
    for_each_row(logits, targets.labels.size(), [&](int64_t row, std::span<const float> values) {
        row_gradient(values, target_of(targets, row), weight, gradients + row * static_cast<int64_t>(values.size()));
    });
}

}  // namespace lockstep::onednn
