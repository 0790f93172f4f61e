// What goes wrong around the averaging on real machines: few open files, little shared memory, odd host names, leftovers, ranks
// that were told different things; and that bucket sizes change nothing.
#include <signal.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

using ::testing::ContainsRegex;

const std::vector<std::string> kShort = {"train.duration=3it", "train.eval_every=never", "checkpoint.every=never"};

class CollectivesTest : public JobTest {
protected:
    // A job in a world of its own making: `prepare` is run by a shell with namespaces of its own before the job takes its place.
    Outcome run_prepared(const std::string& prepare, int ranks, std::vector<std::string> overrides, bool namespaces) const {
        overrides.insert(overrides.end(), kShort.begin(), kShort.end());
        std::vector<std::string> command = {"sh", "-c", prepare + " && exec \"$@\"", "sh"};
        if (namespaces) command.insert(command.begin(), {"unshare", "--mount", "--uts"});
        const std::vector<std::string> started = job(ranks, overrides);
        command.insert(command.end(), started.begin(), started.end());
        return run(command, 60.0, test_environment());
    }
    static bool namespaces_are_permitted() { return run({"unshare", "--mount", "--uts", "true"}).exit_code == 0; }
    static constexpr const char* kNotPermitted = "namespaces of mounts and host names are not permitted here";

    // Starts one rank of two by hand.
    std::unique_ptr<Program> rank_by_hand(const std::string& rank, const std::string& port,
                                          const std::vector<std::string>& overrides) const {
        std::vector<std::string> command = {lockstep_program(), "train", tiny_config(), "run.dir=" + run_dir()};
        command.insert(command.end(), kShort.begin(), kShort.end());
        command.insert(command.end(), overrides.begin(), overrides.end());
        return std::make_unique<Program>(command, Program::Environment{{"RANK", rank},
                                                                       {"WORLD_SIZE", "2"},
                                                                       {"LOCAL_RANK", rank},
                                                                       {"LOCAL_WORLD_SIZE", "2"},
                                                                       {"MASTER_ADDR", "127.0.0.1"},
                                                                       {"MASTER_PORT", port},
                                                                       {"LOCKSTEP_TEST_CASES", sample_file("")}});
    }
};

TEST_F(CollectivesTest, RanksThatWereToldDifferentThingsEndBeforeTheFirstStepWithTheDifference) {
    struct Case {
        std::vector<std::string> second;
        std::string says;
    };
    const Case cases[] = {
        {{"model.arch=tiny_cnn"}, "arch: tiny_cnn"},
        {{"data.train.path=" + sample_file("sets/folders/train"), "data.val.path=" + sample_file("sets/folders/val")},
         "sets/folders"},
        {{"model.image_size=16", "data.train.pipeline=[random_crop: 16]", "data.val.pipeline=[center_crop: 16]"}, "image_size: 16"},
        {{"comm.bucket=2KiB"}, "bucket: 2KiB"}};
    int port = 29901;
    for (const Case& each : cases) {
        const auto first = rank_by_hand("0", std::to_string(port), {});
        const auto second = rank_by_hand("1", std::to_string(port++), each.second);
        const Outcome told = first->wait(10.0);
        const Outcome other = second->wait(10.0);
        EXPECT_EQ(told.exit_code, 2) << told.output;
        EXPECT_EQ(other.exit_code, 2) << other.output;  // what all ranks know is said once, by rank 0
        EXPECT_TRUE(told.says("rank 0") && told.says("rank 1") && told.says(each.says)) << told.output;
        EXPECT_FALSE(fs::exists(run_dir() + "/metrics.jsonl") && fs::file_size(run_dir() + "/metrics.jsonl") > 0);
    }
}

// The segment is anonymous memory: neither the size of /dev/shm nor what lies there matters.
TEST_F(CollectivesTest, AFullSharedMemoryFolderWithForeignFilesDoesNotMatter) {
    if (!namespaces_are_permitted()) GTEST_SKIP() << kNotPermitted;
    const std::string prepare =
        "mount -t tmpfs -o size=256k tmpfs /dev/shm && echo foreign > /dev/shm/lockstep-segment && "
        "(head -c 1000000 /dev/zero > /dev/shm/filled 2>/dev/null || true)";
    const Outcome outcome = run_prepared(prepare, 2, {"comm.backend=native"}, true);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_F(CollectivesTest, ASegmentThatDoesNotFitIsOneErrorWithBytesNeededAndFree) {
    const Outcome outcome = run_prepared("ulimit -f 100", 2, {"comm.backend=native"}, false);  // of 512 or 1024 bytes
    EXPECT_EQ(outcome.signal, 0) << outcome.output;
    EXPECT_NE(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, ContainsRegex("needs [0-9]+ bytes, [0-9]+ are free"));
}

TEST_F(CollectivesTest, WithFewOpenFilesAJobOverSocketsTrainsOrSaysHowManyItNeeds) {
    for (const char* backend : {"tcp", "gloo"}) {
        for (const int files : {64, 20}) {
            const Outcome outcome = run_prepared(fmt::format("ulimit -n {}", files), 8,
                                                 {fmt::format("comm.backend={}", backend), "batch.per_replica=3"}, false);
            EXPECT_FALSE(outcome.timed_out) << outcome.output;
            if (outcome.exit_code == 0) continue;
            EXPECT_EQ(files, 20) << outcome.output;
            EXPECT_THAT(outcome.output, ContainsRegex("needs [0-9]+ open files[^\n]*may have 20")) << backend;
        }
    }
}

TEST_F(CollectivesTest, AHostNameThatDoesNotResolveOrIsLoopbackIsNoReasonNotToTrain) {
    if (!namespaces_are_permitted()) GTEST_SKIP() << kNotPermitted;
    const std::string hosts = (folder_ / "hosts").string();
    for (const char* lines : {"127.0.0.1 localhost\n", "127.0.0.1 localhost\n127.0.1.1 name-of-a-test\n"}) {
        write_file_atomically(hosts, lines);
        for (const char* backend : {"native", "tcp", "gloo"}) {
            const Outcome outcome = run_prepared("hostname name-of-a-test && mount --bind " + hosts + " /etc/hosts", 2,
                                                 {fmt::format("comm.backend={}", backend)}, true);
            EXPECT_EQ(outcome.exit_code, 0) << backend << " with " << lines << outcome.output;
        }
    }
}

TEST_F(CollectivesTest, AMissingInterfaceIsAnErrorThatListsTheExistingOnes) {
    for (const char* backend : {"tcp", "gloo"}) {
        const Outcome outcome = run_job(2, {fmt::format("comm.backend={}", backend), "comm.interface=nosuch0"});
        EXPECT_NE(outcome.exit_code, 0) << outcome.output;
        EXPECT_LT(outcome.seconds, 10.0);
        EXPECT_THAT(outcome.output, ContainsRegex("`nosuch0`[^\n]*lo")) << backend;
    }
}

TEST_F(CollectivesTest, WhatAKilledJobLeftBehindDoesNotReachTheNextOneAtItsPort) {
    const std::string port = "29911";
    for (const char* backend : {"native", "tcp", "gloo"}) {
        for (const bool killed : {true, false}) {
            const std::string bucket = killed ? "comm.bucket=1KiB" : "comm.bucket=64KiB";  // another configuration
            std::vector<std::string> options = {bucket, fmt::format("comm.backend={}", backend)};
            if (killed) options.insert(options.end(), {"train.duration=100000ep"});
            const auto first = rank_by_hand("0", port, options);
            const auto second = rank_by_hand("1", port, options);
            if (killed) {
                EXPECT_TRUE(first->wait_for_output("step 2/", 30.0)) << first->output_so_far();
                for (const auto* rank : {first.get(), second.get()}) kill(rank->pid(), SIGKILL);
                continue;
            }
            for (auto* rank : {first.get(), second.get()}) {
                const Outcome outcome = rank->wait(30.0);
                EXPECT_EQ(outcome.exit_code, 0) << backend << "\n" << outcome.output;
            }
        }
    }
}

TEST_F(CollectivesTest, BucketSizesAndOverlapDoNotChangeABitAndTheReportsBucketsAddUp) {
    const std::vector<std::string> common = {"train.duration=8it", "train.eval_every=never"};
    std::string expected;
    int64_t bytes_of_all = 0;
    for (const char* backend : {"native", "tcp"}) {
        for (const char* bucket : {"4B", "1KiB", "64KiB", "25MiB", "1GiB"}) {
            for (const char* overlap : {"true", "false"}) {
                const std::string name = fmt::format("{}-{}-{}", backend, bucket, overlap);
                std::vector<std::string> options = common;
                options.insert(options.end(), {fmt::format("comm.backend={}", backend), fmt::format("comm.bucket={}", bucket),
                                               fmt::format("comm.overlap={}", overlap)});
                const Outcome outcome = run_job(2, options, name);
                ASSERT_EQ(outcome.exit_code, 0) << name << outcome.output;
                if (expected.empty()) expected = weights(name);
                ASSERT_FALSE(expected.empty());
                EXPECT_EQ(weights(name), expected) << name;
                int64_t bytes = 0;
                const auto report = nlohmann::json::parse(read_file(run_dir(name) + "/report.json"));
                for (const auto& row : report.at("buckets")) bytes += row.at("bytes").get<int64_t>();
                if (bytes_of_all == 0) bytes_of_all = bytes;
                EXPECT_GT(bytes, 0);
                EXPECT_EQ(bytes, bytes_of_all) << name;
            }
        }
    }
}

}  // namespace
}  // namespace lockstep::test
