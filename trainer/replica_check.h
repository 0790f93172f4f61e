// Replicas are equal after every step. That they still are is looked at now and then (train.check_replicas): a bit that a machine
// turned, or a rank with other arithmetic, is named before it costs a week.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "core/parameter_arena.h"

namespace lockstep {

// Collective, between two steps: a hash of all values and running statistics travels; eight bytes a rank. Throws a CommonFailure
// (environment) that names the ranks which differ from the most, and the first tensor in which they do.
void require_equal_replicas(Communicator& communicator, const ParameterArena& arena, int64_t step);

// The ranks that do not have the commonest value; of equally common ones that of the lowest rank counts. Pure.
std::vector<int> odd_ones_out(const std::vector<uint64_t>& hash_of_rank);

}  // namespace lockstep
