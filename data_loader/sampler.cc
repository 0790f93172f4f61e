#include "data_loader/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/random.h"

namespace lockstep {

WorkerRange Sampler::workers_of_rank(int64_t step, int rank, int world_size) const {
    check(world_size > 0 && rank >= 0 && rank < world_size, "workers_of_rank: rank outside the world");
    const int64_t present = workers_in_step(step);
    const int64_t dealt = options_.fixed_places ? workers_in_full_step() : present;
    // The first ranks take one more when the division leaves a rest.
    const int64_t each = dealt / world_size;
    const int64_t rest = dealt % world_size;
    const int64_t first = rank * each + std::min<int64_t>(rank, rest);
    return {std::min(first, present), std::min(first + each + (rank < rest ? 1 : 0), present)};
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
    if (options.batch_global < 1 || options.per_replica < 1) {
        throw ConfigError(
            fmt::format("batch.global {} and batch.per_replica {} must be at least 1", options.batch_global, options.per_replica));
    }
    if (steps_per_epoch() < 1) {
        throw ConfigError(
            fmt::format("an epoch has no step: {} images do not fill a global batch of {} and the remainder is dropped; lower "
                        "batch.global, set data.remainder=keep or add images",
                        options.sample_count, options.batch_global));
    }
}

int64_t Sampler::steps_per_epoch() const {
    const int64_t whole = options_.sample_count / options_.batch_global;
    const bool rest = options_.sample_count % options_.batch_global != 0;
    return whole + (rest && options_.keep_remainder ? 1 : 0);
}

int64_t Sampler::samples_used_per_epoch() const {
    return options_.keep_remainder ? options_.sample_count : steps_per_epoch() * options_.batch_global;
}

int64_t Sampler::samples_in_step(int64_t step) const {
    const int64_t begin = step % steps_per_epoch() * options_.batch_global;
    return std::clamp<int64_t>(samples_used_per_epoch() - begin, 0, options_.batch_global) - missing_in(step);
}

int64_t Sampler::workers_in_step(int64_t step) const {
    return (samples_in_step(step) + options_.per_replica - 1) / options_.per_replica;
}

int64_t Sampler::samples_in_worker(int64_t step, int64_t worker) const {
    return std::clamp<int64_t>(samples_in_step(step) - worker * options_.per_replica, 0, options_.per_replica);
}

DataPlace Sampler::place_before(int64_t step) const { return {.epoch = step / steps_per_epoch(), .samples = position(step, 0)}; }

std::vector<int64_t> Sampler::permutation(int64_t epoch) const {
    std::vector<int64_t> order(static_cast<size_t>(options_.sample_count));
    permutation(epoch, order);
    return order;
}

void Sampler::permutation(int64_t epoch, std::span<int64_t> order) const {
    check(std::ssize(order) == options_.sample_count, "Sampler::permutation: the output has another size");
    std::iota(order.begin(), order.end(), int64_t{0});
    if (!options_.shuffle) return;
    RandomStream random(options_.seed, "shuffle", static_cast<uint64_t>(epoch));
    for (size_t last = order.size(); last > 1; --last) std::swap(order[last - 1], order[random.below(last)]);
}

int64_t Sampler::position(int64_t step, int64_t worker) const {
    return step % steps_per_epoch() * options_.batch_global + missing_in(step) + worker * options_.per_replica;
}

int64_t continue_from(const DataPlace& place, SamplerOptions& options) {
    options.short_step = options.used_before = 0;
    const Sampler sampler(options);
    const int64_t first = place.epoch * sampler.steps_per_epoch();
    if (place.samples >= sampler.samples_used_per_epoch()) return first + sampler.steps_per_epoch();
    options.short_step = first + place.samples / options.batch_global;
    options.used_before = place.samples % options.batch_global;
    return options.short_step;
}

}  // namespace lockstep
