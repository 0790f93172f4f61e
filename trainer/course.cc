#include "trainer/course.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "trainer/recipe.h"

namespace lockstep {

namespace {

// The nearest numbers of ranks, below and above, for which a batch in proportion is a whole number of virtual workers.
std::string worlds_that_work(int64_t workers_then, int world_then, int world_now) {
    const auto works = [&](int world) { return workers_then * world % world_then == 0; };
    std::vector<int> found;
    for (int world = world_now - 1; world > 0 && found.empty(); --world) {
        if (works(world)) found.push_back(world);
    }
    int above = world_now + 1;
    while (!works(above)) ++above;  // a multiple of world_then does
    found.push_back(above);
    return fmt::format("{}", fmt::join(found, " or "));
}

}  // namespace

double Course::epoch_at(int64_t step) const {
    return static_cast<double>(planned(step)) / static_cast<double>(sampler.steps_per_epoch());
}

bool Course::is_due(const std::optional<Duration>& every, int64_t step) const {
    if (!every) return false;
    if (step == total_steps) return true;
    const bool in_epochs = every->unit == Duration::Unit::epochs;
    const double period = in_epochs ? every->amount * static_cast<double>(sampler.steps_per_epoch()) : every->amount;
    const int64_t at = in_epochs ? planned(step) : step;
    if (period <= 1.0) return true;
    // The k-th time is at the step nearest to k periods: half epochs of an odd number of steps must not drift off the epochs.
    const auto nearest = static_cast<int64_t>(std::llround(static_cast<double>(at) / period));
    for (const int64_t time : {nearest - 1, nearest, nearest + 1}) {
        if (time >= 1 && std::llround(static_cast<double>(time) * period) == at) return true;
    }
    return false;
}

Course plan_course(const Experiment& experiment, int64_t sample_count, int64_t step, const DataPlace& place) {
    SamplerOptions options = sampler_options(experiment, sample_count);
    const int64_t first = continue_from(place, options);
    const Sampler sampler(options);
    const int64_t steps_per_epoch = sampler.steps_per_epoch();
    check_schedule(experiment, steps_per_epoch);
    const Duration& duration = experiment.train.duration;
    const int64_t shift = first - step;
    // A number of epochs is one of planned steps, a number of steps one of the run's own.
    const int64_t total = duration.steps(steps_per_epoch) - (duration.unit == Duration::Unit::epochs ? shift : 0);
    return {.sampler = sampler,
            .rate = LearningRate(learning_rate_options(experiment, steps_per_epoch, total + shift)),
            .total_steps = total,
            .shift = shift};
}

int64_t continued_batch(const Experiment& experiment, int64_t batch_then, int world_then, int world_now) {
    if (!experiment.elastic.scales() || world_then == world_now) return batch_then;
    const int64_t per_replica = experiment.batch.per_replica;
    const int64_t workers_then = batch_then / per_replica;
    if (workers_then * world_now % world_then == 0) return workers_then * world_now / world_then * per_replica;
    throw ConfigError(fmt::format(
        "elastic.batch=scale: the global batch of {} images on {} ranks is {} virtual workers (batch.per_replica {}), of which {} "
        "ranks cannot have as many each; start {} ranks, or set elastic.batch=keep",
        batch_then, world_then, workers_then, per_replica, world_now, worlds_that_work(workers_then, world_then, world_now)));
}

}  // namespace lockstep
