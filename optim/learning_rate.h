// Step -> learning rate. Pure: no state, no I/O; the same for any number of ranks.
//
// peak = base * batch_global / base_batch (linear), with sqrt of the quotient (sqrt), or base (none). Warmup rises linearly per
// iteration from `warmup_from` to the peak: rate(s) = from + (peak - from) * (s + 1) / warmup_steps for s < warmup_steps
// (arXiv:1706.02677, section 2.2). `step_at` counts from step 0 of the run; cosine and polynomial fall from the peak at the end of
// warmup to `final_rate` at `total_steps`, so that no shape jumps when warmup ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct LearningRateOptions {
    enum class Scaling : uint8_t { none, sqrt, linear } scaling = Scaling::linear;
    enum class Shape : uint8_t { constant, step, cosine, polynomial } shape = Shape::constant;  // multistep is `step` with several
    double base = 0.1;
    int64_t base_batch = 256;
    int64_t batch_global = 256;
    int64_t warmup_steps = 0;
    double warmup_from = -1.0;     // < 0: `base`; never above the peak, whatever is asked
    std::vector<int64_t> step_at;  // step: multiply by `factor` at each of these steps; none inside warmup
    double factor = 0.1;
    double power = 2.0;       // polynomial
    double final_rate = 0.0;  // cosine and polynomial end here
    int64_t total_steps = 0;  // of the run; cosine and polynomial need it
};

class LearningRate {
public:
    explicit LearningRate(const LearningRateOptions& options);  // ConfigError for impossible values
    double at(int64_t step) const;
    double peak() const;
    double start() const;         // the value warmup rises from
    std::string warning() const;  // one line when warmup takes the whole run, so that the peak comes only at its end; else empty
    const LearningRateOptions& options() const { return options_; }

private:
    LearningRateOptions options_;
};

}  // namespace lockstep
