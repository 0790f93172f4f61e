#include "trainer/replica.h"

#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "interop/arena_tensors.h"
#include "nn/convolution_cache.h"
#include "trainer/recipe.h"

namespace lockstep {

namespace {

constexpr int64_t kPoolSlackBytes = 64 << 10;  // page rounding of the pool and the arena's alignment gaps

}  // namespace

size_t ReplicaPlan::gradient_bytes() const {
    int64_t floats = ParameterArena::kControlCount;
    for (const ParameterEntry& entry : entries) floats += (entry.physical_count + 15) / 16 * 16;
    return static_cast<size_t>(floats) * sizeof(float) + kPoolSlackBytes;
}

ReplicaPlan plan_replica(const Experiment& experiment, int64_t num_classes, int threads) {
    ReplicaPlan plan{.graph = build_model(model_options(experiment, num_classes)),
                     .backend = make_backend(experiment.train.backend, backend_options(experiment, threads)),
                     .batch_per_replica = experiment.batch.per_replica};
    plan.entries = plan.backend->plan_parameters(plan.graph, static_cast<int>(plan.batch_per_replica));
    return plan;
}

Replica::Replica(ReplicaPlan plan, MemoryPool& gradient_pool, int state_buffers)
    : plan_(std::move(plan)),
      classes_(class_count(plan_.graph)),
      arena_(plan_.entries, private_pool_, gradient_pool, state_buffers) {}

ConvolutionTable Replica::measure_convolutions(Phase phase, const std::string& folder) {
    return measured_convolutions(*plan_.backend, plan_.graph, static_cast<int>(plan_.batch_per_replica), phase, arena_, folder);
}

void Replica::compile_training(int batch) {
    for (const auto& executor : training_) {
        if (executor->batch() == batch) return;
    }
    training_.push_back(plan_.backend->compile(plan_.graph, batch, Phase::training, arena_));
}

Executor& Replica::training(int batch) {
    for (const auto& executor : training_) {
        if (executor->batch() == batch) return *executor;
    }
    check(false, "every training batch size is compiled before step 0");
    std::abort();
}

Executor& Replica::evaluation() {
    if (!evaluation_) {
        evaluation_ = plan_.backend->compile(plan_.graph, static_cast<int>(plan_.batch_per_replica), Phase::evaluation, arena_);
    }
    return *evaluation_;
}

void Replica::initialize(uint64_t seed) { initialize_parameters(*plan_.backend, arena_, seed); }

std::string Replica::load_weights(const std::string& path, bool partial) {
    const auto file = SafetensorsFile::open(path);
    const TensorMatch match = match_tensors(arena_, file->tensors(), EntrySet::all);
    if (!match.complete() && !partial) {
        throw DataError(fmt::format("{} does not fit {}, nothing was loaded: {}; to load what fits set model.partial_weights=true",
                                    path, plan_.graph.name, match.list()));
    }
    load_tensors(*plan_.backend, arena_, file->tensors(), match, arena_.values(), path);
    return match.complete() ? std::string() : match.list();
}

}  // namespace lockstep
