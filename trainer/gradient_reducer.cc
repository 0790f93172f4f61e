#include "trainer/gradient_reducer.h"

#include <utility>

#include "core/clock.h"
#include "core/error.h"

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
        control_work_.wait();
    } catch (const Error&) {
        return;  // likewise
    }
}

void GradientReducer::begin(int64_t step) {
    step_ = step;
    ready_buckets_ = 0;
    launched_buckets_ = 0;
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
        const bool carries_control = launched_buckets_ + 1 == plan_.size();
        if (!carries_control && node_ != nullptr) {
            works_[launched_buckets_] = node_->reduce_to_slices(slice, label);
            continue;
        }
        if (!carries_control || communicator_.wire() == DataType::f32) {
            works_[launched_buckets_] = communicator_.allreduce(slice, label);
            continue;
        }
        // The image count divides every gradient: rounded on its way it would change them all.
        const std::span<float> control = arena_.control();
        works_[launched_buckets_] = communicator_.allreduce(slice.first(slice.size() - control.size()), label);
        control_work_ = communicator_.allreduce(control, {.what = "control", .step = step_});
    }
}

void GradientReducer::finish() {
    ready_up_to(arena_.entries().size());
    launch_ready_buckets();
    for (const Work& work : works_) work.wait();
    control_work_.wait();
    for (size_t index = 0; index < works_.size(); ++index) {
        const WorkTimes times = works_[index].times();
        records_[index].start_ns = times.start_ns;
        records_[index].arrived_ns = times.arrived_ns;
        records_[index].end_ns = times.end_ns;
    }
}

}  // namespace lockstep
