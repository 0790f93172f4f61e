// A loader whose storage is slow, dead, or ahead of its consumer.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/file_descriptor.h"
#include "data_loader/loader.h"
#include "data_loader/plain_jpeg.h"
#include "tests/unit/data_loader/fixtures.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Grey pictures of 4 x 4. One of them is not answered before `answer` is called; others take `pause`.
class Storage final : public Source {
public:
    explicit Storage(int64_t size, int64_t silent = -1, std::chrono::milliseconds pause = {})
        : size_(size), silent_(silent), pause_(pause) {}

    void answer() {
        const std::lock_guard lock(mutex_);
        answered_ = true;
        changed_.notify_all();
    }
    int64_t reads() const { return reads_; }
    int64_t asked_ahead() const { return asked_ahead_; }
    int most_at_once() const { return most_at_once_; }

    int64_t size() const override { return size_; }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return 10; }
    uint64_t fingerprint() const override { return 1; }
    std::string description() const override { return "storage"; }
    std::string name(int64_t index) const override { return "disk/" + std::to_string(index) + ".jpg"; }
    void will_need(int64_t) const override { ++asked_ahead_; }
    void read(int64_t index, Record& record) const override {
        const int now = ++at_once_;
        int most = most_at_once_;
        while (now > most && !most_at_once_.compare_exchange_weak(most, now)) {
        }
        if (index == silent_) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return answered_; });
        }
        if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
        record.key = name(index);
        record.label = static_cast<int32_t>(index % 10);
        record.encoding = Encoding::raw;
        record.channels = 1;
        record.height = record.width = 4;
        record.storage.assign(16, static_cast<std::byte>(index));
        record.bytes = record.storage;
        ++reads_;
        --at_once_;
    }

private:
    const int64_t size_, silent_;
    const std::chrono::milliseconds pause_;
    std::vector<std::string> names_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool answered_ = false;
    mutable std::atomic<int64_t> reads_{0}, asked_ahead_{0};
    mutable std::atomic<int> at_once_{0}, most_at_once_{0};
};

LoaderOptions options(int threads = 1) {
    return {.pipeline = {.channels = 1, .height = 4, .width = 4}, .worker_threads = threads, .batches_ahead = 2};
}

std::unique_ptr<DataLoader> open(const Source& source, const LoaderOptions& options, int64_t steps = 100) {
    const SamplerOptions sampler{.sample_count = source.size(), .batch_global = 4, .per_replica = 4, .shuffle = false};
    return make_train_loader(source, {.sampler = sampler, .stop_step = steps}, options);
}

TEST(LoaderStorage, DeadStorageIsAnErrorThatNamesTheFileAndNeverAHang) {
    static Storage storage(40, 5);  // outlives the thread that is left behind
    LoaderOptions impatient = options(2);
    impatient.timeout_ms = 300;
    int looked = 0;
    impatient.while_waiting = [&] { ++looked; };
    const int64_t begin_ns = now_ns();
    std::string error;
    {
        const auto loader = open(storage, impatient);
        EXPECT_EQ(loader->next()->count, 4);
        error = data_error_of([&] { loader->next(); });
        EXPECT_EQ(data_error_of([&] { loader->next(); }), error) << "a dead loader stays dead";
    }  // leaves the thread behind
    EXPECT_THAT(error, AllOf(HasSubstr("disk/5.jpg"), HasSubstr("no image was finished for 0.3"), HasSubstr("data.timeout")));
    EXPECT_LT(now_ns() - begin_ns, 20'000'000'000) << "bounded, also on a busy machine";
    EXPECT_GT(looked, 0) << "whoever waits for this rank is told that it is alive";
    storage.answer();
}

// As when the job was suspended: nobody looked, and nobody could read either.
TEST(LoaderStorage, TimeInWhichThisProcessWasAbsentIsNotTheStoragesSilence) {
    Storage storage(8, 1);
    LoaderOptions suspended = options();
    suspended.timeout_ms = 800;
    suspended.while_waiting = [&, absent = false]() mutable {
        if (!std::exchange(absent, true)) std::this_thread::sleep_for(std::chrono::milliseconds(1600));
    };
    const auto loader = open(storage, suspended, 1);
    std::jthread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1700));
        storage.answer();
    });
    EXPECT_EQ(loader->next()->count, 4);
}

TEST(LoaderStorage, SlowStorageIsAWarningThatNamesTheFileAndTheBatchComes) {
    Storage storage(8, 1);
    LoaderOptions patient = options();
    patient.slow_after_ms = 50;
    testing::internal::CaptureStderr();
    const auto loader = open(storage, patient, 2);
    std::jthread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(400));
        storage.answer();
    });
    EXPECT_EQ(loader->next()->count, 4);
    later.join();
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_THAT(text, AllOf(HasSubstr("waits for data"), HasSubstr("disk/1.jpg"), HasSubstr("data.workers")));
    EXPECT_EQ(loader->statistics().slow_waits, 1);
    EXPECT_GE(loader->statistics().wait_ns, 50'000'000);
}

// Each image takes longer than the time-out of silence would allow for a batch: there is always one that was finished.
TEST(LoaderStorage, ImagesThatComeSlowlyAreWaitedFor) {
    Storage storage(8, -1, std::chrono::milliseconds(60));
    LoaderOptions slow = options();
    slow.timeout_ms = 200;
    const auto loader = open(storage, slow, 2);
    int64_t images = 0;
    while (const std::optional<Batch> batch = loader->next()) images += batch->count;
    EXPECT_EQ(images, 8);
}

TEST(LoaderStorage, AFileThatHangsWhenOpenedIsNamed) {
    const fs::path folder = fs::path(testing::TempDir()) / ("hanging_" + std::to_string(getpid()));
    make_directories(folder / "a");
    const std::string picture = read_file(case_file("img/ref_rgb.jpg"));
    for (const char* name : {"0.jpg", "1.jpg", "2.jpg", "3.jpg"}) write_file_atomically(folder / "a" / name, picture);
    static const auto source = open_source({.path = folder.string()});  // outlives the thread that is left behind
    fs::remove(folder / "a/2.jpg");
    ASSERT_EQ(mkfifo((folder / "a/2.jpg").c_str(), 0600), 0);  // nobody writes: opening it never returns
    LoaderOptions impatient{.pipeline = {.height = 48, .width = 64}, .worker_threads = 1, .batches_ahead = 1, .timeout_ms = 200};
    const std::string error = data_error_of([&] { open(*source, impatient)->next(); });
    EXPECT_THAT(error, AllOf(HasSubstr("2.jpg"), HasSubstr("does not answer")));
    {  // Both ends in one descriptor: the thread is let go and finds no regular file, and nobody writes to a pipe without a reader.
        const FileDescriptor both_ends(::open((folder / "a/2.jpg").c_str(), O_RDWR | O_CLOEXEC));
        ASSERT_GE(both_ends.get(), 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    fs::remove_all(folder);
}

TEST(LoaderStorage, LateBatchesBringMoreThreadsUpToTheMostAllowed) {
    Storage storage(400, -1, std::chrono::milliseconds(2));
    LoaderOptions growing = options();
    growing.max_worker_threads = 3;
    const auto loader = open(storage, growing, 60);
    EXPECT_EQ(loader->statistics().workers, 1);
    int64_t expected = 0;
    while (const std::optional<Batch> batch = loader->next()) {
        for (const int64_t sample : batch->samples) EXPECT_EQ(sample, expected++ % 400) << "the order does not change";
    }
    EXPECT_EQ(expected, 240);
    EXPECT_EQ(loader->statistics().workers, 3);
    EXPECT_EQ(storage.most_at_once(), 3);
}

TEST(LoaderStorage, AConsumerThatIsSlowerNeedsNoMoreThreads) {
    Storage storage(400);
    LoaderOptions growing = options();
    growing.max_worker_threads = 3;
    const auto loader = open(storage, growing, 20);
    for (int step = 0; step < 20; ++step) {
        ASSERT_TRUE(loader->next());
        while (loader->statistics().made < std::min<int64_t>(80, 4 * (step + 3))) std::this_thread::yield();  // the ring is full
    }
    EXPECT_EQ(loader->statistics().workers, 1);
    EXPECT_EQ(storage.most_at_once(), 1);
}

TEST(LoaderStorage, TheNextEpochIsMadeWhileTheLastBatchOfThisOneIsUsed) {
    Storage storage(8);
    const auto loader = open(storage, options(), 6);
    ASSERT_EQ(loader->next()->step_in_epoch, 0);
    ASSERT_EQ(loader->next()->step_in_epoch, 1);  // the last of the first epoch is in hand
    const Deadline deadline = Deadline::after_ms(20'000);
    while (storage.reads() < 16 && !deadline.expired()) std::this_thread::yield();
    EXPECT_EQ(storage.reads(), 16) << "two batches of the second epoch are made, and no more than the ring holds";
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(storage.reads(), 16);
    EXPECT_EQ(loader->next()->epoch, 1);
}

TEST(LoaderStorage, EverySampleIsAnnouncedToTheStorageAndCounted) {
    Storage storage(40);
    const auto loader = open(storage, options(2), 10);
    while (loader->next()) {
    }
    EXPECT_EQ(storage.asked_ahead(), 40);
    const LoaderStatistics statistics = loader->statistics();
    EXPECT_EQ(statistics.images, 40);
    EXPECT_EQ(statistics.made, 40);
    EXPECT_EQ(statistics.batches, 10);
    EXPECT_EQ(statistics.read_bytes, 40 * 16);
    EXPECT_LE(statistics.ready_batches, 10 * 3);
    for (const int64_t stage_ns : statistics.stages) EXPECT_GE(stage_ns, 0);
    EXPECT_GT(statistics.stages[static_cast<size_t>(Stage::decode)], 0);
}

TEST(LoaderStorage, MemoryIsFlatOverTwentyEpochs) {
    const auto source = open_source({.path = case_file("sets/set101/train").string()});
    const SamplerOptions sampler{.sample_count = source->size(), .batch_global = 16, .per_replica = 8, .seed = 3};
    const int64_t steps = Sampler(sampler).steps_per_epoch();
    const PipelineOptions pipeline{
        .transforms = {{.kind = Transform::Kind::random_resized_crop, .height = 32, .width = 32}}, .height = 32, .width = 32};
    const auto loader = make_train_loader(*source, {.sampler = sampler, .stop_step = 20 * steps},
                                          {.pipeline = pipeline, .worker_threads = 2, .batches_ahead = 2});
    int64_t after_two = 0;
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
        int64_t images = 0;
        while (images < source->size()) images += loader->next()->count;
        if (epoch == 1) after_two = resident_bytes();
    }
    EXPECT_FALSE(loader->next());
    constexpr int64_t kSlack = 1 << 20;  // the allocator's; a leak of one image in each epoch would be twice as much
    EXPECT_LE(resident_bytes(), after_two + kSlack);
}

TEST(PlainJpeg, GivesTheSamePixelsAsTheDecoder) {
    JpegDecoder decoder;
    PlainJpegDecoder plain;
    Image image;
    const Record record = record_of(case_file("img/ref_rgb.jpg"));
    const ImageSize size = decoder.open(record.bytes, record.key);
    decoder.decode({.box = {0, 0, size.width, size.height}}, image);
    ASSERT_EQ(plain.decode(record.bytes), size);
    for (int y = 0; y < size.height; ++y) {
        for (int x = 0; x < size.width; ++x) {
            const uint8_t* pixel =
                plain.pixels().data() + 3 * (static_cast<size_t>(y) * static_cast<size_t>(size.width) + static_cast<size_t>(x));
            EXPECT_TRUE(std::equal(pixel, pixel + 3, image.view().row(y) + 4 * x)) << x << " " << y;
        }
    }
    EXPECT_FALSE(plain.decode(record_of(case_file("img/html_named.jpg")).bytes));
    EXPECT_FALSE(plain.decode({}));
    EXPECT_EQ(plain.decode(record.bytes), size) << "an error leaves nothing behind";
}

}  // namespace
}  // namespace lockstep
