// Every builder, proven on symbols for 1 to 128 ranks, and run on real numbers against the plain sum.
#include "collectives/schedule/schedule.h"

#include <bit>
#include <cstring>

#include <gtest/gtest.h>

#include "collectives/communicator.h"
#include "collectives/schedule/checker.h"
#include "collectives/schedule/interpreter.h"
#include "collectives/schedule/shape.h"
#include "core/error.h"
#include "core/random.h"

namespace lockstep::schedule {
namespace {

constexpr Collective kCollectives[] = {Collective::allreduce, Collective::reduce_scatter, Collective::allgather,
                                       Collective::broadcast, Collective::reduce};
constexpr Algorithm kAlgorithms[] = {Algorithm::exchange, Algorithm::halving_doubling, Algorithm::ring, Algorithm::tree,
                                     Algorithm::double_tree};

std::vector<Plan> plans_of(Collective collective, Algorithm algorithm, std::vector<int> radices, std::vector<int> chunk_counts) {
    std::vector<Plan> plans;
    if (algorithm == Algorithm::exchange || algorithm == Algorithm::halving_doubling) {
        for (const int radix : radices) plans.push_back({.collective = collective, .algorithm = algorithm, .radix = radix});
    } else {
        for (const int chunks : chunk_counts) plans.push_back({.collective = collective, .algorithm = algorithm, .chunks = chunks});
    }
    return plans;
}

Plan with_root(Plan plan, int root) {
    if (plan.collective == Collective::broadcast || plan.collective == Collective::reduce) plan.root = root;
    return plan;
}

void expect_proven(const Plan& plan, int rank_count, int64_t count) {
    const Verdict verdict = prove(plan, build_all(plan, rank_count, count), count, static_cast<uint64_t>(rank_count));
    EXPECT_EQ(verdict.text, "") << describe(plan) << ", " << rank_count << " ranks, " << count;
    // The other way round does not hold: where all elements are in one slice, a ring may meet the tree by chance.
    EXPECT_TRUE(verdict.follows_rank_tree || !follows_rank_tree(plan, rank_count))
        << describe(plan) << ", " << rank_count << " ranks";
}

class EveryBuilder : public testing::TestWithParam<Algorithm> {};

TEST_P(EveryBuilder, IsProvenForOneTo128Ranks) {
    for (const Collective collective : kCollectives) {
        if (!exists(collective, GetParam())) continue;
        for (int ranks = 1; ranks <= 128; ++ranks) {
            // The halves of an allreduce are proven with it; by themselves, at fewer sizes.
            const bool is_half = collective == Collective::reduce_scatter || collective == Collective::allgather;
            if (is_half && ranks > 40 && ranks % 29 != 0 && ranks < 127) continue;
            for (const Plan& plan : plans_of(collective, GetParam(), {2 + ranks % 15}, {1})) {
                expect_proven(with_root(plan, ranks / 3), ranks, 32 * ranks + 7);
            }
        }
    }
}

TEST_P(EveryBuilder, IsProvenForFewElementsManyChunksAndOddRadices) {
    for (const Collective collective : kCollectives) {
        if (!exists(collective, GetParam())) continue;
        for (const Plan& plan : plans_of(collective, GetParam(), {2, 3, 8, 128}, {1, 8})) {
            for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 17, 33}) {
                for (const int64_t count : {0, 1, ranks - 1, 17, 1025}) {
                    expect_proven(with_root(plan, ranks - 1), ranks, count);
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, EveryBuilder, testing::ValuesIn(kAlgorithms),
                         [](const auto& algorithm) { return std::string(to_string(algorithm.param)); });

TEST(Hierarchical, IsProvenForNodesAndLocalRanksOfAnyNumber) {
    for (const Algorithm algorithm : kAlgorithms) {
        for (const Plan& plan : plans_of(Collective::allreduce, algorithm, {3}, {2})) {
            for (int nodes = 1; nodes <= 9; ++nodes) {
                for (const int local : {1, 2, 3, 8}) {
                    for (const int64_t count : {0, 33, 1500}) {
                        std::vector<Program> programs;
                        for (int rank = 0; rank < nodes * local; ++rank) {
                            programs.push_back(build_hierarchical(plan, rank, nodes, local, count));
                        }
                        const Verdict verdict = prove(plan, programs, count);
                        EXPECT_EQ(verdict.fault, Fault::none)
                            << describe(plan) << ' ' << nodes << 'x' << local << ' ' << verdict.text;
                        const bool whole_subtrees = std::has_single_bit(static_cast<unsigned>(local));
                        const bool must_follow = whole_subtrees && follows_rank_tree(plan, nodes);
                        EXPECT_TRUE(verdict.follows_rank_tree || !must_follow) << describe(plan);
                    }
                }
            }
        }
    }
}

// Section by section what theory says for a power of two; n divides evenly.
struct Expected {
    Plan plan;
    int64_t steps;
    int64_t elements_sent;
    int64_t elements_added;
};

TEST(Costs, EqualTheFormulas) {
    constexpr int kRanks = 64;
    constexpr int64_t kCount = 64 * 64;
    constexpr int64_t kShare = kCount / kRanks * (kRanks - 1);  // (p - 1) / p n
    const Expected table[] = {
        {{.algorithm = Algorithm::exchange, .radix = 2}, 6, 6 * kCount, 6 * kCount},
        {{.algorithm = Algorithm::exchange, .radix = 4}, 3, 3 * 3 * kCount, 3 * 3 * kCount},
        {{.algorithm = Algorithm::exchange, .radix = 8}, 2, 2 * 7 * kCount, 2 * 7 * kCount},
        {{.algorithm = Algorithm::exchange, .radix = 64}, 1, 63 * kCount, 63 * kCount},
        {{.algorithm = Algorithm::halving_doubling, .radix = 2}, 12, 2 * kShare, kShare},
        {{.algorithm = Algorithm::halving_doubling, .radix = 8}, 4, 2 * kShare, kShare},
        {{.algorithm = Algorithm::halving_doubling, .radix = 64}, 2, 2 * kShare, kShare},
        {{.algorithm = Algorithm::ring}, 126, 2 * kShare, kShare},
        {{.algorithm = Algorithm::ring, .chunks = 4}, 126, 2 * kShare, kShare},
        {{.algorithm = Algorithm::tree}, 12, 6 * kCount, 6 * kCount},
        {{.algorithm = Algorithm::double_tree}, 12, 2 * kCount, kCount},
        {{.collective = Collective::reduce_scatter, .algorithm = Algorithm::halving_doubling, .radix = 2}, 6, kShare, kShare},
        {{.collective = Collective::allgather, .algorithm = Algorithm::ring}, 63, kShare, 0},
        {{.collective = Collective::broadcast, .algorithm = Algorithm::tree}, 6, 6 * kCount, 0},
        {{.collective = Collective::broadcast, .algorithm = Algorithm::ring, .chunks = 8}, 63, kCount, 0},
    };
    for (const Expected& row : table) {
        const Verdict verdict = prove(row.plan, build_all(row.plan, kRanks, kCount), kCount);
        EXPECT_EQ(verdict.text, "");
        EXPECT_EQ(verdict.steps, row.steps) << describe(row.plan);
        EXPECT_EQ(verdict.elements_sent, row.elements_sent) << describe(row.plan);
        EXPECT_EQ(verdict.elements_added, row.elements_added) << describe(row.plan);
    }
}

TEST(Costs, HierarchySendsTwoNMinusOneOverNOfTheDataPerNode) {
    constexpr int kNodes = 4;
    constexpr int kLocal = 8;
    constexpr int64_t kCount = 4 * 8 * 16 * 10;
    const Plan plan{.algorithm = Algorithm::halving_doubling, .radix = 4};
    int64_t out_of_node_0 = 0;
    for (int rank = 0; rank < kLocal; ++rank) {
        for (const Move& move : build_hierarchical(plan, rank, kNodes, kLocal, kCount).moves) {
            if (move.kind == MoveKind::send && move.peer / kLocal != 0) out_of_node_0 += move.range.size();
        }
    }
    EXPECT_EQ(out_of_node_0, 2 * kCount * (kNodes - 1) / kNodes);
}

TEST(Shape, PrefersFewRoundsThenSmallFactors) {
    EXPECT_EQ(shape_for(1024, 16).factors, (std::vector<int>{8, 8, 16}));
    EXPECT_EQ(shape_for(256, 16).factors, (std::vector<int>{16, 16}));
    EXPECT_EQ(shape_for(12, 4).factors, (std::vector<int>{4, 3}));
    EXPECT_EQ(shape_for(13, 16).factors, (std::vector<int>{13}));
    EXPECT_EQ(shape_for(7, 2).factors, (std::vector<int>{7}));
    const Shape folded = shape_for(17, 4);
    EXPECT_EQ(folded.participants, 9);
    EXPECT_EQ(folded.factors, (std::vector<int>{3, 3}));
}

using Buffers = std::vector<std::vector<float>>;

Buffers whole_numbers(int rank_count, int64_t count) {
    Buffers buffers(static_cast<size_t>(rank_count), std::vector<float>(static_cast<size_t>(count)));
    for (size_t rank = 0; rank < buffers.size(); ++rank) {
        for (size_t index = 0; index < buffers[rank].size(); ++index) {
            buffers[rank][index] = static_cast<float>((index * 7 + rank * 13) % 101) - 50.0F;
        }
    }
    return buffers;
}

Buffers random_numbers(int rank_count, int64_t count) {
    Buffers buffers(static_cast<size_t>(rank_count), std::vector<float>(static_cast<size_t>(count)));
    for (size_t rank = 0; rank < buffers.size(); ++rank) {
        RandomStream stream(5, "schedule-test", rank);
        for (float& value : buffers[rank]) value = stream.normal() * (stream.next_u32() % 3 == 0 ? 1e4F : 1.0F);
    }
    return buffers;
}

// Elements [first, last) of both, as bytes: NaN equals itself.
bool same_bits(const std::vector<float>& left, const std::vector<float>& right, Range range) {
    return range.size() == 0 || std::memcmp(left.data() + range.first, right.data() + range.first,
                                            static_cast<size_t>(range.size()) * sizeof(float)) == 0;
}

// What `rank` must hold after the collective over `inputs`, whose plain sum is `sum`, and where.
std::vector<std::pair<Range, const std::vector<float>*>> expected_output(const Plan& plan, int rank, const Buffers& inputs,
                                                                         const std::vector<float>& sum) {
    const auto count = static_cast<int64_t>(sum.size());
    const auto slice = [&](int of_rank) {
        const auto [first, last] = Communicator::slice(count, of_rank, static_cast<int>(inputs.size()));
        return Range{first, last};
    };
    switch (plan.collective) {
        case Collective::allreduce:
            return {{{0, count}, &sum}};
        case Collective::reduce_scatter:
            return {{slice(rank), &sum}};
        case Collective::broadcast:
            return {{{0, count}, &inputs[static_cast<size_t>(plan.root)]}};
        case Collective::reduce:
            return {{{0, rank == plan.root ? count : 0}, &sum}};
        case Collective::allgather:
            break;
    }
    std::vector<std::pair<Range, const std::vector<float>*>> slices;
    for (int other = 0; other < static_cast<int>(inputs.size()); ++other) {
        slices.push_back({slice(other), &inputs[static_cast<size_t>(other)]});
    }
    return slices;
}

void expect_output(const Plan& plan, const Buffers& inputs, const Buffers& outputs, const std::vector<float>& sum) {
    for (int rank = 0; rank < static_cast<int>(inputs.size()); ++rank) {
        for (const auto& [range, content] : expected_output(plan, rank, inputs, sum)) {
            EXPECT_TRUE(same_bits(outputs[static_cast<size_t>(rank)], *content, range))
                << describe(plan) << ", rank " << rank << " of " << inputs.size() << ", " << sum.size() << " elements";
        }
    }
}

TEST(RealNumbers, WholeNumbersSumExactlyWhateverTheOrderOfEvents) {
    for (const Collective collective : kCollectives) {
        for (const Algorithm algorithm : kAlgorithms) {
            if (!exists(collective, algorithm)) continue;
            for (const Plan& plan : plans_of(collective, algorithm, {2, 4, 16}, {1, 3})) {
                for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17}) {
                    for (const int64_t count : {0, 1, 17, 501}) {
                        const Plan rooted = with_root(plan, ranks / 2);
                        const Buffers inputs = whole_numbers(ranks, count);
                        Buffers outputs = inputs;
                        interpret(build_all(rooted, ranks, count), outputs, static_cast<uint64_t>(ranks + count));
                        expect_output(rooted, inputs, outputs, rank_tree_sum(inputs));
                    }
                }
            }
        }
    }
}

TEST(RealNumbers, PlansThatFollowTheRankTreeGiveItsBits) {
    int followers = 0;
    for (const Algorithm algorithm : kAlgorithms) {
        for (const Plan& plan : plans_of(Collective::allreduce, algorithm, {2, 4, 8, 16}, {1, 3})) {
            for (const int ranks : {2, 3, 4, 6, 8, 12, 16, 32}) {
                const Buffers inputs = random_numbers(ranks, 777);
                Buffers outputs = inputs;
                interpret(build_all(plan, ranks, 777), outputs);
                for (const auto& output : outputs) EXPECT_TRUE(same_bits(output, outputs[0], {0, 777})) << describe(plan);
                if (!follows_rank_tree(plan, ranks)) continue;
                ++followers;
                expect_output(plan, inputs, outputs, rank_tree_sum(inputs));
            }
        }
    }
    EXPECT_GT(followers, 60);
}

TEST(RealNumbers, EveryExchangeOfAPowerOfTwoFollowsTheRankTree) {
    for (const int ranks : {4, 16, 128}) {
        for (const int radix : {2, 4, 8, 16, 128}) {
            EXPECT_TRUE(follows_rank_tree({.algorithm = Algorithm::exchange, .radix = radix}, ranks));
            EXPECT_TRUE(follows_rank_tree({.algorithm = Algorithm::halving_doubling, .radix = radix}, ranks));
        }
        EXPECT_TRUE(follows_rank_tree({.algorithm = Algorithm::tree}, ranks));
        EXPECT_FALSE(follows_rank_tree({.algorithm = Algorithm::ring}, ranks));
    }
}

TEST(Plans, ThatDoNotExistAreRefusedWithTheReason) {
    const auto refusal = [](const Plan& plan) -> std::string {
        try {
            build(plan, 0, 4, 10);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_NE(refusal({.radix = 1}).find("radix is 1"), std::string::npos);
    EXPECT_NE(refusal({.algorithm = Algorithm::ring, .chunks = 0}).find("chunks is 0"), std::string::npos);
    EXPECT_NE(refusal({.collective = Collective::broadcast, .root = 4}).find("ranks 0 to 3"), std::string::npos);
    EXPECT_NE(refusal({.collective = Collective::allgather, .algorithm = Algorithm::tree}).find("has no tree"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::schedule
