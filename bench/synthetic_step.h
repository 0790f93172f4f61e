// A replica of one network with synthetic images, made ready for steps in one process: what the step benchmarks measure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/models.h"
#include "nn/executor.h"
#include "optim/optimizer.h"

namespace lockstep::bench {

// The model with its usual number of classes, image size and channels.
ModelOptions usual_model(const std::string& arch);

struct SyntheticStepOptions {
    std::string backend = "onednn";
    BackendOptions compute;
    int batch = 32;
    Phase phase = Phase::training;  // evaluation: forward only, no update
    SgdOptions optimizer;
    std::string cache_folder;  // of Autotune::measure; empty: the user's
};

class SyntheticStep {
public:
    // `graph` is only read here. Everything a step needs is made before the first one.
    SyntheticStep(const Graph& graph, const SyntheticStepOptions& options);

    struct Times {
        double forward_ms = 0.0, backward_ms = 0.0, update_ms = 0.0;
        double loss = 0.0;  // mean per image
        double total_ms() const { return forward_ms + backward_ms + update_ms; }
    };
    Times run();

    StepTimes time_steps() { return executor_->time_steps(input()); }
    Executor& executor() { return *executor_; }
    const ParameterArena& arena() const { return arena_; }
    size_t parameter_bytes() const;  // values + gradients + optimizer state
    std::string description() const { return backend_->description(); }

private:
    std::unique_ptr<Executor> compile(const Graph& graph, const SyntheticStepOptions& options);
    ForwardInput input() const { return {.images = images_, .labels = labels_, .dropout_key = 1}; }
    void fill_batch(const Graph& graph);

    HeapPool pool_;
    std::unique_ptr<Backend> backend_;
    std::unique_ptr<Optimizer> optimizer_;
    ParameterArena arena_;
    std::unique_ptr<Executor> executor_;
    int batch_;
    bool trains_;
    std::vector<float> images_;
    std::vector<int32_t> labels_;
};

}  // namespace lockstep::bench
