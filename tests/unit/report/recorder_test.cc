#include "report/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "report/analysis.h"
#include "report/metrics_file.h"
#include "report/record_file.h"
#include "tests/support/synthetic_run.h"

namespace {

std::atomic<int64_t> allocation_count{0};

void* counted(size_t bytes) {
    ++allocation_count;
    void* memory = std::malloc(bytes == 0 ? 1 : bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
    ++allocation_count;
    return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t& tag) noexcept { return operator new(bytes, tag); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace lockstep {
namespace {

using lockstep::testing_support::make_synthetic_run;
using lockstep::testing_support::synthetic_facts;
using lockstep::testing_support::SyntheticRun;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecorderTest : public ::testing::Test {
protected:
    void SetUp() override {
        run_dir_ = fs::path(::testing::TempDir()) / ("recorder_" + std::to_string(getpid()));
        fs::remove_all(run_dir_);
    }
    void TearDown() override { fs::remove_all(run_dir_); }

    std::unique_ptr<Recorder> recorder(int64_t start_step = 0, int rank = 0, int64_t flush_every_steps = 100) const {
        const RecorderOptions options{.run_dir = run_dir_, .flush_every_steps = flush_every_steps, .start_step = start_step};
        return Recorder::create(options, synthetic_facts(plan_, rank));
    }
    static void record(Recorder& recorder, const StoredStep& step) {
        recorder.record_step({step.step, step.begin_ns, step.end_ns, step.images, step.spans, step.buckets});
    }
    std::vector<StoredStep> steps() const { return make_synthetic_run(plan_).ranks.front().steps; }
    RankRecords stored(int rank = 0) const {
        return parse_rank_records(MappedFile(record_path(run_dir_, rank)).bytes(), "test", 1'000'000);
    }

    SyntheticRun plan_;
    fs::path run_dir_;
};

TEST_F(RecorderTest, WhatIsRecordedIsReadBack) {
    const auto expected = steps();
    {
        const auto writer = recorder();
        for (const StoredStep& step : expected) record(*writer, step);
        writer->record_pause({Span::Kind::checkpoint, 7, 9});
    }
    const RankRecords actual = stored();
    ASSERT_EQ(actual.steps.size(), expected.size());
    EXPECT_TRUE(actual.warning.empty());
    for (size_t index = 0; index < expected.size(); ++index) {
        const StoredStep &a = actual.steps[index], &e = expected[index];
        EXPECT_EQ(std::tie(a.step, a.begin_ns, a.end_ns, a.images), std::tie(e.step, e.begin_ns, e.end_ns, e.images));
        ASSERT_EQ(a.spans.size(), e.spans.size());
        for (size_t span = 0; span < e.spans.size(); ++span) {
            EXPECT_EQ(a.spans[span].kind, e.spans[span].kind);
            EXPECT_EQ(a.spans[span].begin_ns, e.spans[span].begin_ns);
            EXPECT_EQ(a.spans[span].end_ns, e.spans[span].end_ns);
        }
        ASSERT_EQ(a.buckets.size(), e.buckets.size());
        for (size_t bucket = 0; bucket < e.buckets.size(); ++bucket) {
            EXPECT_EQ(a.buckets[bucket].ready_ns, e.buckets[bucket].ready_ns);
            EXPECT_EQ(a.buckets[bucket].start_ns, e.buckets[bucket].start_ns);
            EXPECT_EQ(a.buckets[bucket].arrived_ns, e.buckets[bucket].arrived_ns);
            EXPECT_EQ(a.buckets[bucket].end_ns, e.buckets[bucket].end_ns);
        }
    }
    ASSERT_EQ(actual.pauses.size(), 1U);
    EXPECT_EQ(actual.pauses[0].next_step, 20);
    EXPECT_EQ(actual.facts.buckets.size(), 2U);
}

TEST_F(RecorderTest, RecordingAStepAllocatesNothing) {
    const auto all = steps();
    const auto writer = recorder(0, 0, 7);  // flushes on the way
    MetricsLine line{0, 0.0, {{"train.loss", 1.0}, {"lr", 0.1}}};
    writer->write_metrics(line);
    const int64_t before = allocation_count.load();
    for (const StoredStep& step : all) record(*writer, step);
    line.step = 1;
    writer->write_metrics(line);
    EXPECT_EQ(allocation_count.load() - before, 0);
}

TEST_F(RecorderTest, NothingIsWrittenBetweenFlushPoints) {
    const auto writer = recorder(0, 0, 10);
    const auto all = steps();
    const auto size = [&] { return fs::file_size(record_path(run_dir_, 0)); };
    const auto empty_size = size();
    for (size_t index = 0; index < 9; ++index) record(*writer, all[index]);
    EXPECT_EQ(size(), empty_size);
    record(*writer, all[9]);
    EXPECT_GT(size(), empty_size);
    EXPECT_EQ(stored().steps.size(), 10U);
}

TEST_F(RecorderTest, AResumedRunKeepsOnlyWhatCameBefore) {
    const auto all = steps();
    {
        const auto writer = recorder();
        for (const StoredStep& step : all) {
            record(*writer, step);
            if (step.step % 4 == 3) writer->write_metrics({step.step, 0.5, {{"train.loss", 1.0}}});
            if (step.step == 11 || step.step == 15) writer->record_pause({Span::Kind::evaluation, 1, 2});
        }
    }
    std::ofstream(run_dir_ / "metrics.jsonl", std::ios::app) << "{\"step\":2,\"cut";
    {
        const auto writer = recorder(12);
        record(*writer, all[12]);
        writer->write_metrics({12, 0.6, {{"train.loss", 0.5}}});
    }
    const RankRecords records = stored();
    ASSERT_EQ(records.steps.size(), 13U);
    EXPECT_EQ(records.steps.back().step, 12);
    EXPECT_THAT(records.session_starts, ElementsAre(0, 12));
    EXPECT_EQ(records.pauses.size(), 1U);
    std::vector<int64_t> metric_steps;
    for (const MetricsLine& line : read_metrics(run_dir_ / "metrics.jsonl")) metric_steps.push_back(line.step);
    EXPECT_THAT(metric_steps, ElementsAre(3, 7, 11, 12));
}

TEST_F(RecorderTest, AnotherWorldSizeStartsTheRecordsAgain) {
    plan_.rank_count = 3;
    for (int rank = 0; rank < 3; ++rank) record(*recorder(0, rank), steps()[0]);
    plan_.rank_count = 2;
    recorder(1, 0)->flush();
    recorder(1, 1)->flush();
    EXPECT_TRUE(stored().steps.empty());
    EXPECT_FALSE(fs::exists(record_path(run_dir_, 2)));
    EXPECT_EQ(load_run_records(run_dir_, 100).world_size, 2);
}

TEST_F(RecorderTest, MetricsLinesAreJsonWithNullForWhatIsNotFinite) {
    {
        const auto writer = recorder();
        writer->write_metrics({3, 0.25, {{"train.loss", 1.5}, {"val.\"q\"", NAN}, {"lr", INFINITY}, {"images_per_s", 1e20}}});
        EXPECT_EQ(read_file(run_dir_ / "metrics.jsonl"),
                  "{\"step\":3,\"epoch\":0.25,\"train.loss\":1.5,\"val.\\\"q\\\"\":null,\"lr\":null,\"images_per_s\":1e+20}\n");
    }
    const auto other_rank = recorder(0, 1);
    other_rank->write_metrics({4, 0.5, {}});
    EXPECT_EQ(read_metrics(run_dir_ / "metrics.jsonl").size(), 1U);
}

TEST_F(RecorderTest, ARefusingDiskIsOneClearErrorAndLeavesWholeBlocks) {
    const auto all = steps();
    auto writer = recorder(0, 1);
    for (size_t index = 0; index < 5; ++index) record(*writer, all[index]);
    writer->flush();
    for (size_t index = 5; index < 15; ++index) record(*writer, all[index]);

    const auto size = fs::file_size(record_path(run_dir_, 1));
    rlimit limit{}, small{};
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = size + 40;  // the next block fits partly
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    std::string message;
    try {
        writer->flush();
    } catch (const DeviceError& error) {
        message = error.what();
    }
    EXPECT_NO_THROW(writer->flush());
    EXPECT_NO_THROW(record(*writer, all[15]));
    writer.reset();
    setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, old_handler);

    EXPECT_THAT(message, HasSubstr("rank1.bin"));
    EXPECT_THAT(message, HasSubstr("free space"));
    EXPECT_EQ(fs::file_size(record_path(run_dir_, 1)), size);
    EXPECT_EQ(stored(1).steps.size(), 5U);
}

TEST_F(RecorderTest, ACutFileKeepsItsWholeBlocks) {
    {
        const auto writer = recorder(0, 0, 5);
        for (const StoredStep& step : steps()) record(*writer, step);
    }
    const std::string whole = read_file(record_path(run_dir_, 0));
    size_t previous = 0;
    for (size_t length = encode_head(synthetic_facts(plan_, 0)).size(); length <= whole.size(); ++length) {
        const RankRecords records = parse_rank_records(std::as_bytes(std::span(whole).first(length)), "cut", 1000);
        EXPECT_EQ(records.steps.size() % 5, 0U);
        EXPECT_GE(records.steps.size(), previous);
        previous = records.steps.size();
    }
    EXPECT_EQ(previous, 20U);
}

TEST_F(RecorderTest, ForeignBytesNeverCrashTheReader) {
    {
        const auto writer = recorder(0, 0, 5);
        for (const StoredStep& step : steps()) record(*writer, step);
    }
    const std::string whole = read_file(record_path(run_dir_, 0));
    uint64_t state = 7;
    const auto random = [&](size_t bound) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<size_t>((state >> 33) % bound);
    };
    int refused = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string mutant = whole.substr(0, 1 + random(whole.size()));
        for (size_t flips = 1 + random(6); flips > 0; --flips) mutant[random(mutant.size())] = static_cast<char>(random(256));
        try {
            const RankRecords records = parse_rank_records(std::as_bytes(std::span(mutant)), "mutant", 1000);
            EXPECT_LE(records.steps.size(), 20U);
        } catch (const DataError&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 0);
}

// Damage behind a checksum that fits it: the numbers themselves are not trusted either.
TEST_F(RecorderTest, ImpossibleNumbersBehindAValidChecksumNeverCrashTheReader) {
    BlockWriter writer(size_t{1} << 16);
    for (const StoredStep& step : steps()) {
        writer.add_step({step.step, step.begin_ns, step.end_ns, step.images, step.spans, step.buckets});
    }
    const std::string block(writer.finish().data(), writer.finish().size());
    const std::string head = encode_head(synthetic_facts(plan_, 0));
    uint64_t state = 11;
    const auto random = [&](size_t bound) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<size_t>((state >> 33) % bound);
    };
    int dropped = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string mutant = block;
        for (size_t flips = 1 + random(4); flips > 0; --flips) {
            mutant[16 + random(mutant.size() - 16)] = static_cast<char>(random(4) == 0 ? 0xFF : random(256));
        }
        const uint64_t checksum = hash_bytes(mutant.data() + 16, mutant.size() - 16);
        std::memcpy(mutant.data() + 8, &checksum, sizeof checksum);
        mutant = head + mutant;
        RankRecords records = parse_rank_records(std::as_bytes(std::span(mutant)), "mutant", 1000);
        dropped += records.warning.empty() ? 0 : 1;
        RunRecords run{.world_size = 2};
        run.ranks.push_back(std::move(records));
        analyze(run, 0);  // whatever was let through adds up without overflow
    }
    EXPECT_GT(dropped, 0);
}

TEST_F(RecorderTest, AFolderWithoutRecordsIsADataErrorThatNamesIt) {
    make_directories(run_dir_);
    try {
        write_report({.run_dir = run_dir_});
        FAIL() << "no error";
    } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr(run_dir_.string()));
    }
}

}  // namespace
}  // namespace lockstep
