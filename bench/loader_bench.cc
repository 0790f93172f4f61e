#include "bench/loader_bench.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "bench/machine_facts.h"
#include "core/clock.h"
#include "core/error.h"
#include "data_loader/content_kind.h"
#include "data_loader/pipeline.h"
#include "data_loader/plain_jpeg.h"

namespace lockstep::bench {

namespace {

constexpr size_t kPageBytes = 4096;

// Some of another source's samples.
class Selection final : public Source {
public:
    Selection(const Source& source, std::vector<int64_t> samples) : source_(source), samples_(std::move(samples)) {}
    int64_t size() const override { return std::ssize(samples_); }
    const std::vector<std::string>& class_names() const override { return source_.class_names(); }
    int64_t class_total() const override { return source_.class_total(); }
    uint64_t fingerprint() const override { return source_.fingerprint(); }
    std::string description() const override { return source_.description(); }
    std::string name(int64_t index) const override { return source_.name(samples_[static_cast<size_t>(index)]); }
    void will_need(int64_t index) const override { source_.will_need(samples_[static_cast<size_t>(index)]); }
    void read(int64_t index, Record& record) const override { source_.read(samples_[static_cast<size_t>(index)], record); }

private:
    const Source& source_;
    std::vector<int64_t> samples_;
};

size_t floats_of(const PipelineOptions& options) {
    return static_cast<size_t>(options.channels) * static_cast<size_t>(options.height) * static_cast<size_t>(options.width);
}

double process_cpu_s() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Turn {
    double wall_s = 0.0, cpu_s = 0.0;
    int64_t wait_ns = 0;
    int64_t start_ns = 0;   // the ring: from nothing to the first batch, not part of wall_s
    unsigned byte_sum = 0;  // of what was only read, so that the reading is not optimised away
    StageTimes stages{};
};

class Stopwatch {
public:
    void stop(Turn& turn) const {
        turn.wall_s = 1e-9 * static_cast<double>(now_ns() - begin_ns_);
        turn.cpu_s = process_cpu_s() - cpu_begin_s_;
    }

private:
    double cpu_begin_s_ = process_cpu_s();
    int64_t begin_ns_ = now_ns();
};

// Gives image after image to threads that each have a worker of their own; `end(worker)` once for each, one at a time.
template <typename MakeWorker, typename End>
void share_out(int threads, int64_t images, MakeWorker make, End end) {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
        try {
            auto worker = make();
            for (int64_t image = next++; image < images; image = next++) worker(image);
            const std::lock_guard lock(mutex);
            end(worker);
        } catch (...) {
            const std::lock_guard lock(mutex);
            failure = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> others;
        for (int thread = 0; thread < threads; ++thread) others.emplace_back(work);
    }
    if (failure) std::rethrow_exception(failure);
}

struct Reader {
    const Source& source;
    Record record{};
    unsigned sum = 0;
    void operator()(int64_t image) {
        source.read(image, record);
        for (size_t offset = 0; offset < record.bytes.size(); offset += kPageBytes) {
            sum += std::to_integer<unsigned>(record.bytes[offset]);
        }
    }
};

struct Plain {
    const Source& source;
    std::unique_ptr<PlainJpegDecoder> decoder = std::make_unique<PlainJpegDecoder>();
    Record record{};
    void operator()(int64_t image) {
        source.read(image, record);
        check(decoder->decode(record.bytes).has_value(), "the selection holds what libjpeg-turbo decodes");
    }
};

struct Whole {
    const Source& source;
    const PipelineOptions& options;
    int64_t epoch;
    std::unique_ptr<Pipeline> pipeline = std::make_unique<Pipeline>(options);
    StageClock clock{};
    Record record{};
    std::vector<float> out = std::vector<float>(floats_of(options));
    void operator()(int64_t image) {
        clock.begin();
        source.read(image, record);
        clock.lap(Stage::read);
        pipeline->run(record, epoch, image, out);
    }
    StageTimes times() const {
        StageTimes sum = clock.times();
        add(sum, pipeline->times());
        return sum;
    }
};

// What a turn of the ring takes: one epoch, batch by batch, after the last batch of the epoch before. So the memory of the ring,
// its threads and their decoders are there when the clock starts; what they take is `start_ns`.
Turn drain(const Source& source, const LoaderBenchOptions& options, int threads, int64_t epoch, double consumer_images_per_s) {
    const SamplerOptions sampler{
        .sample_count = source.size(), .batch_global = options.batch, .per_replica = options.batch, .seed = options.pipeline.seed};
    const int64_t steps = Sampler(sampler).steps_per_epoch(), built_ns = now_ns();
    const auto loader =
        make_train_loader(source, {.sampler = sampler, .start_step = epoch * steps - 1, .stop_step = (epoch + 1) * steps},
                          {.pipeline = options.pipeline, .worker_threads = threads, .batches_ahead = options.batches_ahead});
    check(loader->next().has_value(), "the step before an epoch has a batch");
    Stopwatch watch;
    Turn turn{.start_ns = now_ns() - built_ns};
    while (const std::optional<Batch> batch = loader->next()) {
        turn.wait_ns += batch->wait_ns;
        if (consumer_images_per_s <= 0.0) continue;
        std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<int64_t>(1e9 * batch->count / consumer_images_per_s)));
    }
    watch.stop(turn);
    // Those of all images made: the first batch's, too.
    const LoaderStatistics statistics = loader->statistics();
    for (size_t stage = 0; stage < kStageCount; ++stage) {
        turn.stages[stage] = statistics.stages[stage] * source.size() / statistics.made;
    }
    return turn;
}

// The samples of a turn: good ones, and where there are JPEG files only those, so that all contestants have the same.
class Chooser {
public:
    Chooser(const Source& source, const LoaderBenchOptions& options) : source_(source) {
        const int64_t wanted = options.images > 0 ? std::min(options.images, source.size()) : source.size();
        std::vector<int64_t> jpegs, all;
        std::string reason;
        Whole whole{source, options.pipeline, 0};
        for (int64_t place = 0; place < wanted; ++place) {
            const int64_t sample = place * source.size() / wanted;
            try {
                whole(sample);
            } catch (const DataError& error) {
                reason = error.what();
                continue;
            }
            all.push_back(sample);
            if (is_plain_jpeg(whole.record)) jpegs.push_back(sample);
        }
        if (all.empty()) throw DataError(fmt::format("none of {} images is good, the last of them: {}", wanted, reason));
        has_jpeg = !jpegs.empty();
        chosen = has_jpeg ? std::move(jpegs) : std::move(all);
        left_out = wanted - std::ssize(chosen);
    }

    std::vector<int64_t> chosen;
    bool has_jpeg = false;
    int64_t left_out = 0;
    double pixels = 0.0;  // of the chosen ones, in sum

private:
    bool is_plain_jpeg(const Record& record) {
        if (record.encoding != Encoding::detect || detect_content(record.bytes) != ContentKind::jpeg) return false;
        const std::optional<ImageSize> size = decoder_.decode(record.bytes);
        if (size) pixels += static_cast<double>(size->width) * size->height;
        return size.has_value();
    }

    const Source& source_;
    PlainJpegDecoder decoder_;
};

class Bench {
public:
    Bench(const Source& source, const LoaderBenchOptions& options, bool has_jpeg) : source_(source), options_(options) {
        for (const int threads : options.threads) {
            add("read", threads);
            if (has_jpeg) add("libjpeg-turbo", threads);
            add("pipeline", threads);
            add("loader", threads);
            if (options.consumer_images_per_s > 0.0) add("loader, paced", threads);
        }
    }

    void round(int64_t epoch) {
        for (Entry& entry : entries_) entry.turns.push_back(take(entry.row, epoch));
    }

    std::vector<LoaderBenchRow> rows() {
        std::vector<LoaderBenchRow> rows;
        for (Entry& entry : entries_) rows.push_back(summary(entry));
        return rows;
    }

private:
    struct Entry {
        LoaderBenchRow row;
        std::vector<Turn> turns;  // by round
    };

    void add(std::string what, int threads) { entries_.push_back({{.what = std::move(what), .threads = threads}, {}}); }

    Turn take(const LoaderBenchRow& row, int64_t epoch) const {
        if (row.what == "loader") return drain(source_, options_, row.threads, epoch, 0.0);
        if (row.what == "loader, paced") return drain(source_, options_, row.threads, epoch, options_.consumer_images_per_s);
        Turn turn;
        const int64_t images = source_.size();
        const Stopwatch watch;
        if (row.what == "read") {
            share_out(
                row.threads, images, [&] { return Reader{source_}; }, [&](const Reader& reader) { turn.byte_sum += reader.sum; });
        } else if (row.what == "libjpeg-turbo") {
            share_out(
                row.threads, images, [&] { return Plain{source_}; }, [](const Plain&) {});
        } else {
            share_out(
                row.threads, images,
                [&] {
                    return Whole{source_, options_.pipeline, epoch};
                },
                [&](const Whole& whole) { lockstep::add(turn.stages, whole.times()); });
        }
        watch.stop(turn);
        return turn;
    }

    double images_per_s(const Turn& turn) const { return static_cast<double>(source_.size()) / turn.wall_s; }

    template <typename Value>
    static double median(const std::vector<Turn>& turns, Value value) {
        std::vector<double> values;
        for (const Turn& turn : turns) values.push_back(value(turn));
        return spread_of(values).median;
    }

    LoaderBenchRow summary(const Entry& entry) const {
        LoaderBenchRow row = entry.row;
        const double images = static_cast<double>(source_.size());
        std::vector<double> rates;
        for (const Turn& turn : entry.turns) rates.push_back(images_per_s(turn));
        row.images_per_s = spread_of(rates);
        row.cpu_us = median(entry.turns, [&](const Turn& turn) { return 1e6 * turn.cpu_s / images; });
        row.wait_share =
            median(entry.turns, [](const Turn& turn) { return 1e-9 * static_cast<double>(turn.wait_ns) / turn.wall_s; });
        row.start_ms = median(entry.turns, [](const Turn& turn) { return 1e-6 * static_cast<double>(turn.start_ns); });
        for (size_t stage = 0; stage < kStageCount; ++stage) {
            row.stage_us[stage] =
                median(entry.turns, [&](const Turn& turn) { return 1e-3 * static_cast<double>(turn.stages[stage]) / images; });
        }
        for (const Entry& plain : entries_) {
            if (plain.row.what != "libjpeg-turbo" || plain.row.threads != row.threads) continue;
            std::vector<double> ratios;
            for (size_t round = 0; round < rates.size(); ++round) ratios.push_back(rates[round] / images_per_s(plain.turns[round]));
            row.of_libjpeg = spread_of(ratios).median;
        }
        return row;
    }

    const Source& source_;
    const LoaderBenchOptions& options_;
    std::vector<Entry> entries_;
};

double mean_bytes(const Source& source) {
    Record record;
    double bytes = 0.0;
    for (int64_t sample = 0; sample < source.size(); ++sample) {
        source.read(sample, record);
        bytes += static_cast<double>(record.bytes.size());
    }
    return bytes / static_cast<double>(source.size());
}

}  // namespace

LoaderBenchResult run_loader_bench(const Source& source, const LoaderBenchOptions& options) {
    validate(options.pipeline);
    Chooser chooser(source, options);
    const Selection selection(source, chooser.chosen);
    LoaderBenchResult result{.options = options,
                             .source = source.description(),
                             .images = selection.size(),
                             .left_out = chooser.left_out,
                             .mean_bytes = mean_bytes(selection),
                             .mean_pixels = chooser.pixels / static_cast<double>(selection.size())};
    Bench bench(selection, options, chooser.has_jpeg);
    const CpuTimes before = cpu_times();
    for (int64_t epoch = 1; epoch <= options.rounds; ++epoch) bench.round(epoch);
    result.steal_share = steal_share(before, cpu_times());
    result.rows = bench.rows();
    return result;
}

}  // namespace lockstep::bench
