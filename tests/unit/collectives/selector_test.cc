#include "collectives/selector.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "collectives/schedule/cost_model.h"
#include "collectives/schedule/simulator.h"
#include "core/error.h"

namespace lockstep {
namespace {

using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;

constexpr LinkModel kGigabit{.latency_us = 500, .overhead_us = 10, .wire_ns_per_byte = 8, .sum_ns_per_byte = 0.08};
constexpr LinkModel kFast{.latency_us = 20, .overhead_us = 5, .wire_ns_per_byte = 0.35, .sum_ns_per_byte = 0.08};
constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * 1024;
constexpr Collective kCollectives[] = {Collective::allreduce, Collective::reduce_scatter, Collective::allgather,
                                       Collective::broadcast, Collective::reduce};

Selector decided(int ranks, const std::optional<LinkModel>& link, const SelectorOptions& options = {}) {
    return Selector::decide(ranks, link, {}, options);
}

TEST(Selector, WithoutAProbeFollowsTheFixedTable) {
    const Selector two = decided(2, std::nullopt);
    const Selector eight = decided(8, std::nullopt);
    const Selector many = decided(512, std::nullopt);
    for (const int64_t bytes : {4L, kMiB, 512 * kMiB})
        EXPECT_EQ(two.choose(Collective::allreduce, bytes).algorithm, Algorithm::exchange);
    EXPECT_EQ(describe(eight.choose(Collective::allreduce, 4096)), "exchange(8)");
    EXPECT_EQ(describe(eight.choose(Collective::allreduce, 64 * kKiB)), "halving_doubling(4)");
    EXPECT_EQ(describe(eight.choose(Collective::allreduce, 31 * kMiB)), "halving_doubling(4)");
    EXPECT_EQ(eight.choose(Collective::allreduce, 32 * kMiB).algorithm, Algorithm::ring);
    EXPECT_EQ(many.choose(Collective::allreduce, 64 * kMiB).algorithm, Algorithm::double_tree);
    EXPECT_EQ(many.choose(Collective::allreduce, 63 * kMiB).algorithm, Algorithm::halving_doubling);
}

TEST(Selector, TakesTheLeastPredictedTime) {
    for (const int ranks : {2, 3, 7, 8, 32, 256}) {
        for (const LinkModel& link : {kGigabit, kFast}) {
            const Selector selector = decided(ranks, link);
            for (const int64_t bytes : {4L, 1000L, 64 * kKiB, 3 * kMiB, 100 * kMiB}) {
                const double best_us = candidates(Collective::allreduce, ranks, bytes, link, {}, {}).front().predicted_us;
                const double chosen_us = predicted_us(selector.choose(Collective::allreduce, bytes), ranks, bytes, link);
                // A border of the table lies up to an eighth octave beside the crossing of two curves.
                EXPECT_LE(chosen_us, 1.05 * best_us) << ranks << " ranks, " << bytes << " bytes";
            }
        }
    }
}

TEST(Selector, IsWithinATenthOfTheBestOfAllSchedulesUnderTheSimulator) {
    for (const LinkModel& link : {kGigabit, kFast}) {
        const Selector selector = decided(8, link);
        for (const int64_t bytes : {4L, 4096L, 64 * kKiB, kMiB, 25 * kMiB}) {
            double best_us = 1e30;
            for (const Candidate& candidate : candidates(Collective::allreduce, 8, bytes, link, {}, {})) {
                best_us = std::min(best_us, simulate_flat(candidate.plan, 8, bytes, {.remote = link}).time_us);
            }
            const Plan plan = selector.choose(Collective::allreduce, bytes);
            EXPECT_LE(simulate_flat(plan, 8, bytes, {.remote = link}).time_us, 1.1 * best_us) << describe(plan) << ", " << bytes;
        }
    }
}

TEST(Selector, EveryChoiceCanBeBuilt) {
    for (const int ranks : {1, 2, 5, 16}) {
        for (const auto& link : {std::optional<LinkModel>(), std::optional(kFast)}) {
            const Selector selector = decided(ranks, link);
            for (const Collective collective : kCollectives) {
                for (const int64_t bytes : {0L, 4L, kMiB}) {
                    const Plan plan = selector.choose(collective, bytes, ranks - 1);
                    EXPECT_EQ(plan.collective, collective);
                    EXPECT_NO_THROW(schedule::build(plan, 0, ranks, bytes / 4)) << describe(plan);
                }
            }
        }
    }
}

TEST(Selector, TakesWhatIsForcedWhereItExists) {
    for (const auto& link : {std::optional<LinkModel>(), std::optional(kGigabit)}) {
        const Selector rings = decided(8, link, {.algorithm = "ring", .chunks = 3});
        for (const Collective collective : kCollectives) EXPECT_EQ(rings.choose(collective, 10).algorithm, Algorithm::ring);
        EXPECT_EQ(rings.choose(Collective::allreduce, kMiB).chunks, 3);
        const Selector trees = decided(8, link, {.algorithm = "tree"});
        EXPECT_EQ(trees.choose(Collective::allreduce, kMiB).algorithm, Algorithm::tree);
        EXPECT_NE(trees.choose(Collective::allgather, kMiB).algorithm, Algorithm::tree);  // there is none
        EXPECT_EQ(decided(8, link, {.algorithm = "exchange", .radix = 3}).choose(Collective::allreduce, 4).radix, 3);
    }
}

TEST(Selector, RefusesWhatDoesNotExist) {
    EXPECT_THROW(decided(4, kGigabit, {.algorithm = "butterfly"}), ConfigError);
    EXPECT_THROW(decided(4, std::nullopt, {.algorithm = "butterfly"}), ConfigError);
    EXPECT_THROW(decided(4, kGigabit, {.radix = 1}), ConfigError);
    EXPECT_THROW(decided(4, kGigabit, {.chunks = -1}), ConfigError);
}

TEST(Selector, MeasurementsOverruleTheFormula) {
    const Algorithm by_formula = decided(8, kGigabit).choose(Collective::allreduce, kMiB).algorithm;
    const std::vector<MeasuredFactor> factors{{by_formula, kMiB, 5.0}, {by_formula, 64 * kMiB, 0.1}};
    const Selector selector = Selector::decide(8, kGigabit, factors, {});
    EXPECT_NE(selector.choose(Collective::allreduce, kMiB).algorithm, by_formula);
    EXPECT_EQ(selector.choose(Collective::allreduce, 64 * kMiB).algorithm, by_formula);
}

TEST(Selector, TravelsAsText) {
    for (const auto& link : {std::optional<LinkModel>(), std::optional(kFast)}) {
        const Selector selector = decided(24, link);
        const Selector copy = Selector::from_text(selector.to_text());
        EXPECT_EQ(copy.to_text(), selector.to_text());
        EXPECT_EQ(copy.rank_count(), 24);
        for (int64_t bytes = 1; bytes < int64_t{1} << 32; bytes = bytes * 3 / 2 + 1) {
            for (const Collective collective : kCollectives)
                EXPECT_EQ(copy.choose(collective, bytes), selector.choose(collective, bytes));
        }
    }
}

TEST(Selector, RefusesTextThatIsNotATable) {
    const std::string text = decided(4, kFast).to_text();
    EXPECT_NO_THROW(Selector::from_text(text));
    const std::string broken_texts[] = {"",
                                        "hello",
                                        text.substr(0, text.size() / 2),
                                        text + "allreduce 5 exchange 2 1 0.0\n",
                                        text + "nonsense\n",
                                        "lockstep-selector 1\nranks 0\n" + text.substr(text.find("allreduce"))};
    for (const std::string& broken : broken_texts) {
        EXPECT_THROW(Selector::from_text(broken), DataError) << broken;
    }
}

}  // namespace
}  // namespace lockstep
