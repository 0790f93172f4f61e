#include "data_loader/loader.h"

#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "data_loader/batch_ring.h"
#include "data_loader/batch_sequence.h"
#include "data_loader/pipeline.h"

namespace lockstep {

namespace {

constexpr int64_t kStopPatienceMs = 1'000;  // an image in hand takes milliseconds; storage that is gone takes forever

void check_options(const LoaderOptions& options) {
    validate(options.pipeline);
    if (options.worker_threads < 1 || options.batches_ahead < 1) {
        throw ConfigError(fmt::format("data.workers {} and data.batches_ahead {} must be at least 1", options.worker_threads,
                                      options.batches_ahead));
    }
}

class RingLoader final : public DataLoader {
public:
    RingLoader(const Source& source, std::unique_ptr<BatchSequence> sequence, const LoaderOptions& options,
               Replacement replacement) {
        check_options(options);
        ring_ = std::make_shared<BatchRing>(source, std::move(sequence), options, replacement);
        try {
            for (int worker = 0; worker < ring_->worker_count(); ++worker) {
                workers_.emplace_back([ring = ring_, worker] { ring->work(worker); });
            }
        } catch (...) {  // the system refuses a thread
            end_workers();
            throw;
        }
    }
    RingLoader(const RingLoader&) = delete;
    RingLoader& operator=(const RingLoader&) = delete;

    ~RingLoader() override { end_workers(); }

    std::optional<Batch> next() override { return ring_->next(); }
    LoaderStatistics statistics() const override { return ring_->statistics(); }

private:
    // A thread that storage never answers is left behind, with the ring that it may still write to: the process is about to end.
    void end_workers() {
        const bool all_ended = ring_->stop(kStopPatienceMs);
        if (!all_ended) log::write_warn_here("loader threads that wait for storage are left behind");
        for (std::thread& worker : workers_) {
            if (all_ended) {
                worker.join();
            } else {
                worker.detach();
            }
        }
    }

    std::shared_ptr<BatchRing> ring_;
    std::vector<std::thread> workers_;
};

}  // namespace

std::unique_ptr<DataLoader> make_train_loader(const Source& source, const TrainPlan& plan, const LoaderOptions& options) {
    check(plan.sampler.sample_count == source.size(), "make_train_loader: the plan was made for another source");
    LoaderOptions whole = options;
    if (whole.slot_capacity == 0) whole.slot_capacity = static_cast<int>(plan.sampler.per_replica);
    check(whole.slot_capacity >= plan.sampler.per_replica, "make_train_loader: a slot must hold a virtual worker");
    return std::make_unique<RingLoader>(source, std::make_unique<TrainSequence>(plan), whole, Replacement::next_good);
}

std::unique_ptr<DataLoader> make_evaluation_loader(const Source& source, int rank, int world_size, const LoaderOptions& options) {
    check(options.slot_capacity > 0, "make_evaluation_loader: slot_capacity is the batch and must be positive");
    check(world_size > 0 && rank >= 0 && rank < world_size, "make_evaluation_loader: rank outside the world");
    auto sequence = std::make_unique<EvaluationSequence>(source.size(), options.slot_capacity, rank, world_size);
    return std::make_unique<RingLoader>(source, std::move(sequence), options, Replacement::empty);
}

}  // namespace lockstep
