// Lockstep in the allreduce benchmark. Settings: backend; algorithm, as comm.algorithm, or `fastest`, which is auto under
// run.reproducible: off; memory = segment (gradients born where the collectives are
// fastest) or private (ordinary memory).
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "bench/contestant.h"
#include "bench/peers/meeting_point.h"
#include "collectives/communicator.h"
#include "core/tensor.h"

namespace lockstep::bench {

namespace {

class LockstepAllreducer final : public Allreducer {
public:
    // As a run does it: links are measured at the start. The folder has no table that somebody has kept.
    static PlanOptions plan_options(const ContestantPlan& plan) {
        const std::string algorithm = plan.setting("algorithm");
        const bool fastest = algorithm == "fastest";
        return {.algorithm = fastest ? "auto" : algorithm,
                .order = fastest ? SumOrder::any : SumOrder::of_one_world,
                .probing = Probing::unknown,
                .cache_folder = plan.folder};
    }

    LockstepAllreducer(const ContestantPlan& plan, int rank) : meeting_(plan, rank) {
        const auto bytes = static_cast<size_t>(plan.buffer_count) * sizeof(float);
        const bool in_segment = plan.setting("memory") == "segment";
        communicator_ = make_communicator(meeting_.world(), meeting_.store(),
                                          {.backend = plan.setting("backend"),
                                           .segment_bytes = in_segment ? bytes + kSlackBytes : size_t{0},
                                           .interface = plan.interface,
                                           .plan = plan_options(plan)});
        MemoryPool& pool = in_segment ? communicator_->gradient_pool() : private_pool_;
        buffer_ = pool.allocate(bytes);
    }

    std::string version() const override { return fmt::format("{} backend", communicator_->name()); }
    std::span<float> buffer() override { return buffer_.f32(); }

    void prepare(TensorViews unit) override {
        unit_ = unit;
        works_.resize(unit.size());
    }

    // All tensors in flight, then all waited for: as the trainer does it.
    void allreduce() override {
        for (size_t tensor = 0; tensor < unit_.size(); ++tensor) {
            works_[tensor] = communicator_->allreduce(unit_[tensor], {.what = "benchmark"});
        }
        for (const Work& work : works_) work.wait();
    }

private:
    static constexpr size_t kSlackBytes = size_t{4} << 20;  // for the pool's own alignment

    MeetingPoint meeting_;
    HeapPool private_pool_;
    std::unique_ptr<Communicator> communicator_;
    Buffer buffer_;
    TensorViews unit_;
    std::vector<Work> works_;
};

int body(const ContestantPlan& plan) {
    const int rank = rank_of(plan);
    bind_to_cores(plan, rank);
    LockstepAllreducer library(plan, rank);
    take_turns(plan, rank, library);
    return 0;
}

}  // namespace

}  // namespace lockstep::bench

int main(int argc, char** argv) { return lockstep::bench::run_contestant(argc, argv, lockstep::bench::body); }
