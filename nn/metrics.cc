#include "nn/metrics.h"

#include "core/error.h"

namespace lockstep {

namespace {

// Classes that stand before `label` when sorted by falling logit, then by rising class index. A NaN stands before everything, so
// a broken network never counts as right.
int64_t rank_of(std::span<const float> row, size_t label) {
    int64_t before = 0;
    for (size_t other = 0; other < row.size(); ++other) {
        if (other == label) continue;
        const bool lower_or_equal = row[other] <= row[label];
        const bool equal = row[other] == row[label];
        if (!lower_or_equal || (equal && other < label)) ++before;
    }
    return before;
}

}  // namespace

int64_t count_top_k(std::span<const float> logits, std::span<const int32_t> labels, int64_t classes, int64_t k) {
    check(classes >= 1 && k >= 1, "count_top_k: at least one class and k >= 1");
    check(logits.size() >= labels.size() * static_cast<size_t>(classes), "count_top_k: fewer logits than labels need");
    int64_t count = 0;
    for (size_t row = 0; row < labels.size(); ++row) {
        const int32_t label = labels[row];
        if (label == -1) continue;
        check(label >= 0 && label < classes, "count_top_k: label outside the classes");
        const std::span<const float> values = logits.subspan(row * static_cast<size_t>(classes), static_cast<size_t>(classes));
        if (k >= classes || rank_of(values, static_cast<size_t>(label)) < k) ++count;
    }
    return count;
}

}  // namespace lockstep
