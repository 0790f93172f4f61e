#include "trainer/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/finite.h"

namespace lockstep {

GradientReducer::GradientReducer(Communicator& communicator, ParameterArena& arena, BucketPlan plan, bool overlap,
                                 GradientTree* tree, NodeSharing* node)
    : communicator_(communicator),
      arena_(arena),
      plan_(std::move(plan)),
      overlap_(overlap),
      tree_(tree),
      node_(node),
      works_(plan_.size()),
      records_(plan_.size()) {
    check(plan_.size() < static_cast<size_t>(Communicator::kHistory), "the times of all buckets of a step are kept");
    for (size_t index = 0; index < records_.size(); ++index) records_[index].bucket = static_cast<int32_t>(index);
    if (communicator_.wire() != DataType::f32) gather_exact_parts();
}

void GradientReducer::gather_exact_parts() {
    const auto is_exact = [&](size_t entry) { return !is_trainable(arena_.entries()[entry].spec.kind); };
    size_t count = 0;
    for (size_t entry = 0; entry < arena_.entries().size(); ++entry) count += is_exact(entry) ? arena_.gradient(entry).size() : 0;
    exact_.resize(count);
    std::span<float> free(exact_);
    for (size_t entry = 0; entry < arena_.entries().size(); ++entry) {
        if (!is_exact(entry)) continue;
        const size_t part_count = arena_.gradient(entry).size();
        exact_parts_.push_back({entry, free.first(part_count)});
        free = free.subspan(part_count);
    }
}

GradientReducer::~GradientReducer() {
    for (size_t index = 0; index < launched_buckets_; ++index) {
        try {
            works_[index].wait();
        } catch (const Error&) {
            continue;  // the failure that ended the run has been thrown already
        }
    }
    try {
        exact_work_.wait();
    } catch (const Error&) {
        return;  // likewise
    }
}

void GradientReducer::begin(int64_t step) {
    step_ = step;
    ready_buckets_ = 0;
    launched_buckets_ = 0;
    own_health_ = {};
}

void GradientReducer::ready_up_to(size_t entry_end) {
    communicator_.progress();
    if (ready_buckets_ == plan_.size() || plan_[ready_buckets_].entry_end > entry_end) return;
    const int64_t now = now_ns();
    while (ready_buckets_ < plan_.size() && plan_[ready_buckets_].entry_end <= entry_end) records_[ready_buckets_++].ready_ns = now;
    if (overlap_) launch_ready_buckets();
}

void GradientReducer::launch_ready_buckets() {
    for (; launched_buckets_ < ready_buckets_; ++launched_buckets_) {
        const Bucket& bucket = plan_[launched_buckets_];
        if (tree_ != nullptr) tree_->finish(bucket.offset, bucket.offset + bucket.count);
        const std::span<float> slice =
            arena_.gradients().subspan(static_cast<size_t>(bucket.offset), static_cast<size_t>(bucket.count));
        const CollectiveLabel label{
            .what = "bucket", .step = step_, .bucket = static_cast<int32_t>(launched_buckets_), .may_round = true};
        look_at(bucket);
        take_exact_parts(bucket);
        const bool is_last = launched_buckets_ + 1 == plan_.size();
        if (!is_last && node_ != nullptr) {
            works_[launched_buckets_] = node_->reduce_to_slices(slice, label);
            continue;
        }
        const bool apart = is_last && !exact_parts_.empty();
        const size_t control_count = apart ? arena_.control().size() : 0;
        works_[launched_buckets_] = communicator_.allreduce(slice.first(slice.size() - control_count), label);
        if (apart) exact_work_ = communicator_.allreduce(std::span(exact_), {.what = "statistics and control", .step = step_});
    }
}

// One pass over what backward has just written: about as long as the sum over two ranks inside a node takes to read it.
void GradientReducer::look_at(const Bucket& bucket) {
    for (size_t entry = bucket.entry_begin; entry < bucket.entry_end; ++entry) {
        if (arena_.entries()[entry].spec.kind == ParameterKind::control || all_finite(arena_.gradient(entry))) continue;
        own_health_.note(static_cast<int64_t>(entry), is_statistic(arena_.entries()[entry].spec.kind));
    }
}

// Zeros travel in their place, so that large statistics do not pass for rounded gradients.
void GradientReducer::take_exact_parts(const Bucket& bucket) {
    for (const ExactPart& part : exact_parts_) {
        if (part.entry < bucket.entry_begin || part.entry >= bucket.entry_end) continue;
        const std::span<float> gradient = arena_.gradient(part.entry);
        std::ranges::copy(gradient, part.place.begin());
        std::ranges::fill(gradient, 0.0F);
    }
}

void GradientReducer::finish() {
    ready_up_to(arena_.entries().size());
    launch_ready_buckets();
    for (const Work& work : works_) work.wait();
    exact_work_.wait();
    for (const ExactPart& part : exact_parts_) std::ranges::copy(part.place, arena_.gradient(part.entry).begin());
    for (size_t index = 0; index < works_.size(); ++index) {
        const WorkTimes times = works_[index].times();
        records_[index].start_ns = times.start_ns;
        records_[index].arrived_ns = times.arrived_ns;
        records_[index].end_ns = times.end_ns;
    }
}

}  // namespace lockstep
