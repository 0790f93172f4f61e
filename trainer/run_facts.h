// What a training says of itself before its first step: on the screen, in run.json and in the report's head.
#pragma once

#include <string>

#include "collectives/communicator.h"
#include "configs/experiment.h"
#include "report/records.h"
#include "trainer/bucket_plan.h"
#include "trainer/manifest.h"
#include "trainer/replica.h"
#include "trainer/sharded_update.h"
#include "trainer/training_setup.h"

namespace lockstep {

struct RunParts {
    const Experiment& experiment;
    const World& world;
    const TrainingSetup& setup;
    const Course& course;  // that of this number of ranks
    const Replica& replica;
    const BucketPlan& buckets;
    const Communicator& communicator;
    const ShardedUpdate* sharding = nullptr;  // optim.sharded: node
};

RunFacts describe_run(const RunParts& run, const std::string& command);

// `manifest`: where it begins.
void print_start(const RunParts& run, const RunFacts& facts, const Manifest& manifest);

}  // namespace lockstep
