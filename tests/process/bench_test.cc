// `lockstep bench allreduce` and scripts/netlab as programs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

std::string program() { return LOCKSTEP_PROGRAM; }
fs::path beside(const std::string& name) { return fs::path(LOCKSTEP_PROGRAM).parent_path() / name; }
std::string netlab() { return LOCKSTEP_SOURCE "/scripts/netlab"; }
Program::Environment netlab_environment() { return {{"LOCKSTEP_NETLAB_PROGRAM", beside("lockstep_netlab").string()}}; }

class AllreduceBenchTest : public ::testing::Test {
protected:
    // Short turns: what is tested is the driver, not the speed.
    static Outcome bench(const std::vector<std::string>& more) {
        std::vector<std::string> command{program(),   "bench", "allreduce",  "--rounds", "1",
                                         "--turn-ms", "1",     "--settings", "default"};
        command.insert(command.end(), more.begin(), more.end());
        return run(command, 280.0);
    }
    // Warnings stand on lines of their own.
    static nlohmann::json json_in(const Outcome& outcome) {
        const size_t start = outcome.output.find("{\"benchmark\"");
        if (start == std::string::npos) return {};
        return nlohmann::json::parse(outcome.output.substr(start, outcome.output.find('\n', start) - start));
    }
};

class AllreducePeerTest : public AllreduceBenchTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(AllreducePeerTest, GivesOneRowPerSizeAndContestant) {
    if (!fs::exists(beside("lockstep_peer_" + GetParam()))) GTEST_SKIP() << GetParam() << " was not there when this was built";
    const Outcome outcome = bench({"--ranks", "2", "--sizes", "4B,1000B,64KiB", "--peers", GetParam(), "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    EXPECT_TRUE(json.at("failures").empty()) << outcome.output;
    std::vector<std::string> rows;
    for (const auto& row : json.at("rows")) {
        rows.push_back(fmt::format("{} {} {}", row.at("bytes").get<int>(), row.at("name").get<std::string>(),
                                   row.at("setting").get<std::string>()));
        EXPECT_GT(row.at("median_us").get<double>(), 0.0);
        EXPECT_LE(row.at("p10_us").get<double>(), row.at("median_us").get<double>());
        EXPECT_GE(row.at("p99_us").get<double>(), row.at("median_us").get<double>());
        EXPECT_GT(row.at("busbw_gb_per_s").get<double>(), 0.0);
        EXPECT_EQ(row.at("busbw_gb_per_s").get<double>(), row.at("algbw").get<double>());  // of two ranks
        EXPECT_GE(row.at("cpu_s").get<double>(), 0.0);
    }
    std::vector<std::string> expected;
    for (const char* bytes : {"4", "1000", "65536"}) {
        for (const std::string& contestant :
             {std::string("lockstep zero-copy"), std::string("lockstep private memory"), GetParam() + " default"}) {
            expected.push_back(fmt::format("{} {}", bytes, contestant));
        }
    }
    EXPECT_EQ(rows, expected);
}
INSTANTIATE_TEST_SUITE_P(Peers, AllreducePeerTest, ::testing::Values("openmpi", "mpich", "gloo"),
                         [](const auto& peer) { return peer.param; });

TEST_F(AllreduceBenchTest, SeveralTensorsAreOneUnitAndThePictureIsWritten) {
    const TemporaryFolder folder;
    const std::string plot = (folder / "plot.svg").string();
    const Outcome outcome = bench({"--sizes", "4B,4KiB,resnet50", "--peers", "none", "--plot", plot, "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    const auto& row = json.at("rows").at(4);
    EXPECT_EQ(row.at("unit"), "resnet50: 161 tensors");
    EXPECT_EQ(row.at("bytes"), 102'228'128);
    EXPECT_TRUE(fs::exists(plot));
}

TEST(UpdateBenchTest, PrintsTheThreeWaysAsOneObject) {
    const Outcome outcome =
        run({beside("lockstep").string(), "bench", "update", "--parameters", "4096", "--rounds", "2", "--json"}, 60.0);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(json.at("benchmark"), "update");
    ASSERT_EQ(json.at("ways").size(), 3U);
    for (const auto& way : json.at("ways")) EXPECT_GT(way.at("total_ms").at("median").get<double>(), 0.0) << way;
}

TEST(LoaderBenchTest, MeasuresAConfigurationOrASetAndWritesThePicture) {
    const TemporaryFolder folder;
    const std::string plot = (folder / "plot.svg").string();
    const std::string pictures = LOCKSTEP_SOURCE "/tests/cases/sets/set101/train";
    const Outcome set = run({program(), "bench", "loader", pictures, "--threads", "1,2", "--image-size", "16", "--images", "20",
                             "--rounds", "2", "--plot", plot, "--json"},
                            60.0);
    ASSERT_EQ(set.exit_code, 0) << set.output;
    const auto json = nlohmann::json::parse(set.output);
    EXPECT_EQ(json.at("benchmark"), "loader");
    EXPECT_EQ(json.at("images"), 20);
    ASSERT_EQ(json.at("rows").size(), 8U);
    EXPECT_EQ(json.at("output"), nlohmann::json::parse("[3, 16, 16]"));
    EXPECT_TRUE(fs::exists(plot));

    std::ofstream(folder / "x.yaml") << "model: {arch: resnet20, image_size: 32}\ndata: {train: {path: " << pictures
                                     << ", pipeline: [{random_crop: {size: 32, pad: 4}}]}}\n";
    const Outcome config =
        run({program(), "bench", "loader", (folder / "x.yaml").string(), "data.mean=0.5", "--images", "20", "--rounds", "1"}, 60.0);
    EXPECT_EQ(config.exit_code, 0) << config.output;
    EXPECT_NE(config.output.find("libjpeg-turbo"), std::string::npos) << config.output;
    const Outcome overridden = run({program(), "bench", "loader", pictures, "data.mean=0.5"}, 60.0);
    EXPECT_EQ(overridden.exit_code, 2) << overridden.output;
}

TEST_F(AllreduceBenchTest, UnknownPeersAndSizesAreRefusedWithTheNearest) {
    const Outcome peer = bench({"--sizes", "4B", "--peers", "opnmpi"});
    EXPECT_EQ(peer.exit_code, 2) << peer.output;
    EXPECT_TRUE(peer.says("openmpi")) << peer.output;
    const Outcome size = bench({"--sizes", "64KB"});
    EXPECT_EQ(size.exit_code, 2) << size.output;
    EXPECT_TRUE(size.says("64KiB")) << size.output;
}

TEST_F(AllreduceBenchTest, AlgorithmsAndBackendsOfLockstepAreShownByName) {
    const Outcome outcome =
        bench({"--sizes", "4KiB", "--peers", "none", "--lockstep-backend", "tcp", "--algorithm", "auto,exchange,ring", "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    EXPECT_TRUE(json.at("failures").empty()) << outcome.output;
    std::vector<std::string> settings;
    for (const auto& row : json.at("rows")) settings.push_back(row.at("setting").get<std::string>());
    EXPECT_EQ(settings,
              (std::vector<std::string>{"tcp, private memory", "tcp, private memory, exchange", "tcp, private memory, ring"}));
    EXPECT_NE(outcome.output.find("tcp backend"), std::string::npos) << outcome.output;
}

// What a backend cannot do is a failure of that contestant by name, and no row.
TEST_F(AllreduceBenchTest, AnAlgorithmThatABackendHasNotIsRefusedByName) {
    const Outcome outcome =
        bench({"--sizes", "4KiB", "--peers", "none", "--lockstep-backend", "native,tcp", "--algorithm", "ring", "--json"});
    const auto json = json_in(outcome);
    ASSERT_EQ(json.at("rows").size(), 1U) << outcome.output;
    EXPECT_EQ(json.at("rows").at(0).at("setting"), "tcp, private memory, ring");
    ASSERT_EQ(json.at("failures").size(), 2U) << outcome.output;
    EXPECT_EQ(json.at("failures").at(0).at("setting"), "native, zero-copy, ring");
    EXPECT_TRUE(outcome.says("comm.algorithm=ring chooses among schedules over TCP")) << outcome.output;
}

TEST_F(AllreduceBenchTest, TheBackendMpiIsShownUnderEachMpirun) {
    std::vector<std::string> expected;
    for (const char* flavour : {"openmpi", "mpich"}) {
        const bool is_there = fs::exists(beside("lib") / fmt::format("liblockstep_mpi_{}.so", flavour)) &&
                              run({"which", fmt::format("mpirun.{}", flavour)}).exit_code == 0;
        if (is_there) expected.push_back(fmt::format("mpi over {}, private memory, exchange", flavour));
    }
    if (expected.empty()) GTEST_SKIP() << "neither Open MPI nor MPICH is here";
    const Outcome outcome =
        bench({"--sizes", "4KiB", "--peers", "none", "--lockstep-backend", "mpi", "--algorithm", "exchange", "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = json_in(outcome);
    std::vector<std::string> settings;
    for (const auto& row : json.at("rows")) settings.push_back(row.at("setting").get<std::string>());
    EXPECT_EQ(settings, expected) << outcome.output;
}

TEST_F(AllreduceBenchTest, APeerThatIsNotThereIsNamedAndTheOthersAreMeasured) {
    const TemporaryFolder folder;  // the program with one peer beside it
    for (const char* name : {"lockstep", "lockstep_peer_lockstep"}) fs::copy(beside(name), folder / name);
    const Outcome outcome = run({(folder / "lockstep").string(), "bench", "allreduce", "--rounds", "1", "--turn-ms", "1", "--sizes",
                                 "4B", "--peers", "mpich", "--json"},
                                60.0);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(json.at("missing").at(0).at("name"), "mpich");
    EXPECT_EQ(json.at("rows").size(), 2U);
}

class NetlabTest : public ::testing::Test {
protected:
    void SetUp() override {
        const Outcome trial = lab({"--", "true"});
        if (trial.exit_code == 4) GTEST_SKIP() << "network namespaces or TUN devices are not permitted here: " << trial.last_line();
    }
    static std::vector<std::string> command(const std::vector<std::string>& more) {
        std::vector<std::string> all{netlab()};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    static Outcome lab(const std::vector<std::string>& more) { return run(command(more), 30.0, netlab_environment()); }

    static double figure(const std::string& output, const std::string& name) {
        const size_t at = output.find(name + " ");
        return at == std::string::npos ? -1.0 : std::stod(output.substr(at + name.size() + 1));
    }
};

TEST_F(NetlabTest, TheLinkIsNeitherFasterNorCloserThanAsked) {
    const Outcome outcome = lab({"--self-test", "--delay-ms", "2", "--rate-mbit", "100"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_GE(figure(outcome.output, "rtt_ms"), 4.0) << outcome.output;
    EXPECT_LE(figure(outcome.output, "rate_mbit"), 100.0) << outcome.output;
    EXPECT_GT(figure(outcome.output, "rate_mbit"), 0.0) << outcome.output;
}

TEST_F(NetlabTest, EachRankIsToldItsPlaceAndSeesItsOwnNode) {
    const Outcome outcome =
        lab({"--nodes", "2", "--per-node", "2", "--", "sh", "-c",
             "echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK, $MASTER_ADDR, $(hostname)"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says("rank 0 of 4, 0 of 2 on 0, 10.77.0.1, lab-node0")) << outcome.output;
    EXPECT_TRUE(outcome.says("rank 3 of 4, 1 of 2 on 1, 10.77.0.1, lab-node1")) << outcome.output;
}

TEST_F(NetlabTest, TheFirstFailureIsTheExitCodeAndEveryFailureIsNamed) {
    const Outcome outcome = lab({"--", "sh", "-c", "[ $RANK = 0 ] || exit 140"});
    EXPECT_EQ(outcome.exit_code, 140);
    EXPECT_TRUE(outcome.says("rank 1 on node 1 ended with 140")) << outcome.output;
}

TEST_F(NetlabTest, ACutLinkCarriesNothing) {
    const Outcome outcome = lab({"--self-test", "--delay-ms", "1", "--cut-after-s", "0.02"});
    EXPECT_EQ(outcome.exit_code, 140) << outcome.output;
}

TEST_F(NetlabTest, NothingOutlivesTheKillingOfWhoeverStartedIt) {
    const TemporaryFolder folder;
    const std::string pids = (folder / "pids").string();
    Program starter({"sh", "-c", netlab() + " -- sh -c 'echo $$ >> " + pids + "; sleep 60' & wait"}, netlab_environment());
    const auto ranks = [&] {
        std::ifstream file(pids);
        std::vector<pid_t> found;
        for (pid_t pid = 0; file >> pid;) found.push_back(pid);
        return found;
    };
    ASSERT_TRUE(eventually(10.0, [&] { return ranks().size() == 2; }));
    kill(starter.pid(), SIGKILL);
    EXPECT_TRUE(eventually(10.0, [&] { return !process_exists(ranks()[0]) && !process_exists(ranks()[1]); }));
}

TEST_F(NetlabTest, TheAllreduceBenchmarkRunsOverItsLinks) {
    const Outcome outcome = run(
        command({"--delay-ms", "0.2",     "--once", "--",         program(), "bench",    "allreduce", "--ranks",   "2", "--sizes",
                 "4B,64KiB",   "--peers", "gloo",   "--settings", "default", "--rounds", "1",         "--turn-ms", "1", "--json"}),
        60.0, netlab_environment());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    EXPECT_TRUE(json.at("failures").empty()) << outcome.output;
    const auto& rows = json.at("rows");
    ASSERT_GE(rows.size(), 4U);
    for (const auto& row : rows) {
        EXPECT_GE(row.at("median_us").get<double>(), 200.0) << row;  // no result is there before the delay has passed
        EXPECT_GE(row.at("link_bytes").get<double>(), row.at("bytes").get<double>()) << row;  // and the data has crossed the link
    }
}

}  // namespace
}  // namespace lockstep::test
