// What a training has before its ranks are connected, and what all of them must have alike.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "configs/experiment.h"
#include "core/world.h"
#include "data_loader/source.h"
#include "launch/threads.h"
#include "trainer/agreement.h"
#include "trainer/course.h"

namespace lockstep {

// What follows from configuration and data alone, the same on every rank.
struct TrainingSetup {
    ThreadBudget threads;
    std::unique_ptr<Source> train, val;  // val null: no validation
    int64_t num_classes = 0;
    std::optional<Course> course;
};

// Binds this process to its cores and sets the size of its thread pool. Throws ConfigError and DataError.
TrainingSetup set_up_training(const Experiment& experiment, const World& world);

std::vector<AgreementFact> facts_to_agree_on(const Experiment& experiment, const TrainingSetup& setup);

// Every size of virtual worker that an epoch has: the full one, and the short one at the end of a remainder.
std::vector<int> worker_sizes(SamplerOptions options);

}  // namespace lockstep
