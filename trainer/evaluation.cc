#include "trainer/evaluation.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"
#include "nn/metrics.h"

namespace lockstep {

namespace {

size_t image_floats(const PipelineOptions& pipeline) {
    return static_cast<size_t>(pipeline.channels) * static_cast<size_t>(pipeline.height) * static_cast<size_t>(pipeline.width);
}

// Asks in each round whether any rank wishes to stop and hears the answer one round later, so that nobody waits for it.
class StopPoll {
public:
    StopPoll(Communicator& communicator, const StopSignals* signals, int64_t step)
        : communicator_(communicator), signals_(signals), step_(step) {}
    StopPoll(const StopPoll&) = delete;
    StopPoll& operator=(const StopPoll&) = delete;
    ~StopPoll() {
        try {
            asked_.wait();  // the answer's place must outlive the question
        } catch (const Error&) {
            return;  // the failure is being thrown already, or the next operation throws it
        }
    }

    bool stops() {
        if (signals_ == nullptr) return false;
        asked_.wait();
        if (wishes_ > 0.0F) return true;
        wishes_ = signals_->requested() ? 1.0F : 0.0F;
        asked_ = communicator_.allreduce(std::span(&wishes_, 1), {.what = "evaluation", .step = step_});
        return false;
    }

private:
    Communicator& communicator_;
    const StopSignals* const signals_;
    const int64_t step_;
    float wishes_ = 0.0F;  // of the question under way: 0, or how many ranks wish to stop
    Work asked_;
};

}  // namespace

EvaluationResult combine(const std::vector<BatchTally>& tallies) {
    BatchTally sum;
    for (const BatchTally& tally : tallies) {
        sum.loss_sum += tally.loss_sum;
        sum.count += tally.count;
        sum.top1 += tally.top1;
        sum.top5 += tally.top5;
    }
    if (sum.count == 0) return {};
    const auto count = static_cast<double>(sum.count);
    return {.count = sum.count,
            .loss = sum.loss_sum / count,
            .top1 = static_cast<double>(sum.top1) / count,
            .top5 = static_cast<double>(sum.top5) / count};
}

Evaluator::Evaluator(const Source& source, LoaderOptions options, Executor& executor, int64_t classes, Communicator& communicator)
    : source_(source),
      options_(std::move(options)),
      executor_(executor),
      classes_(classes),
      communicator_(communicator),
      images_(static_cast<size_t>(options_.slot_capacity) * image_floats(options_.pipeline)),
      labels_(static_cast<size_t>(options_.slot_capacity)) {
    check(executor_.batch() == options_.slot_capacity, "evaluation runs with the loader's batch");
}

BatchTally Evaluator::tally(const Batch& batch) {
    ForwardInput input{.images = batch.images, .labels = batch.labels};
    if (batch.count < options_.slot_capacity) {
        std::fill(std::copy(batch.images.begin(), batch.images.end(), images_.begin()), images_.end(), 0.0F);
        std::fill(std::copy(batch.labels.begin(), batch.labels.end(), labels_.begin()), labels_.end(), -1);
        input = {.images = images_, .labels = labels_};
    }
    BatchTally result{.loss_sum = executor_.forward(input)};
    result.count = std::ranges::count_if(input.labels, [](int32_t label) { return label >= 0; });  // -1: padding, or a bad image
    result.top1 = count_top_k(executor_.logits(), input.labels, classes_, 1);
    result.top5 = count_top_k(executor_.logits(), input.labels, classes_, 5);
    return result;
}

std::optional<EvaluationResult> Evaluator::run(int64_t step, const StopSignals* signals) {
    const auto world_size = static_cast<size_t>(communicator_.world().size);
    const auto rank = static_cast<size_t>(communicator_.world().rank);
    const auto batch_images = static_cast<size_t>(options_.slot_capacity);
    const size_t batch_count = (static_cast<size_t>(source_.size()) + batch_images - 1) / batch_images;
    const size_t rounds = (batch_count + world_size - 1) / world_size;

    std::vector<BatchTally> mine(rounds);
    const auto loader = make_evaluation_loader(source_, static_cast<int>(rank), static_cast<int>(world_size), options_);
    StopPoll poll(communicator_, signals, step);
    for (size_t round = 0; round < rounds; ++round) {  // the same number on all ranks, though the last has not a batch for all
        if (poll.stops()) return std::nullopt;
        if (const std::optional<Batch> batch = loader->next()) mine[round] = tally(*batch);
        communicator_.progress();
    }
    for (const std::string& bad : loader->statistics().bad_paths) bad_images_.insert(bad);

    std::vector<BatchTally> all(rounds * world_size);
    communicator_.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                            {.what = "evaluation", .step = step});
    std::vector<BatchTally> ordered(batch_count);
    for (size_t batch = 0; batch < batch_count; ++batch) ordered[batch] = all[batch % world_size * rounds + batch / world_size];
    return combine(ordered);
}

}  // namespace lockstep
