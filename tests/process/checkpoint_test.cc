// Resuming: which checkpoint is taken, that nothing of the run is lost, that nothing is read twice.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

class CheckpointRunTest : public JobTest {
protected:
    fs::path checkpoint(const std::string& name, int64_t step) const {
        return fs::path(run_dir(name)) / "checkpoints" / fmt::format("step-{:09}", step);
    }
};

TEST_F(CheckpointRunTest, TheHighestStepIsTakenWhateverFileTimesAndStrayFilesAndADamagedOneIsNamed) {
    const std::vector<std::string> options = {"checkpoint.every=1it", "train.eval_every=never", "lr.schedule=constant",
                                              "train.log_every=50", "report.html=false"};
    const auto with = [&](const std::string& duration, const std::string& keep) {
        std::vector<std::string> all = options;
        all.push_back("train.duration=" + duration);
        all.push_back("checkpoint.keep_last=" + keep);
        return all;
    };
    ASSERT_EQ(run_job(2, with("100it", "200")).exit_code, 0);
    const fs::path folder = fs::path(run_dir()) / "checkpoints";
    const std::set<std::string> kept = {"step-000000009", "step-000000010", "step-000000100"};
    for (const auto& entry : std::vector<fs::directory_entry>(fs::directory_iterator(folder), {})) {
        if (!kept.contains(entry.path().filename())) fs::remove_all(entry.path());
    }
    const auto now = fs::file_time_type::clock::now();
    for (const int64_t step : {9, 10, 100}) {  // the oldest step gets the newest time
        for (const auto& entry : fs::directory_iterator(checkpoint("run", step))) {
            fs::last_write_time(entry.path(), now - std::chrono::hours(step));
        }
        fs::last_write_time(checkpoint("run", step), now - std::chrono::hours(step));
    }
    std::ofstream(folder / "notes.txt") << "mine";
    std::ofstream(folder / "step-000000999") << "a file, not a folder";
    fs::create_directories(folder / "step-new");
    const Outcome resumed = run_job(2, with("102it", "200"));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_TRUE(resumed.says("continuing from " + checkpoint("run", 100).string())) << resumed.output;
    EXPECT_TRUE(fs::exists(folder / "notes.txt") && fs::exists(folder / "step-new"));

    std::fstream file(checkpoint("run", 102) / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('\x55');
    file.close();
    const Outcome damaged = run_job(2, with("103it", "200"));
    ASSERT_EQ(damaged.exit_code, 0) << damaged.output;
    EXPECT_TRUE(damaged.says("model.safetensors") && damaged.says("step-000000102")) << damaged.output;
    EXPECT_TRUE(damaged.says("continuing from " + checkpoint("run", 101).string())) << damaged.output;
}

TEST_F(CheckpointRunTest, ResumedInTheMiddleOfWarmupAndEpochRatesLossesAndWeightsAreThoseOfTheUnbrokenRun) {
    const std::vector<std::string> options = {"train.duration=20it",  "lr.warmup=12it",         "lr.warmup_from=0.001",
                                              "checkpoint.every=7it", "checkpoint.keep_last=9", "train.eval_every=never"};
    ASSERT_EQ(run_job(2, options, "whole").exit_code, 0);
    std::vector<std::string> from_7 = options;
    from_7.push_back("run.resume=" + checkpoint("whole", 7).string());
    const Outcome resumed = run_job(2, from_7, "resumed");
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(weights("resumed"), weights("whole"));
    for (const char* key : {"lr", "train.loss", "grad_norm"}) {
        const auto all = metric(key, "whole");
        const auto later = metric(key, "resumed");
        ASSERT_EQ(later.size(), 13U);
        EXPECT_TRUE(std::equal(later.begin(), later.end(), all.begin() + 7)) << key;
    }
}

TEST_F(CheckpointRunTest, SamplesBeforeTheCheckpointAreNotDecodedAgain) {
    copy_case("sets/set101/train", "train");
    const std::vector<std::string> options = {"data.train.path=" + (folder_ / "train").string(), "train.duration=1ep",
                                              "checkpoint.every=3it", "train.eval_every=never"};
    ASSERT_EQ(run_job(2, options, "whole").exit_code, 0);
    const Outcome order =
        run({lockstep_program(), "data", "order", tiny_config(), options.front(), "--ranks", "2"}, 20.0, test_environment());
    std::istringstream rows(order.output);
    int spoilt = 0;
    for (std::string row; std::getline(rows, row);) {
        if (!row.starts_with("0\t0\t") && !row.starts_with("0\t1\t") && !row.starts_with("0\t2\t")) continue;
        const fs::path path = row.substr(row.rfind('\t') + 1);
        const std::string nothing(fs::file_size(path), '?');  // of the same size: the set's fingerprint stays
        std::ofstream(path) << nothing;
        ++spoilt;
    }
    ASSERT_EQ(spoilt, 3 * 24);
    std::vector<std::string> from_3 = options;
    from_3.push_back("run.resume=" + checkpoint("whole", 3).string());
    const Outcome resumed = run_job(2, from_3, "resumed");
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(weights("resumed"), weights("whole"));
    EXPECT_EQ(run_job(2, options, "anew").exit_code, 3) << "the spoilt pictures are bad ones";
}

// A small file system of its own at a place, for the length of a test.
class SmallDisk {
public:
    SmallDisk(fs::path place, uintmax_t bytes) : place_(std::move(place)) {
        fs::create_directories(place_);
        const std::string size = fmt::format("size={}", bytes);
        is_there_ = run({"mount", "-t", "tmpfs", "-o", size, "none", place_.string()}).exit_code == 0;
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    ~SmallDisk() {
        if (is_there_) run({"umount", place_.string()});
    }
    bool is_there() const { return is_there_; }
    void fill() const {
        std::ofstream file(place_ / "filler", std::ios::binary | std::ios::app);
        while (file.write(std::string(4096, 'x').data(), 4096).flush()) {
        }
    }
    void make_room() const { fs::remove(place_ / "filler"); }

private:
    const fs::path place_;
    bool is_there_ = false;
};

TEST_F(CheckpointRunTest, AFullDiskKeepsTheOldCheckpointsTellsOnceAndTheRunGoesOnUntilTheLastOne) {
    const SmallDisk disk(fs::path(run_dir()) / "checkpoints", 4 << 20);
    if (!disk.is_there()) GTEST_SKIP() << "file systems may not be mounted here";
    Program program(job(2, {"train.duration=100000ep", "train.eval_every=never", "checkpoint.every=1it", "lr.schedule=constant"}),
                    test_environment());
    ASSERT_TRUE(eventually(30.0, [&] { return !newest_checkpoint(run_dir()).empty(); })) << program.output_so_far();
    // A checkpoint that is under way makes room, when it removes an older one.
    const auto is_refused = [&](int times) {
        disk.fill();
        return count(program.output_so_far(), "was not written") == times;
    };
    ASSERT_TRUE(eventually(20.0, [&] { return is_refused(1); })) << program.output_so_far();
    const auto lines = metric("train.loss").size();
    EXPECT_TRUE(eventually(20.0, [&] { return metric("train.loss").size() > lines + 3; })) << "the job stands still";
    EXPECT_EQ(run({lockstep_program(), "checkpoint", "verify", run_dir()}).exit_code, 0);
    EXPECT_EQ(count(program.output_so_far(), "was not written"), 1) << program.output_so_far();
    EXPECT_THAT(program.output_so_far(), ::testing::ContainsRegex("not written[^\n]*checkpoints/[^\n]*No space left"));
    disk.make_room();
    ASSERT_TRUE(program.wait_for_output("checkpoints are written again", 20.0)) << program.output_so_far();
    ASSERT_TRUE(eventually(20.0, [&] { return is_refused(2); })) << program.output_so_far();
    const std::vector<pid_t> ranks = children_of(program.pid());
    ASSERT_EQ(ranks.size(), 2U);
    kill(ranks[1], SIGTERM);
    const Outcome outcome = program.wait(20.0);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
    EXPECT_TRUE(outcome.says("No space left")) << outcome.output;
    EXPECT_EQ(run({lockstep_program(), "checkpoint", "verify", run_dir()}).exit_code, 0);
}

TEST_F(CheckpointRunTest, ALimitOfFileSizesIsARefusedCheckpointNotTheEnd) {
    std::string limited = "ulimit -f 40; exec";  // blocks of 512 bytes
    for (const std::string& word :
         job(1, {"model.arch=resnet20", "train.duration=1it", "lr.warmup=0it", "train.eval_every=never", "report.html=false"})) {
        limited += " '" + word + "'";
    }
    const Outcome outcome = run({"sh", "-c", limited}, 30.0, test_environment());
    EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
    EXPECT_TRUE(outcome.says("File too large")) << outcome.output;
    EXPECT_TRUE(newest_checkpoint(run_dir()).empty());
}

TEST_F(CheckpointRunTest, ListVerifyShowAndDiffSpeakOfWhatIsThere) {
    ASSERT_EQ(run_job(2, {"train.duration=2ep"}).exit_code, 0);
    const auto command = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {lockstep_program(), "checkpoint"});
        return run(words);
    };
    const Outcome list = command({"list", run_dir(), "--json"});
    ASSERT_EQ(list.exit_code, 0) << list.output;
    const auto rows = nlohmann::json::parse(list.output);
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[1].at("step"), 10);
    EXPECT_EQ(rows[1].at("metrics").at("val.count"), 21);
    EXPECT_TRUE(rows[0].at("best").get<bool>() != rows[1].at("best").get<bool>());
    EXPECT_TRUE(command({"list", run_dir()}).says("<- best"));
    const Outcome show = command({"show", run_dir(), "--json"});
    EXPECT_EQ(nlohmann::json::parse(show.output).at("manifest").at("step"), 10);
    EXPECT_TRUE(command({"show", run_dir()}).says("optimizer.safetensors"));
    const std::string first = checkpoint("run", 5);
    const Outcome diff = command({"diff", first, run_dir(), "--json", "--exit-code"});
    EXPECT_EQ(diff.exit_code, 1);
    EXPECT_FALSE(nlohmann::json::parse(diff.output).at("tensors").empty());
    EXPECT_EQ(command({"diff", first, first, "--exit-code"}).exit_code, 0);
    EXPECT_TRUE(command({"diff", first, first}).says("equal, bit for bit"));
    std::ofstream(checkpoint("run", 10) / "model.safetensors", std::ios::app) << "x";
    const Outcome verify = command({"verify", run_dir()});
    EXPECT_EQ(verify.exit_code, 3);
    EXPECT_TRUE(verify.says("damaged") && verify.says("model.safetensors") && verify.says("sound")) << verify.output;
    EXPECT_EQ(command({"show", run_dir()}).exit_code, 3);
    EXPECT_EQ(command({"list", (folder_ / "nothing").string()}).exit_code, 3);
}

}  // namespace
}  // namespace lockstep::test
