// Sums the gradients of all ranks bucket by bucket, while backward is still running.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/node_sharing.h"
#include "nn/executor.h"
#include "report/records.h"
#include "trainer/bucket_plan.h"
#include "trainer/gradient_tree.h"
#include "trainer/nan_origin.h"

namespace lockstep {

// A step: begin; backward of the last micro-step with this sink; write the control entry; finish. Every rank issues the same
// buckets in the same order. Nothing is allocated after construction. One thread.
class GradientReducer final : public GradientSink {
public:
    // `overlap` false: every bucket starts in finish(), so nothing is hidden; the sums are the same bits. With a `tree` (which may
    // be null) a bucket's ready gradients are the last leaf, and its sum over this rank's leaves is formed before it starts. With a
    // `node` (which may be null) a rank gets of a bucket's sum its own slice alone; the last bucket, small and with the control
    // entry in it, goes to all.
    GradientReducer(Communicator& communicator, ParameterArena& arena, BucketPlan plan, bool overlap, GradientTree* tree = nullptr,
                    NodeSharing* node = nullptr);

    // Waits for what is still under way after a failure: the gradients must outlive it.
    ~GradientReducer() override;

    void begin(int64_t step);
    void ready_up_to(size_t entry_end) override;  // starts every bucket that is now complete

    // All entries are final, control included. Waits for the peers: returns when every bucket holds the sum over all ranks, as far
    // as this rank gets it. Throws CommError naming peer, step and bucket; then no rank may apply the step.
    void finish();

    // This rank's own gradients of the step, looked at before they were added to the others'.
    const OwnHealth& own_health() const { return own_health_; }

    const BucketPlan& plan() const { return plan_; }
    std::span<const BucketRecord> records() const { return records_; }  // of the finished step

private:
    // What must not be rounded, with its place in exact_.
    struct ExactPart {
        size_t entry = 0;
        std::span<float> place;
    };

    void gather_exact_parts();
    void launch_ready_buckets();
    void take_exact_parts(const Bucket& bucket);
    void look_at(const Bucket& bucket);

    Communicator& communicator_;
    ParameterArena& arena_;
    const BucketPlan plan_;
    const bool overlap_;
    GradientTree* const tree_;
    NodeSharing* const node_;
    std::vector<Work> works_;
    // Where gradients are rounded on their way (comm.wire), batch-norm statistics and control travel apart from them, as they are,
    // together and last. Empty where nothing is rounded: there they ride in the buckets.
    std::vector<ExactPart> exact_parts_;
    std::vector<float> exact_;
    Work exact_work_;
    std::vector<BucketRecord> records_;
    OwnHealth own_health_;
    int64_t step_ = 0;
    size_t ready_buckets_ = 0;     // their last gradient is final
    size_t launched_buckets_ = 0;  // <= ready
};

}  // namespace lockstep
