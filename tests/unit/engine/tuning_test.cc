// By what a communicator chooses its schedules: one table on all ranks, kept or measured, that changes no bit.
#include "collectives/tuning.h"

#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/transport_communicator.h"
#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/random.h"
#include "tests/support/error_of.h"
#include "tests/support/memory_transport.h"

namespace lockstep {
namespace {

using schedule::Algorithm;
using schedule::Collective;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing_support::error_of;

constexpr LinkModel kFast{.latency_us = 20, .overhead_us = 5, .wire_ns_per_byte = 0.35, .sum_ns_per_byte = 0.08};
constexpr LinkModel kInside{.latency_us = 2, .overhead_us = 1, .wire_ns_per_byte = 0.1, .sum_ns_per_byte = 0.08};
constexpr MeasuredLinks kLinks{.all = kFast, .node = kInside};
constexpr RankLayout kEvenNodes{.rank_count = 16, .node_count = 4, .local_count = 4};
constexpr RankLayout kUnevenNodes{.rank_count = 16, .node_count = 4, .local_count = 3, .keeps_rank_tree = false};

TEST(Tuning, AutomaticChoicesFollowTheRankTreeOnAnyNumberOfRanks) {
    for (int ranks = 2; ranks <= 40; ++ranks) {
        for (const auto& links : {std::optional<MeasuredLinks>(), std::optional(kLinks)}) {
            const Tuning tuning = decide_tuning({.rank_count = ranks}, links, {}, {});
            for (const Selector::Row& row : tuning.flat.rows(Collective::allreduce)) {
                EXPECT_TRUE(follows_rank_tree(row.choice.plan, ranks)) << describe(row.choice.plan) << " on " << ranks;
            }
        }
    }
}

TEST(Tuning, InAnyOrderTheFastestScheduleIsTaken) {
    constexpr int64_t kBytes = 1 << 20;
    const PlanOptions options{.order = SumOrder::any};
    const Tuning tuning = decide_tuning({.rank_count = 4}, kLinks, {}, options);
    const auto best = candidates(Collective::allreduce, 4, kBytes, kFast, {}, {}).front();
    const auto chosen = tuning.flat.choose(Collective::allreduce, kBytes);
    EXPECT_EQ(chosen.algorithm, best.plan.algorithm) << describe(chosen);
    EXPECT_FALSE(follows_rank_tree(chosen, 4)) << describe(chosen) << " would have been taken within the tree, too";
    EXPECT_EQ(decide_tuning({.rank_count = 4}, std::nullopt, {}, options).flat.choose(Collective::allreduce, 64 << 20).algorithm,
              Algorithm::ring);
    const int64_t from = decide_tuning(kUnevenNodes, kLinks, {}, options).hierarchical_from_bytes;
    EXPECT_GT(from, 0) << "small gradients go the shorter way, though it adds in another order";
    EXPECT_LT(from, kBytes);
}

TEST(Tuning, WhatIsNamedIsTakenWithItsNumbers) {
    for (const auto& links : {std::optional<MeasuredLinks>(), std::optional(kLinks)}) {
        const auto plan = [&](const PlanOptions& options) {
            return decide_tuning({.rank_count = 9}, links, {}, options).flat.choose(Collective::allreduce, 1 << 20);
        };
        EXPECT_EQ(plan({.algorithm = "exchange", .radix = 3}), (schedule::Plan{.algorithm = Algorithm::exchange, .radix = 3}));
        EXPECT_EQ(plan({.algorithm = "ring", .chunks = 7}), (schedule::Plan{.algorithm = Algorithm::ring, .chunks = 7}));
        EXPECT_EQ(plan({.algorithm = "double_tree"}).algorithm, Algorithm::double_tree);
    }
}

TEST(Tuning, AnyWorldRefusesWhatIsNamedAndLeavesTheTree) {
    const auto refusal = [](const std::string& algorithm, int64_t radix, int ranks) {
        return error_of<ConfigError>(
            [&] { check_plan_options({.algorithm = algorithm, .radix = radix, .order = SumOrder::of_any_world}, ranks); });
    };
    EXPECT_THAT(refusal("ring", 0, 4), AllOf(HasSubstr("any_world"), HasSubstr("ring"), HasSubstr("4 ranks")));
    EXPECT_THAT(refusal("double_tree", 0, 8), HasSubstr("any_world"));
    EXPECT_THAT(refusal("ring", 0, 2), "no error");
    EXPECT_THAT(refusal("exchange", 3, 4), "no error");
    EXPECT_THAT(refusal("halving_doubling", 0, 8), "no error");
    EXPECT_THAT(refusal("tree", 0, 16), "no error");
    EXPECT_THAT(refusal("auto", 0, 16), "no error");
}

TEST(Tuning, TheWayThroughTheNodesIsChosenByTimeOnlyWhereItKeepsTheBits) {
    const auto from = [](const RankLayout& layout, const std::optional<MeasuredLinks>& links, const PlanOptions& options) {
        return decide_tuning(layout, links, {}, options).hierarchical_from_bytes;
    };
    EXPECT_EQ(from(kEvenNodes, std::nullopt, {}), 16 << 10);
    const int64_t predicted = from(kEvenNodes, kLinks, {});
    EXPECT_LT(predicted, 1 << 20) << "a wire that four ranks share is worth the way through the nodes";
    MeasuredLinks slow_inside = kLinks;
    slow_inside.node.latency_us = 5000;
    EXPECT_GT(from(kEvenNodes, slow_inside, {}), predicted);
    EXPECT_EQ(from({.rank_count = 16}, kLinks, {}), Tuning::kNever);
    EXPECT_EQ(from(kUnevenNodes, std::nullopt, {}), 0);
    EXPECT_EQ(from(kUnevenNodes, kLinks, {}), 0);
    EXPECT_EQ(from(kEvenNodes, kLinks, {.hierarchical_from_bytes = 77}), 77);
    EXPECT_EQ(from(kEvenNodes, kLinks, {.algorithm = "hierarchical"}), 0);
    EXPECT_EQ(from(kEvenNodes, kLinks, {.algorithm = "tree"}), Tuning::kNever);
    EXPECT_EQ(from(kEvenNodes, kLinks, {.order = SumOrder::of_any_world}), predicted);
    EXPECT_EQ(from(kUnevenNodes, kLinks, {.order = SumOrder::of_any_world}), Tuning::kNever);
    EXPECT_THAT(
        error_of<ConfigError>([&] { from(kUnevenNodes, kLinks, {.algorithm = "hierarchical", .order = SumOrder::of_any_world}); }),
        HasSubstr("any_world"));
}

TEST(Tuning, NodesKeepTheTreeWhenTheyAreEqualPowersOfTwoInOrder) {
    const auto layout = [](const std::vector<int>& node_of_rank) {
        std::vector<RankPlace> places;
        for (const int node : node_of_rank) {
            RankPlace place{.node = node, .rank = static_cast<int32_t>(places.size())};
            place.local_size = static_cast<int32_t>(std::count(node_of_rank.begin(), node_of_rank.end(), node));
            place.local_rank = static_cast<int32_t>(
                std::count_if(places.begin(), places.end(), [&](const RankPlace& other) { return other.node == node; }));
            places.push_back(place);
        }
        return layout_of(places, true);
    };
    EXPECT_TRUE(layout({0, 0, 1, 1}).keeps_rank_tree);
    EXPECT_TRUE(layout({3, 3, 1, 1, 2, 2}).keeps_rank_tree);
    EXPECT_FALSE(layout({0, 1, 0, 1}).keeps_rank_tree);
    EXPECT_FALSE(layout({0, 0, 0, 1, 1, 1}).keeps_rank_tree);
    EXPECT_FALSE(layout({0, 0, 1}).keeps_rank_tree);
    EXPECT_EQ(layout({0, 0, 0, 1, 1}).local_count, 2);
    EXPECT_EQ(layout({0, 0, 0, 1, 1}).node_count, 2);
}

TEST(Tuning, TravelsAsText) {
    for (const RankLayout& layout : {RankLayout{.rank_count = 5}, kEvenNodes}) {
        for (const auto& links : {std::optional<MeasuredLinks>(), std::optional(kLinks)}) {
            const Tuning tuning = decide_tuning(layout, links, {}, {});
            const Tuning copy = Tuning::from_text(tuning.to_text());
            EXPECT_EQ(copy.to_text(), tuning.to_text());
            EXPECT_EQ(copy.predicted_us(1 << 20), tuning.predicted_us(1 << 20));
            EXPECT_EQ(copy.rails.has_value(), layout.node_count > 1);
            const std::string text = tuning.to_text();
            for (const std::string& broken : {text.substr(1), text.substr(0, text.size() / 2), text + "more\n", std::string()}) {
                EXPECT_THROW(Tuning::from_text(broken), DataError);
            }
        }
    }
}

class TuningFolder : public testing::Test {
protected:
    TuningFolder() { std::filesystem::create_directories(folder_); }
    ~TuningFolder() override { std::filesystem::remove_all(folder_); }

    std::vector<std::filesystem::path> files() const {
        std::vector<std::filesystem::path> list;
        for (const auto& entry : std::filesystem::directory_iterator(folder_)) list.push_back(entry.path());
        return list;
    }

    // What `body` returns, or the error it met, by rank. `options_of(rank)`.
    static std::vector<std::string> run(int rank_count, const std::function<CommunicatorOptions(int)>& options_of,
                                        const std::function<std::string(Communicator&)>& body) {
        testing_support::MemoryNetwork network(rank_count, testing_support::MemoryNetworkOptions{});
        std::vector<std::string> results(static_cast<size_t>(rank_count));
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < rank_count; ++rank) {
            threads.emplace_back([&, rank] {
                const World world{.rank = rank, .size = rank_count, .local_rank = rank, .local_size = rank_count};
                try {
                    TransportCommunicator communicator(
                        world, options_of(rank),
                        {.name = "memory", .make_transport = [&] { return network.transport(rank); }, .make_node_memory = {}});
                    results[static_cast<size_t>(rank)] = body(communicator);
                } catch (const Error& error) {
                    results[static_cast<size_t>(rank)] = error.what();
                }
            });
        }
        threads.clear();
        return results;
    }
    std::vector<std::string> tables(int rank_count, Probing probing) const {
        return run(
            rank_count, [&](int) { return with(probing); },
            [](Communicator& communicator) { return communicator.tuning()->to_text(); });
    }
    CommunicatorOptions with(Probing probing) const { return {.plan = {.probing = probing, .cache_folder = folder_.string()}}; }

    const std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep-tuning-{}", getpid());
};

TEST_F(TuningFolder, AKeptTableIsReadBackAndDamagedInAnyByteIsNone) {
    const std::filesystem::path file = tuning_file(folder_.string(), "hosts a b");
    EXPECT_NE(file, tuning_file(folder_.string(), "hosts a c"));
    EXPECT_FALSE(load_tuning(file, "hosts a b").has_value());
    Tuning tuning = decide_tuning(kEvenNodes, std::nullopt, {}, {});
    save_tuning(file, "hosts a b", tuning);
    ASSERT_TRUE(load_tuning(file, "hosts a b").has_value());
    tuning.origin = file.string();
    EXPECT_EQ(load_tuning(file, "hosts a b")->to_text(), tuning.to_text());
    EXPECT_FALSE(load_tuning(file, "hosts a c").has_value());
    const std::string whole = read_file(file);
    for (size_t at = 0; at < whole.size(); at += 41) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 1);
        write_file_atomically(file, damaged);
        EXPECT_FALSE(load_tuning(file, "hosts a b").has_value()) << "byte " << at;
        write_file_atomically(file, std::string_view(whole).substr(0, at));
        EXPECT_FALSE(load_tuning(file, "hosts a b").has_value()) << "cut at " << at;
    }
}

TEST_F(TuningFolder, AllRanksHoldOneTableMeasuredAtTheStartAndNothingIsKept) {
    for (const int ranks : {2, 3}) {
        const auto texts = tables(ranks, Probing::unknown);
        EXPECT_THAT(texts, Each(texts[0]));
        EXPECT_THAT(texts[0], HasSubstr("links measured at the start"));
    }
    EXPECT_TRUE(files().empty());
}

TEST_F(TuningFolder, WhatTuneKeepsIsTakenUntilItIsDamaged) {
    const auto measured = tables(3, Probing::thorough);
    EXPECT_THAT(measured, Each(measured[0]));
    ASSERT_EQ(files().size(), 1U);
    const Tuning kept = Tuning::from_text(tables(3, Probing::unknown)[2]);
    EXPECT_EQ(kept.origin, files()[0].string());
    EXPECT_EQ(kept.flat.to_text(), Tuning::from_text(measured[0]).flat.to_text());
    EXPECT_THAT(tables(2, Probing::unknown), Each(HasSubstr("measured at the start"))) << "other ranks, other table";
    EXPECT_THAT(tables(3, Probing::never), Each(HasSubstr("the default table")));
    write_file_atomically(files()[0], read_file(files()[0]) + "x");
    EXPECT_THAT(tables(3, Probing::unknown), Each(HasSubstr("measured at the start")));
}

TEST_F(TuningFolder, MeasuredOrNotTheBitsAreTheSame) {
    const auto sums = [](Communicator& communicator) {
        std::string hashes;
        for (const size_t count : {size_t{1}, size_t{1000}, size_t{40'000}, size_t{400'000}}) {
            RandomStream stream(5, "tuning-test", count, static_cast<uint64_t>(communicator.world().rank));
            std::vector<float> data(count);
            for (float& value : data) value = stream.normal();
            communicator.allreduce(data, {.what = "bucket"}).wait();
            hashes += hash_hex(hash_bytes(data.data(), data.size() * sizeof(float))) + "\n";
        }
        return hashes;
    };
    const auto with_plan = [&](const PlanOptions& plan) {
        return run(
            5, [&](int) { return CommunicatorOptions{.plan = plan}; }, sums);
    };
    const auto expected = with_plan({.algorithm = "tree"});
    EXPECT_THAT(expected, Each(expected[0]));
    EXPECT_EQ(with_plan({}), expected);
    EXPECT_EQ(with_plan({.probing = Probing::unknown, .cache_folder = folder_.string()}), expected);
    EXPECT_NE(with_plan({.algorithm = "ring"}), expected) << "or the test shows nothing";
}

TEST_F(TuningFolder, RoundedOnTheWireTheTableIsTheFixedOne) {
    CommunicatorOptions options = with(Probing::unknown);
    options.wire = DataType::bf16;
    const auto origins = run(
        2, [&](int) { return options; }, [](Communicator& communicator) { return communicator.tuning()->origin; });
    EXPECT_THAT(origins, Each("the default table"));
}

TEST_F(TuningFolder, DifferentSettingsAreAnErrorOnAllRanks) {
    const auto results = run(
        3, [&](int rank) { return CommunicatorOptions{.plan = {.algorithm = rank == 1 ? "tree" : "auto"}}; },
        [](Communicator&) { return std::string("no error"); });
    EXPECT_THAT(results, Each(AllOf(HasSubstr("ranks disagree: rank 1"), HasSubstr("comm.algorithm"))));
}

}  // namespace
}  // namespace lockstep
