// Stochastic gradient descent with momentum. Every element is independent of all others and sums are kept per chunk and added in
// chunk order, so nothing depends on the number of threads.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "core/parallel.h"
#include "optim/optimizer.h"

namespace lockstep {

namespace {

constexpr int64_t kChunkCount = 16'384;  // floats: value, gradient and momentum of a chunk stay in the second-level cache

enum class Rule : uint8_t { descend, average };

// A stretch of one entry that one thread updates in one go.
struct Chunk {
    size_t entry = 0;
    int64_t begin = 0, count = 0;  // floats from the start of values and gradients
    int64_t state_begin = 0;       // floats from the start of the state
    Rule rule = Rule::descend;
    float decay = 0.0F;  // of descend
    float keep = 0.0F;   // of average
};

float decay_of(ParameterKind kind, const SgdOptions& options) {
    const auto decay = static_cast<float>(options.weight_decay);
    switch (kind) {
        case ParameterKind::weight:
            return decay;
        case ParameterKind::bias:
            return options.decay_bias ? decay : 0.0F;
        case ParameterKind::bn_scale:
        case ParameterKind::bn_shift:
            return options.decay_batch_norm ? decay : 0.0F;
        default:
            return 0.0F;
    }
}

// The owned part of every entry, in the order of the buffers. The state lies range behind range.
std::vector<Chunk> plan_chunks(const ParameterArena& arena, const SgdOptions& options) {
    std::vector<Chunk> chunks;
    int64_t state_offset = 0;
    for (const ArenaRange& range : arena.owned()) {
        for (size_t index = 0; index < arena.entries().size(); ++index) {
            const ParameterEntry& entry = arena.entries()[index];
            if (entry.spec.kind == ParameterKind::control) continue;
            const int64_t first = std::max(range.offset, entry.offset);
            const int64_t last = std::min(range.offset + range.count, entry.offset + entry.physical_count);
            for (int64_t begin = first; begin < last; begin += kChunkCount) {
                chunks.push_back({.entry = index,
                                  .begin = begin,
                                  .count = std::min(kChunkCount, last - begin),
                                  .state_begin = state_offset + begin - range.offset,
                                  .rule = is_statistic(entry.spec.kind) ? Rule::average : Rule::descend,
                                  .decay = decay_of(entry.spec.kind, options),
                                  .keep = entry.spec.keep});
            }
        }
        state_offset += range.count;
    }
    return chunks;
}

// The numbers of one step, the same for all chunks.
struct Update {
    float gradient_scale = 1.0F;  // 1 / images
    float momentum = 0.0F;        // on the old velocity; with momentum correction when folded
    float rate = 0.0F;            // on the direction; 1 when folded, where it is inside the velocity
    float inside = 1.0F;          // on the gradient as it enters the velocity; the rate when folded
    float lookahead = 0.0F;       // Nesterov: direction = lookahead * velocity + inside * gradient
};

void descend_nesterov(float* value, const float* gradient, float* velocity, int64_t count, float decay, const Update& update) {
#pragma omp simd
    for (int64_t index = 0; index < count; ++index) {
        const float slope = update.inside * (update.gradient_scale * gradient[index] + decay * value[index]);
        velocity[index] = update.momentum * velocity[index] + slope;
        value[index] -= update.rate * (slope + update.lookahead * velocity[index]);
    }
}

void descend_plain(float* value, const float* gradient, float* velocity, int64_t count, float decay, const Update& update) {
#pragma omp simd
    for (int64_t index = 0; index < count; ++index) {
        const float slope = update.inside * (update.gradient_scale * gradient[index] + decay * value[index]);
        velocity[index] = update.momentum * velocity[index] + slope;
        value[index] -= update.rate * velocity[index];
    }
}

void average(float* value, const float* gradient, int64_t count, float keep, const Update& update) {
    const float fresh = (1.0F - keep) * update.gradient_scale;
#pragma omp simd
    for (int64_t index = 0; index < count; ++index) value[index] = keep * value[index] + fresh * gradient[index];
}

// A float squared never overflows a double, so the sum is finite exactly when every element is.
double sum_of_squares(const float* data, int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t index = 0; index < count; ++index) sum += static_cast<double>(data[index]) * static_cast<double>(data[index]);
    return sum;
}

class Sgd final : public Optimizer {
public:
    Sgd(const SgdOptions& options, int threads) : options_(options), threads_(std::max(1, threads)) {}

    int state_buffer_count() const override { return 1; }

    GradientHealth inspect(const ParameterArena& arena, double images) const override {
        plan(arena);
        const float* gradients = arena.gradients().data();
        const auto chunk_count = static_cast<int64_t>(chunks_.size());
        parallel_for(threads_, chunk_count, [&](int64_t index) {
            const Chunk& chunk = chunks_[static_cast<size_t>(index)];
            squares_[static_cast<size_t>(index)] = sum_of_squares(gradients + chunk.begin, chunk.count);
        });
        GradientHealth health;
        for (size_t index = 0; index < chunks_.size(); ++index) {
            if (!std::isfinite(squares_[index]) && health.first_bad_entry < 0) {
                health.first_bad_entry = static_cast<int64_t>(chunks_[index].entry);
            }
            if (chunks_[index].rule == Rule::descend) health.squared_norm += squares_[index];
        }
        health.squared_norm /= images * images;
        return health;
    }

    void step(ParameterArena& arena, const StepScale& scale) override {
        plan(arena);
        const Update update = prepare(scale);
        float* values = arena.values().data();
        const float* gradients = arena.gradients().data();
        float* velocities = arena.state(0).data();
        const auto chunk_count = static_cast<int64_t>(chunks_.size());
        parallel_for(threads_, chunk_count, [&](int64_t index) {
            const Chunk& chunk = chunks_[static_cast<size_t>(index)];
            float* value = values + chunk.begin;
            const float* gradient = gradients + chunk.begin;
            float* velocity = velocities + chunk.state_begin;
            if (chunk.rule == Rule::average) {
                average(value, gradient, chunk.count, chunk.keep, update);
            } else if (options_.nesterov) {
                descend_nesterov(value, gradient, velocity, chunk.count, chunk.decay, update);
            } else {
                descend_plain(value, gradient, velocity, chunk.count, chunk.decay, update);
            }
        });
        previous_rate_ = scale.rate;
    }

    std::vector<std::pair<std::string, double>> scalars() const override { return {{"previous_rate", previous_rate_}}; }

    void restore_scalars(const std::vector<std::pair<std::string, double>>& scalars) override {
        for (const auto& [name, value] : scalars) {
            if (name != "previous_rate") {
                throw DataError(
                    fmt::format("the checkpoint's optimizer state has an unknown value {}; it belongs to another "
                                "optimizer than sgd",
                                name));
            }
            previous_rate_ = value;
        }
    }

private:
    // The chunks follow from the layout and what is owned; they are planned at the first call, before the steady state.
    void plan(const ParameterArena& arena) const {
        if (!chunks_.empty()) return;
        check(arena.state_buffer_count() >= 1, "SGD needs an arena with one state buffer");
        chunks_ = plan_chunks(arena, options_);
        squares_.resize(chunks_.size());
    }

    Update prepare(const StepScale& scale) const {
        Update update{.gradient_scale = static_cast<float>(1.0 / scale.images),
                      .momentum = static_cast<float>(options_.momentum),
                      .rate = static_cast<float>(scale.rate),
                      .lookahead = static_cast<float>(options_.momentum)};
        if (!options_.folded) return update;
        if (!(scale.rate > 0.0)) {
            throw ConfigError(
                "optim.folded_momentum keeps the rate inside the momentum and so needs a rate above 0 at every step; "
                "set optim.folded_momentum=false");
        }
        const double correction = previous_rate_ > 0.0 ? scale.rate / previous_rate_ : 1.0;
        update.momentum = static_cast<float>(options_.momentum * correction);
        update.inside = static_cast<float>(scale.rate);
        update.rate = 1.0F;
        return update;
    }

    const SgdOptions options_;
    const int threads_;
    double previous_rate_ = 0.0;  // 0: no step yet
    mutable std::vector<Chunk> chunks_;
    mutable std::vector<double> squares_;
};

void require_fraction(double value, const char* key) {
    if (!(value >= 0.0 && value < 1.0))
        throw ConfigError(fmt::format("{}: found {}; allowed: 0 up to, not including, 1", key, value));
}

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options, int threads) {
    require_fraction(options.momentum, "optim.momentum");
    if (!(options.weight_decay >= 0.0) || !std::isfinite(options.weight_decay)) {
        throw ConfigError(fmt::format("optim.weight_decay: found {}; allowed: 0 and more", options.weight_decay));
    }
    return std::make_unique<Sgd>(options, threads);
}

}  // namespace lockstep
