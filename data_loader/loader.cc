#include "data_loader/loader.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "core/tensor.h"
#include "data_loader/batch_sequence.h"
#include "data_loader/pipeline.h"

namespace lockstep {

namespace {

constexpr int kMaxImagesPerClaim = 8;

// What becomes of a bad image under BadImagePolicy::skip. A training step keeps its size, so another image takes the place; an
// evaluation counts every image at most once, so the place stays empty (label -1).
enum class Replacement : uint8_t { next_good, empty };

int64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

struct Slot {
    Buffer images;
    std::vector<int32_t> labels;
    std::vector<int64_t> samples;
    BatchAssignment assignment;
    std::vector<int32_t> second_labels;
    float second_share = 0.0F;
    int claimed = 0, done = 0;  // images given to workers, images finished
    bool finished = false;      // all are, and mixed
    std::exception_ptr error;   // the first one

    bool complete() const { return finished; }
};

// Batch number b lives in slot b % slots. Three counters move through the batches: opened (given to workers), taken (given to the
// consumer), and released (the consumer is done with it); a slot is free again when its batch is released.
class RingLoader final : public DataLoader {
public:
    RingLoader(const Source& source, std::unique_ptr<BatchSequence> sequence, const LoaderOptions& options, Replacement replacement)
        : source_(source),
          options_(options),
          replacement_(replacement),
          image_floats_(static_cast<size_t>(options.pipeline.channels) * static_cast<size_t>(options.pipeline.height) *
                        static_cast<size_t>(options.pipeline.width)),
          sequence_(std::move(sequence)) {
        validate(options.pipeline);
        if (options.worker_threads < 1 || options.batches_ahead < 1) {
            throw ConfigError(fmt::format("data.workers {} and data.batches_ahead {} must be at least 1", options.worker_threads,
                                          options.batches_ahead));
        }
        const size_t capacity = static_cast<size_t>(options.slot_capacity);
        images_per_claim_ = std::clamp(options.slot_capacity / (4 * options.worker_threads), 1, kMaxImagesPerClaim);
        HeapPool pool;
        slots_.resize(static_cast<size_t>(options.batches_ahead) + 1);  // one more is in the consumer's hands
        for (Slot& slot : slots_) {
            slot.images = pool.allocate(capacity * image_floats_ * sizeof(float));
            slot.labels.resize(capacity);
            slot.second_labels.resize(capacity);
            slot.samples.resize(capacity);
        }
        for (int worker = 0; worker < options.worker_threads; ++worker) {
            workers_.emplace_back([this](std::stop_token stop) { work(stop); });
        }
    }

    std::optional<Batch> next() override {
        const int64_t begin_ns = now_ns();
        std::unique_lock lock(mutex_);
        if (failure_) std::rethrow_exception(failure_);
        if (released_ < taken_) {
            released_ = taken_;
            space_.notify_all();
        }
        bool waited = false;
        while (!head_ready()) {
            waited = true;
            ready_.wait(lock);
        }
        if (worker_failure_) failure_ = worker_failure_;
        if (failure_) std::rethrow_exception(failure_);
        if (taken_ == opened_) return std::nullopt;
        Slot& slot = slot_of(taken_);
        ++taken_;
        if (slot.error) {
            failure_ = slot.error;
            std::rethrow_exception(failure_);
        }
        if (waited) ++starved_;
        images_ += slot.assignment.count;
        return batch_of(slot, waited ? now_ns() - begin_ns : 0);
    }

    LoaderStatistics statistics() const override {
        const std::lock_guard lock(mutex_);
        LoaderStatistics result{.images = images_,
                                .bad_images = std::ssize(bad_),
                                .bad_paths = {},
                                .decode_ns = decode_ns_,
                                .warnings = warnings_,
                                .starved = starved_};
        for (const auto& [sample, reason] : bad_) result.bad_paths.push_back(reason);
        return result;
    }

private:
    // Images [first, last) of a slot, handed to one worker.
    struct Claim {
        Slot* slot;
        int first, last;
    };

    Slot& slot_of(int64_t batch) { return slots_[static_cast<size_t>(batch) % slots_.size()]; }
    bool has_space() const { return opened_ - released_ < std::ssize(slots_); }
    // Workers drain one slot before they open the next.
    bool has_unclaimed() { return opened_ > 0 && slot_of(opened_ - 1).claimed < slot_of(opened_ - 1).assignment.count; }
    bool head_ready() {
        if (worker_failure_) return true;
        return taken_ < opened_ ? slot_of(taken_).complete() : exhausted_;
    }
    Batch batch_of(Slot& slot, int64_t wait_ns) {
        const BatchAssignment& assignment = slot.assignment;
        const size_t count = static_cast<size_t>(assignment.count);
        return {.epoch = assignment.epoch,
                .step_in_epoch = assignment.step_in_epoch,
                .worker = assignment.worker,
                .count = assignment.count,
                .images = slot.images.f32().first(count * image_floats_),
                .labels = std::span(slot.labels).first(count),
                .second_labels = options_.mix.on() ? std::span(slot.second_labels).first(count) : std::span<int32_t>(),
                .second_share = slot.second_share,
                .samples = std::span(slot.samples).first(count),
                .wait_ns = wait_ns};
    }

    void work(std::stop_token stop);
    bool open_next_slot();
    std::optional<Claim> claim(std::stop_token stop);
    void finish(const Claim& claim, std::exception_ptr error, int64_t cpu_ns, int64_t new_warnings);
    void mix_images(Slot& slot);
    void load(Slot& slot, int place, Pipeline& pipeline, Record& record);
    bool try_load(Slot& slot, int place, int64_t sample, Pipeline& pipeline, Record& record);

    const Source& source_;
    const LoaderOptions options_;
    const Replacement replacement_;
    const size_t image_floats_;
    int images_per_claim_ = 1;
    std::vector<Slot> slots_;

    mutable std::mutex mutex_;
    std::condition_variable_any space_;        // workers: a slot may be free
    std::condition_variable ready_;            // consumer: the head may be complete
    std::unique_ptr<BatchSequence> sequence_;  // all below are guarded by mutex_
    int64_t opened_ = 0, taken_ = 0, released_ = 0;
    bool exhausted_ = false;
    std::exception_ptr failure_;          // what next() threw; the loader is dead
    std::exception_ptr worker_failure_;   // a worker ended outside any batch
    std::map<int64_t, std::string> bad_;  // sample -> reason: each bad image once, however often it was met
    int64_t images_ = 0, starved_ = 0, decode_ns_ = 0, warnings_ = 0;

    std::vector<std::jthread> workers_;  // last: joined before the rest dies
};

void RingLoader::work(std::stop_token stop) {
    try {
        Pipeline pipeline(options_.pipeline);
        Record record;
        while (const std::optional<Claim> mine = claim(stop)) {
            const int64_t begin_ns = thread_cpu_ns();
            const int64_t warnings_before = pipeline.decoder_warnings();
            std::exception_ptr error;
            try {
                for (int place = mine->first; place < mine->last; ++place) load(*mine->slot, place, pipeline, record);
            } catch (...) {
                error = std::current_exception();
            }
            finish(*mine, error, thread_cpu_ns() - begin_ns, pipeline.decoder_warnings() - warnings_before);
        }
    } catch (...) {
        const std::lock_guard lock(mutex_);
        worker_failure_ = std::current_exception();
        ready_.notify_all();
    }
}

// Called with the mutex held; true when there is a new slot to work on.
bool RingLoader::open_next_slot() {
    if (exhausted_ || !has_space()) return false;
    Slot& slot = slot_of(opened_);
    if (!sequence_->next(slot.assignment, slot.samples)) {
        exhausted_ = true;
        ready_.notify_all();
        space_.notify_all();
        return false;
    }
    slot.claimed = slot.done = 0;
    slot.finished = slot.assignment.count == 0;
    slot.error = nullptr;
    ++opened_;
    return true;
}

std::optional<RingLoader::Claim> RingLoader::claim(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
        if (has_unclaimed()) {
            Slot& slot = slot_of(opened_ - 1);
            const int first = slot.claimed;
            slot.claimed = std::min(first + images_per_claim_, slot.assignment.count);
            return Claim{&slot, first, slot.claimed};
        }
        if (open_next_slot()) {
            space_.notify_all();
        } else if (exhausted_) {
            return std::nullopt;
        } else {
            space_.wait(lock, stop, [this] { return exhausted_ || has_space() || has_unclaimed(); });
        }
    }
    return std::nullopt;
}

void RingLoader::finish(const Claim& claim, std::exception_ptr error, int64_t cpu_ns, int64_t new_warnings) {
    std::unique_lock lock(mutex_);
    Slot& slot = *claim.slot;
    if (error && !slot.error) slot.error = error;
    slot.done += claim.last - claim.first;
    decode_ns_ += cpu_ns;
    warnings_ += new_warnings;
    if (slot.done < slot.assignment.count) return;
    if (options_.mix.on() && !slot.error) {
        lock.unlock();  // nobody else touches a slot whose images are done
        mix_images(slot);
        lock.lock();
    }
    slot.finished = true;
    ready_.notify_all();
}

// Whichever thread does it: drawn by place in the run alone.
void RingLoader::mix_images(Slot& slot) {
    const BatchAssignment& place = slot.assignment;
    const size_t count = static_cast<size_t>(place.count);
    const ImageSize size{options_.pipeline.width, options_.pipeline.height};
    RandomStream random(options_.pipeline.seed, "mix", static_cast<uint64_t>(place.epoch),
                        static_cast<uint64_t>(place.step_in_epoch) << 32 | static_cast<uint64_t>(place.worker));
    const Mixture mixture = draw_mixture(options_.mix, size, random);
    thread_local std::vector<float> scratch;
    mix(mixture, size, slot.images.f32().first(count * image_floats_), std::span(slot.labels).first(count), slot.second_labels,
        scratch);
    slot.second_share = mixture.second_share;
}

// Which image replaces a bad one depends on the bad one's index alone: all ranks and all restarts agree. The random numbers stay
// those of the replaced sample, so the substitute does not repeat its own crop.
void RingLoader::load(Slot& slot, int place, Pipeline& pipeline, Record& record) {
    const int64_t wanted = slot.samples[static_cast<size_t>(place)];
    if (try_load(slot, place, wanted, pipeline, record)) return;
    if (replacement_ == Replacement::empty) {
        const auto image = slot.images.f32().subspan(static_cast<size_t>(place) * image_floats_, image_floats_);
        std::fill(image.begin(), image.end(), 0.0F);
        slot.labels[static_cast<size_t>(place)] = -1;
        return;
    }
    for (int64_t further = 1; further < source_.size(); ++further) {
        const int64_t candidate = (wanted + further) % source_.size();
        if (!try_load(slot, place, candidate, pipeline, record)) continue;
        slot.samples[static_cast<size_t>(place)] = candidate;
        return;
    }
    throw DataError(fmt::format("none of the {} images of {} can be decoded", source_.size(), source_.description()));
}

bool RingLoader::try_load(Slot& slot, int place, int64_t sample, Pipeline& pipeline, Record& record) {
    const size_t index = static_cast<size_t>(place);
    try {
        source_.read(sample, record);
        const BatchAssignment& assignment = slot.assignment;
        pipeline.run(record, assignment.epoch, slot.samples[index],
                     slot.images.f32().subspan(index * image_floats_, image_floats_));
        slot.labels[index] = record.label;
        return true;
    } catch (const DataError& error) {
        if (options_.pipeline.on_bad_image == BadImagePolicy::error) throw;
        const std::lock_guard lock(mutex_);
        bad_.emplace(sample, error.what());
        return false;
    }
}

}  // namespace

std::unique_ptr<DataLoader> make_train_loader(const Source& source, const TrainPlan& plan, const LoaderOptions& options) {
    check(plan.sampler.sample_count == source.size(), "make_train_loader: the plan was made for another source");
    LoaderOptions whole = options;
    if (whole.slot_capacity == 0) whole.slot_capacity = static_cast<int>(plan.sampler.per_replica);
    check(whole.slot_capacity >= plan.sampler.per_replica, "make_train_loader: a slot must hold a virtual worker");
    return std::make_unique<RingLoader>(source, std::make_unique<TrainSequence>(plan), whole, Replacement::next_good);
}

std::unique_ptr<DataLoader> make_evaluation_loader(const Source& source, int rank, int world_size, const LoaderOptions& options) {
    check(options.slot_capacity > 0, "make_evaluation_loader: slot_capacity is the batch and must be positive");
    check(world_size > 0 && rank >= 0 && rank < world_size, "make_evaluation_loader: rank outside the world");
    auto sequence = std::make_unique<EvaluationSequence>(source.size(), options.slot_capacity, rank, world_size);
    return std::make_unique<RingLoader>(source, std::move(sequence), options, Replacement::empty);
}

}  // namespace lockstep
