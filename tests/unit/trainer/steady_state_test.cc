// A step allocates nothing on the heap and takes no page fault once it is warm.
#include <sys/resource.h>

#include <array>

#include <fmt/format.h>

#include "tests/support/allocation_counter.h"
#include "tests/unit/trainer/training_run.h"

namespace lockstep {
namespace {

struct Reading {
    int64_t allocations = 0, faults = 0;
};

Reading read_counters() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return {testing_support::heap_allocation_count(), usage.ru_minflt + usage.ru_majflt};
}

class SteadyStateTest : public TrainingTest, public ::testing::WithParamInterface<std::tuple<std::string, int, std::string>> {};

TEST_P(SteadyStateTest, AStepAfterTheThirdAllocatesNothingAndTakesNoPageFault) {
    const auto [backend, ranks, sharded] = GetParam();
    Experiment experiment = tiny("steady");
    experiment.model.arch = "tiny_bn";
    experiment.train.backend = backend;
    experiment.optim.sharded = sharded;
    experiment.data.train.synthetic_size = 24 * 100;  // within one epoch
    experiment.train.duration.amount = 30.0;
    std::array<Reading, 30> readings{};
    TrainOptions options;
    options.after_step = [&](int64_t step, Replica&, const World& world) {
        if (step == 0) readings.fill({});  // this process's own copy of the page, or a reading would count its own fault
        readings[static_cast<size_t>(step)] = read_counters();
        if (step + 1 < 30) return;
        // The last few are left out: there the loader has made all batches and its threads end, which is not a step's work.
        for (size_t index = 4; index + 5 < readings.size(); ++index) {
            const int64_t allocations = readings[index].allocations - readings[index - 1].allocations;
            const int64_t faults = readings[index].faults - readings[index - 1].faults;
            if (allocations == 0 && faults == 0) continue;
            throw std::runtime_error(
                fmt::format("rank {} step {}: {} allocations, {} page faults", world.rank, index, allocations, faults));
        }
    };
    for (const RankResult& result : train(ranks, experiment, options)) EXPECT_FALSE(result.failed) << result.message;
}

INSTANTIATE_TEST_SUITE_P(BackendsAndRanks, SteadyStateTest,
                         ::testing::Combine(::testing::Values("reference", "onednn"), ::testing::Values(1, 2),
                                            ::testing::Values("off")));
INSTANTIATE_TEST_SUITE_P(SharedOut, SteadyStateTest,
                         ::testing::Combine(::testing::Values("onednn"), ::testing::Values(2), ::testing::Values("node")));

}  // namespace
}  // namespace lockstep
