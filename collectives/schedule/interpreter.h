// Carries a schedule out on real numbers, all ranks in one thread, by plain loops: the twin that engines are compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/schedule/schedule.h"

namespace lockstep::schedule {

// buffers[r] is rank r's, all of equal length. Rounds happen in an order drawn by `seed`; the result does not depend on it. The
// programs are taken to have passed the checker: a schedule that cannot finish breaks an invariant here. `on_wire`, when given, is
// what a value becomes by being sent; the sender keeps the changed value, too.
void interpret(std::span<const Program> programs, std::vector<std::vector<float>>& buffers, uint64_t seed = 0,
               const std::function<float(float)>& on_wire = {});

// The sum along the one binary tree over the ranks: what every plan of which follows_rank_tree is true gives, bit for bit.
std::vector<float> rank_tree_sum(const std::vector<std::vector<float>>& inputs);

}  // namespace lockstep::schedule
