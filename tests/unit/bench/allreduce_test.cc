// Sizes, tables and pictures of the allreduce benchmark.
#include "bench/allreduce_bench.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/allreduce_contestants.h"
#include "core/error.h"

namespace lockstep::bench {
namespace {

std::string refusal(const std::string& size) {
    try {
        parse_unit(size);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(AllreduceUnitTest, SizesAreBytesWithOrWithoutUnit) {
    EXPECT_EQ(parse_unit("4B").counts, std::vector<int64_t>{1});
    EXPECT_EQ(parse_unit("64KiB").byte_count(), 65'536);
    EXPECT_EQ(parse_unit("102228128").counts, std::vector<int64_t>{25'557'032});
    EXPECT_EQ(parse_unit("1048576").label, "1MiB");
}

TEST(AllreduceUnitTest, WhatIsNoSizeIsRefusedWithTheNearest) {
    EXPECT_NE(refusal("64KB").find("64KiB"), std::string::npos) << refusal("64KB");
    EXPECT_NE(refusal("resnet5").find("resnet50"), std::string::npos) << refusal("resnet5");
    EXPECT_NE(refusal("6B").find("8B"), std::string::npos) << refusal("6B");
    EXPECT_NE(refusal("9B").find("8B"), std::string::npos) << refusal("9B");
    EXPECT_NE(refusal("0B").find("4B"), std::string::npos) << refusal("0B");
    EXPECT_NE(refusal("3GiB").find("1024MiB"), std::string::npos) << refusal("3GiB");
    EXPECT_NE(refusal("").find("sizes look like"), std::string::npos) << refusal("");
}

// Two sizes, at which the faster contestant changes.
AllreduceBenchResult made_up_result() {
    AllreduceBenchResult result{.options = {.rank_count = 2}};
    const auto row = [](int64_t bytes, const std::string& name, const std::string& kind, double us) {
        return AllreduceRow{
            .unit = std::to_string(bytes), .bytes = bytes, .name = name, .setting = "s", .kind = kind, .median_us = us};
    };
    result.rows = {row(100, "lockstep", "lockstep", 1), row(100, "gloo", "default", 10), row(10'000, "lockstep", "lockstep", 100),
                   row(10'000, "gloo", "default", 10)};
    return result;
}

TEST(AllreduceOutputTest, BandwidthsFollowTheirDefinitions) {
    AllreduceRow row{.bytes = 1'000'000, .median_us = 100};
    EXPECT_DOUBLE_EQ(row.algbw_gb_per_s(), 10.0);
    EXPECT_DOUBLE_EQ(row.busbw_gb_per_s(2), 10.0);
    EXPECT_DOUBLE_EQ(row.busbw_gb_per_s(4), 15.0);
}

TEST(AllreduceOutputTest, JsonHasARowPerUnitAndContestantWithAllFields) {
    const auto json = nlohmann::json::parse(to_json(made_up_result()));
    ASSERT_EQ(json.at("rows").size(), 4U);
    for (const char* field : {"bytes", "name", "setting", "median_us", "p10_us", "p99_us", "algbw", "busbw_gb_per_s", "cpu_s"}) {
        EXPECT_TRUE(json["rows"][0].contains(field)) << field;
    }
    EXPECT_TRUE(json.at("machine").contains("congestion_control"));
}

TEST(AllreduceOutputTest, TheTextGivesTheRatioToLockstep) {
    const std::string text = to_text(made_up_result());
    EXPECT_NE(text.find("10.00\n"), std::string::npos) << text;  // gloo at 100 bytes
    EXPECT_NE(text.find("0.10\n"), std::string::npos) << text;   // at 10,000
}

TEST(AllreducePlotTest, TheCrossoverIsMarkedWhereTheLinesMeet) {
    const std::string svg = to_svg(made_up_result());
    // Both lines are straight in the logarithms: 1 to 100 us against 10 us, so they meet in the middle, at 1000 bytes.
    EXPECT_NE(svg.find("lockstep, s and gloo, s cross at 1000 bytes"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("crossover"), svg.rfind("crossover"));
}

TEST(AllreduceContestantsTest, WithoutASweepEachPeerHasItsDefaultOnly) {
    AllreduceBenchOptions options{.peers = {"openmpi", "gloo"}, .lockstep_backends = {"auto"}, .sweep = false};
    std::vector<std::string> names;
    for (const Contestant& contestant : contestants_for(options)) names.push_back(contestant.name + "/" + contestant.setting);
    EXPECT_EQ(names,
              (std::vector<std::string>{"lockstep/zero-copy", "lockstep/private memory", "openmpi/default", "gloo/default"}));
    options.sweep = true;
    EXPECT_GT(contestants_for(options).size(), 10U);
}

TEST(AllreduceContestantsTest, LockstepShowsEachBackendWithEachAlgorithmAndMpiUnderItsLauncher) {
    const AllreduceBenchOptions options{.lockstep_backends = {"tcp", "mpi"}, .lockstep_algorithms = {"auto", "ring"}};
    std::vector<std::string> names;
    for (const Contestant& contestant : contestants_for(options)) names.push_back(contestant.setting);
    EXPECT_EQ(names, (std::vector<std::string>{"tcp, private memory", "tcp, private memory, ring",
                                               "mpi over openmpi, private memory", "mpi over mpich, private memory",
                                               "mpi over openmpi, private memory, ring", "mpi over mpich, private memory, ring"}));
    const ContestantPlan plan{.folder = ::testing::TempDir(), .rank_count = 4, .ranks_per_node = 4};
    const auto commands = commands_for(contestants_for(options).at(3), plan, {}, "/programs");
    ASSERT_EQ(commands.size(), 1U);
    EXPECT_EQ(commands[0].words[0], "mpiexec.mpich");
    EXPECT_EQ(commands[0].words.at(commands[0].words.size() - 2), "/programs/lockstep_peer_lockstep");
}

TEST(AllreduceContestantsTest, WhatIsNotInstalledIsNamedWithItsPackage) {
    EXPECT_NE(why_missing("mpich", "/nowhere").find("libmpich-dev"), std::string::npos);
}

TEST(AllreduceContestantsTest, OnNodesOfALaboratoryRanksAreSpreadByNode) {
    const LabMap lab{.nodes = {{"10.0.0.1", "/n0", "/u0"}, {"10.0.0.2", "/n1", "/u1"}}};
    const ContestantPlan plan{.folder = ::testing::TempDir(), .rank_count = 4, .ranks_per_node = 2};
    const auto commands = commands_for({.name = "gloo"}, plan, lab, "/programs");
    ASSERT_EQ(commands.size(), 4U);
    EXPECT_EQ(commands[1].words[1], "--net=/n0");
    EXPECT_EQ(commands[2].words[1], "--net=/n1");
    EXPECT_THROW(lab.ranks_per_node(3), ConfigError);
}

}  // namespace
}  // namespace lockstep::bench
