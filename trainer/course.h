// How the steps of a run map to epochs, samples and rates: what follows from the global batch, and from the place in the data where
// this start of the run begins. Pure.
//
// There are two counts of steps. A run's own never goes back; it names checkpoints and records. The planned one, which sampler and
// rate use, is that of a run that has had today's global batch from the begin. The two differ by a constant, which is 0 until a run
// goes on with another global batch (elastic.batch: scale).
#pragma once

#include <cstdint>
#include <optional>

#include "configs/experiment.h"
#include "data_loader/sampler.h"
#include "optim/learning_rate.h"

namespace lockstep {

struct Course {
    Sampler sampler;
    LearningRate rate;
    int64_t total_steps = 0;  // of the run's own count, as all `step` here
    int64_t shift = 0;        // planned minus own

    int64_t planned(int64_t step) const { return step + shift; }
    double rate_at(int64_t step) const { return rate.at(planned(step)); }
    double epoch_at(int64_t step) const;                                                    // after so many steps; a fraction
    DataPlace place_at(int64_t step) const { return sampler.place_before(planned(step)); }  // likewise
    // Whether something that is done every so often is due after so many steps; at the end it always is.
    bool is_due(const std::optional<Duration>& every, int64_t step) const;
};

// Of a run that has made `step` steps and stands at `place` in the data. `experiment.batch.global` is that from here on. Throws
// ConfigError when no step fits or the warmup is as long as the run.
Course plan_course(const Experiment& experiment, int64_t sample_count, int64_t step = 0, const DataPlace& place = {});

// The global batch with which a run goes on that has had `batch_then` on `world_then` ranks, as elastic.batch says. Throws
// ConfigError when the scaled one is no whole number of virtual workers.
int64_t continued_batch(const Experiment& experiment, int64_t batch_then, int world_then, int world_now);

}  // namespace lockstep
