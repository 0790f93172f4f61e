#include "data_loader/loader.h"

#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "core/hash.h"
#include "data_loader/pipeline.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

PipelineOptions augmenting(int height = 32, int width = 32) {
    return {.transforms = {{.kind = Transform::Kind::random_crop, .height = height, .width = width, .pad = 4},
                           {.kind = Transform::Kind::horizontal_flip}},
            .height = height,
            .width = width,
            .seed = 7};
}

struct Job {
    int world_size = 1;
    int threads = 1;
    int64_t start_step = 0, stop_step = 0;
};

// (epoch, sample) -> hash of what the network would see.
using Seen = std::map<std::pair<int64_t, int64_t>, uint64_t>;

class LoaderTest : public ScratchTest {
protected:
    Seen train(const Source& source, const Job& run) {
        const SamplerOptions sampler{.sample_count = source.size(), .batch_global = 12, .per_replica = 4, .seed = 7};
        Seen seen;
        for (int rank = 0; rank < run.world_size; ++rank) {
            const TrainPlan plan{.sampler = sampler,
                                 .rank = rank,
                                 .world_size = run.world_size,
                                 .start_step = run.start_step,
                                 .stop_step = run.stop_step};
            const auto loader = make_train_loader(source, plan, {.pipeline = pipeline_, .worker_threads = run.threads});
            while (const std::optional<Batch> batch = loader->next()) add(*batch, seen);
            EXPECT_FALSE(loader->next());
            add_statistics(loader->statistics());
        }
        return seen;
    }
    static void add(const Batch& batch, Seen& seen) {
        const size_t floats = batch.images.size() / static_cast<size_t>(batch.count);
        for (size_t place = 0; place < static_cast<size_t>(batch.count); ++place) {
            const auto image = batch.images.subspan(place * floats, floats);
            seen[{batch.epoch, batch.samples[place]}] = hash_bytes(image.data(), image.size_bytes());
        }
    }
    void add_statistics(const LoaderStatistics& statistics) {
        images_ += statistics.images;
        for (const std::string& path : statistics.bad_paths) bad_.insert(path);
    }

    PipelineOptions pipeline_ = augmenting();
    int64_t images_ = 0;
    std::set<std::string> bad_;
};

TEST_F(LoaderTest, CropsDoNotDependOnThreadsRanksOrRestarts) {
    const auto source = open_source({.path = case_file("sets/set101/train").string()});
    const int64_t steps = 2 * 9;  // two epochs of 101 images
    const Seen reference = train(*source, {.stop_step = steps});
    EXPECT_EQ(reference.size(), 202U);
    EXPECT_EQ(train(*source, {.threads = 8, .stop_step = steps}), reference);
    EXPECT_EQ(train(*source, {.world_size = 4, .threads = 2, .stop_step = steps}), reference);
    EXPECT_EQ(train(*source, {.world_size = 3, .stop_step = steps}), reference);
    Seen resumed = train(*source, {.world_size = 2, .stop_step = 5});
    resumed.merge(train(*source, {.world_size = 3, .threads = 3, .start_step = 5, .stop_step = steps}));
    EXPECT_EQ(resumed, reference);
}

TEST_F(LoaderTest, CopiesOfOnePictureGetDifferentCropsInEverySampleAndEpoch) {
    const std::string picture = read_file(case_file("img/ref_rgb.jpg"));
    for (int copy = 0; copy < 16; ++copy) write("set/a/" + std::to_string(100 + copy) + ".jpg", picture);
    const auto source = open_source({.path = (folder_ / "set").string()});
    pipeline_ = augmenting(32, 32);  // 64 x 48 pictures: 41 x 25 offsets and a flip
    const Job run{.world_size = 2, .threads = 4, .stop_step = 4};
    const Seen seen = train(*source, run);
    std::set<uint64_t> different;
    for (const auto& [key, hash] : seen) different.insert(hash);
    EXPECT_EQ(seen.size(), 32U);
    EXPECT_GE(different.size(), 10U);  // crops inside one quarter look alike
    EXPECT_EQ(train(*source, run), seen);
}

TEST_F(LoaderTest, StopPolicyEndsWithPathAndReason) {
    write("set/a/good.jpg", read_file(case_file("img/ref_rgb.jpg")));
    write("set/a/half.jpg", read_file(case_file("img/truncated_half.jpg")));
    const auto source = open_source({.path = (folder_ / "set").string()});
    const std::string error = data_error_of([&] { train(*source, {.threads = 2, .stop_step = 3}); });
    EXPECT_NE(error.find("half.jpg"), std::string::npos) << error;
}

TEST_F(LoaderTest, SkipPolicyReplacesBadImagesAlikeOnAllRanksAndListsThem) {
    const char* names[] = {"ref_rgb.jpg",   "truncated_half.jpg", "bad_crc.png",    "ref_rgb.png",
                           "zero_byte.jpg", "gray.jpg",           "UPPER.JPG",      "html_named.jpg",
                           "rgba.png",      "cmyk_adobe.jpg",     "jpeg_named.png", "truncated_header.jpg"};
    for (const char* name : names) write(std::string("set/a/") + name, read_file(case_file(std::string("img/") + name)));
    const auto source = open_source({.path = (folder_ / "set").string()});
    pipeline_.on_bad_image = BadImagePolicy::skip;
    const Seen one = train(*source, {.stop_step = 3});
    EXPECT_EQ(images_, 36);  // no step lost an image
    EXPECT_EQ(bad_.size(), 5U);
    EXPECT_EQ(train(*source, {.world_size = 3, .threads = 2, .stop_step = 3}), one);
    EXPECT_EQ(bad_.size(), 5U);
}

TEST_F(LoaderTest, ABadImageIsReplacedByTheNextGoodOne) {
    const std::string good = read_file(case_file("img/ref_rgb.jpg"));
    for (int index = 0; index < 8; ++index) {
        const bool bad = index == 2 || index == 3 || index == 7;
        write("set/a/" + std::to_string(index) + ".jpg", bad ? "nothing" : good);
    }
    const auto source = open_source({.path = (folder_ / "set").string()});
    pipeline_.on_bad_image = BadImagePolicy::skip;
    const SamplerOptions sampler{.sample_count = 8, .batch_global = 8, .per_replica = 8, .shuffle = false};
    const auto loader = make_train_loader(*source, {.sampler = sampler, .stop_step = 1}, {.pipeline = pipeline_});
    const std::optional<Batch> batch = loader->next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(std::vector<int64_t>(batch->samples.begin(), batch->samples.end()), (std::vector<int64_t>{0, 1, 4, 4, 4, 5, 6, 0}));
}

TEST_F(LoaderTest, ASetWithoutAGoodImageIsAnErrorEvenWhenSkipping) {
    for (int copy = 0; copy < 3; ++copy) write("set/a/" + std::to_string(copy) + ".jpg", "nothing");
    const auto source = open_source({.path = (folder_ / "set").string()});
    pipeline_.on_bad_image = BadImagePolicy::skip;
    EXPECT_NE(data_error_of([&] { train(*source, {.stop_step = 1}); }), "");
}

TEST_F(LoaderTest, EvaluationCountsEachImageOnceOnAnyNumberOfRanks) {
    const auto source = open_source({.path = case_file("sets/set101/val21").string()});
    for (int world = 1; world <= 4; ++world) {
        std::vector<int> seen(21);
        for (int rank = 0; rank < world; ++rank) {
            const auto loader = make_evaluation_loader(
                *source, rank, world, {.pipeline = {.height = 32, .width = 32}, .worker_threads = 2, .slot_capacity = 4});
            while (const std::optional<Batch> batch = loader->next()) {
                EXPECT_EQ(batch->count, batch->worker == 5 ? 1 : 4);
                for (const int64_t sample : batch->samples) ++seen[static_cast<size_t>(sample)];
            }
        }
        EXPECT_EQ(seen, std::vector<int>(21, 1));
    }
}

TEST_F(LoaderTest, EvaluationLeavesBadImagesOut) {
    write("set/a/0.jpg", read_file(case_file("img/ref_rgb.jpg")));
    write("set/a/1.jpg", "nothing");
    const auto source = open_source({.path = (folder_ / "set").string()});
    const auto loader = make_evaluation_loader(
        *source, 0, 1, {.pipeline = {.height = 48, .width = 64, .on_bad_image = BadImagePolicy::skip}, .slot_capacity = 4});
    const std::optional<Batch> batch = loader->next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(std::vector<int32_t>(batch->labels.begin(), batch->labels.end()), (std::vector<int32_t>{0, -1}));
    EXPECT_EQ(loader->statistics().bad_images, 1);
}

TEST_F(LoaderTest, LoadersAreDestroyedCleanlyAtAnyMoment) {
    const auto source = open_source({.kind = "synthetic", .synthetic_size = 100, .image_size = 32});
    const SamplerOptions sampler{.sample_count = 100, .batch_global = 8, .per_replica = 4};
    for (int taken = 0; taken < 12; ++taken) {
        const auto loader = make_train_loader(*source, {.sampler = sampler, .stop_step = 1000},
                                              {.pipeline = pipeline_, .worker_threads = 3, .batches_ahead = 2});
        for (int batch = 0; batch < taken; ++batch) ASSERT_TRUE(loader->next());
    }
}

TEST_F(LoaderTest, BatchesComeInOrderAndASlotStaysUntilTheNextCall) {
    const auto source = open_source({.kind = "synthetic", .synthetic_size = 64, .image_size = 32});
    const SamplerOptions sampler{.sample_count = 64, .batch_global = 16, .per_replica = 4};
    const auto loader = make_train_loader(*source, {.sampler = sampler, .stop_step = 40},
                                          {.pipeline = pipeline_, .worker_threads = 4, .batches_ahead = 1});
    int64_t expected = 0;
    while (const std::optional<Batch> batch = loader->next()) {
        EXPECT_EQ(batch->epoch * 16 + batch->step_in_epoch * 4 + batch->worker, expected++);
        const uint64_t before = hash_bytes(batch->images.data(), batch->images.size_bytes());
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        EXPECT_EQ(hash_bytes(batch->images.data(), batch->images.size_bytes()), before);
    }
    EXPECT_EQ(expected, 160);
}

TEST_F(LoaderTest, ImpossibleOptionsAreConfigErrors) {
    const auto source = open_source({.kind = "synthetic", .synthetic_size = 64, .image_size = 32});
    const SamplerOptions sampler{.sample_count = 64, .batch_global = 16, .per_replica = 4};
    EXPECT_THROW(make_train_loader(*source, {.sampler = sampler, .stop_step = 4}, {.pipeline = pipeline_, .worker_threads = 0}),
                 ConfigError);
    EXPECT_THROW(make_train_loader(*source, {.sampler = sampler, .stop_step = 4}, {.pipeline = pipeline_, .batches_ahead = 0}),
                 ConfigError);
}

}  // namespace
}  // namespace lockstep
