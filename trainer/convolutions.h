// By which code convolutions are computed must be the same on all ranks, or their sums would be of other roundings.
#pragma once

#include "collectives/communicator.h"
#include "configs/experiment.h"
#include "nn/executor.h"
#include "trainer/agreement.h"
#include "trainer/replica.h"

namespace lockstep {

// Collective, before the replica's first compile. With compute.autotune: measure, rank 0 looks up or measures the faster codes and
// all ranks use its answer. Otherwise does nothing: the choice follows from the configuration.
void settle_convolutions(Communicator& communicator, const Experiment& experiment, Phase phase, Replica& replica);

// What the replica's compiles have decided; the ranks must agree on it.
AgreementFact convolutions_fact(const Replica& replica);

}  // namespace lockstep
