// Resuming: which checkpoint is taken, that nothing of the run is lost, that nothing is read twice.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>

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

}  // namespace
}  // namespace lockstep::test
