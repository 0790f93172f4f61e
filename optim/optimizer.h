// Updates the arena's values from its summed gradients. The division by the number of images in the global batch happens here,
// once. Statistics entries become keep * old + (1 - keep) * summed statistic / images, keep being the entry's; control is left
// alone. Only what the arena says this rank owns is looked at and changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/parameter_arena.h"

namespace lockstep {

struct SgdOptions {
    double momentum = 0.9;
    bool nesterov = true;
    // v <- momentum * v + rate * g with v scaled by rate / previous rate whenever the rate changes ("momentum correction",
    // arXiv:1706.02677 section 3); false: v <- momentum * v + g, w <- w - rate * v, PyTorch's form. The two agree; both are kept
    // so that each proves the other.
    bool folded = false;
    double weight_decay = 1e-4;
    bool decay_batch_norm = false;  // scale and shift
    bool decay_bias = false;
};

struct StepScale {
    double rate = 0.0;
    double images = 1.0;  // in the global batch of this step
};

// What the gradients looked like, computed before any value changes.
struct GradientHealth {
    double squared_norm = 0.0;     // of the mean gradient over all trainable entries, as far as owned
    int64_t first_bad_entry = -1;  // an entry with NaN or Inf; -1: none
};

class Optimizer {
public:
    virtual ~Optimizer() = default;
    virtual int state_buffer_count() const = 0;
    // Reads the summed gradients. No change is made when it reports a bad entry; the caller stops all ranks.
    virtual GradientHealth inspect(const ParameterArena& arena, double images) const = 0;
    virtual void step(ParameterArena& arena, const StepScale& scale) = 0;
    // What a checkpoint must keep besides the state buffers: name -> value.
    virtual std::vector<std::pair<std::string, double>> scalars() const = 0;
    virtual void restore_scalars(const std::vector<std::pair<std::string, double>>& scalars) = 0;
};

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options, int threads);

}  // namespace lockstep
