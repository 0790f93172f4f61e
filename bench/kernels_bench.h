// How near the memory-bound layers come to the speed of memory: each of them alone, on tensors that no cache holds, against this
// machine's copy bandwidth measured in the same run.
#pragma once

#include <string>
#include <vector>

#include "nn/executor.h"

namespace lockstep::bench {

struct KernelsBenchOptions {
    std::string backend = "onednn";
    BackendOptions compute;
    int repeats = 9;  // of each kernel, after one that does not count
    // The tensors: images x channels x side x side, 98 MiB in fp32. Smaller ones are for tests.
    int images = 32, channels = 64, side = 112;
    int64_t parameters = 25'557'032;  // of the optimizer's update: ResNet-50's
};

struct KernelTime {
    std::string kernel;  // "batch norm + ReLU", "SGD update", ...
    std::string part;    // "forward", "backward", "update"
    std::string code;    // the library's name for it, or "own"
    double bytes = 0.0;  // each operand once: the least that must move, also where a kernel passes over its input twice
    double ms = 0.0;     // median

    double gb_per_s() const { return ms > 0.0 ? bytes / ms / 1e6 : 0.0; }
};

struct KernelsBenchResult {
    KernelsBenchOptions options;
    std::string backend_description;
    double copy_gb_per_s = 0.0;  // the better of two measurements, before and after the kernels
    std::vector<KernelTime> kernels;

    double share_of_copy(const KernelTime& kernel) const { return kernel.gb_per_s() / copy_gb_per_s; }
};

// Throws ConfigError for impossible sizes or a backend that cannot tell its steps.
KernelsBenchResult run_kernels_bench(const KernelsBenchOptions& options);

std::string to_json(const KernelsBenchResult& result);  // one object on one line, with the machine's facts
std::string to_text(const KernelsBenchResult& result);  // for people

}  // namespace lockstep::bench
