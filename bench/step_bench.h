// Times one training step (forward, backward, SGD update) of a model on synthetic data, or its inference alone, in one process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "nn/executor.h"

namespace lockstep::bench {

struct StepBenchOptions {
    std::string model = "resnet50";
    std::string backend = "onednn";
    int batch = 32;
    int threads = 1;
    Precision precision = Precision::fp32;
    Fusion fusion = Fusion::all;
    Autotune autotune = Autotune::heuristic;
    bool exact_convolution = false;
    Recompute recompute = Recompute::off;
    Phase phase = Phase::training;                        // evaluation: forward with running statistics, nothing else
    bool plain_between_ops = false, share_memory = true;  // as in BackendOptions
    int64_t image_size = 0;                               // 0: the model's usual one
    int64_t num_classes = 0;                              // 0: the model's usual number
    int warmup_steps = 2;
    int steps = 10;
    bool layers = false;  // also time the ops, in extra steps
};

struct KindTime {
    std::string kind;  // "conv", "batch_norm", ...
    int ops = 0;
    double forward_ms = 0.0, backward_ms = 0.0;  // medians of the sums over the ops of this kind
};

struct StepBenchResult {
    StepBenchOptions options;  // with sizes filled in
    Spread images_per_s;
    Spread step_ms;
    double forward_ms = 0.0, backward_ms = 0.0, optimizer_ms = 0.0;  // medians
    double macs_per_image = 0.0;               // training: 3 x forward, less the first layer's unneeded input gradient
    double first_loss = 0.0, last_loss = 0.0;  // mean per image
    MemoryUse memory;
    size_t parameter_bytes = 0;      // values + gradients + optimizer state
    size_t peak_resident_bytes = 0;  // of the process
    std::string backend_description;
    std::vector<KindTime> layers;  // most expensive first; empty unless asked for
};

// Throws ConfigError for an unknown model, backend or impossible size.
StepBenchResult run_step_bench(const StepBenchOptions& options);

std::string to_json(const StepBenchResult& result);  // one object, with the machine's facts
std::string to_text(const StepBenchResult& result);  // for people

}  // namespace lockstep::bench
