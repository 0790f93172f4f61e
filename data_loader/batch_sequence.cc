#include "data_loader/batch_sequence.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace lockstep {

TrainSequence::TrainSequence(const TrainPlan& plan)
    : plan_(plan),
      sampler_(plan.sampler),
      order_(sampler_, plan.start_step / sampler_.steps_per_epoch(),
             std::max(plan.stop_step - 1, plan.start_step) / sampler_.steps_per_epoch()),
      step_(plan.start_step) {
    check(plan.start_step >= 0, "TrainPlan: the first step is negative");
}

bool TrainSequence::next(BatchAssignment& assignment, std::span<int64_t> samples) {
    for (; step_ < plan_.stop_step; ++step_, worker_ = -1) {
        const int64_t epoch = step_ / sampler_.steps_per_epoch();
        const int64_t step_in_epoch = step_ % sampler_.steps_per_epoch();
        const WorkerRange mine = sampler_.workers_of_rank(step_, plan_.rank, plan_.world_size);
        worker_ = worker_ < 0 ? mine.first : worker_ + 1;
        if (worker_ >= mine.last) continue;
        const int64_t count = sampler_.samples_in_worker(step_, worker_);
        assignment = {epoch, step_in_epoch, worker_, static_cast<int>(count)};
        const std::span<const int64_t> order = order_.get(epoch);
        const auto first = static_cast<size_t>(sampler_.position(step_, worker_));
        std::copy_n(order.begin() + static_cast<ptrdiff_t>(first), count, samples.begin());
        return true;
    }
    return false;
}

EvaluationSequence::EvaluationSequence(int64_t sample_count, int64_t batch, int rank, int world_size)
    : sample_count_(sample_count), batch_(batch), world_size_(world_size), next_batch_(rank) {}

bool EvaluationSequence::next(BatchAssignment& assignment, std::span<int64_t> samples) {
    const int64_t first = next_batch_ * batch_;
    if (first >= sample_count_) return false;
    const int64_t count = std::min(batch_, sample_count_ - first);
    assignment = {0, next_batch_ / world_size_, next_batch_, static_cast<int>(count)};
    std::iota(samples.begin(), samples.begin() + static_cast<ptrdiff_t>(count), first);
    next_batch_ += world_size_;
    return true;
}

}  // namespace lockstep
