#include "data_loader/batch_ring.h"

#include <time.h>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/random.h"
#include "data_loader/pipeline.h"

namespace lockstep {

namespace {

constexpr int kMaxImagesPerClaim = 8;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kLookEveryMs = 50;               // while a batch is late
constexpr int64_t kLongestLookMs = 1000;           // between two looks: then the process was absent
constexpr int64_t kWorthAWorkerNs = 1 * kNsPerMs;  // shorter waits are the scheduler's
constexpr int kMaxWarnings = 5;

int64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

double seconds(int64_t ns) { return 1e-9 * static_cast<double>(ns); }

}  // namespace

struct BatchRing::Tools {
    explicit Tools(const LoaderOptions& options) : pipeline(options.pipeline) {
        soon.reserve(static_cast<size_t>(options.slot_capacity));
    }

    Pipeline pipeline;
    Record record;
    StageClock clock;           // of reading
    int64_t read_bytes = 0;     // of all images so far
    std::vector<int64_t> soon;  // samples of a slot that was just opened

    // Sums of everything so far.
    LoaderStatistics sums() const {
        LoaderStatistics sum{.warnings = pipeline.decoder_warnings(), .read_bytes = read_bytes, .stages = clock.times()};
        add(sum.stages, pipeline.times());
        return sum;
    }
};

BatchRing::BatchRing(const Source& source, std::unique_ptr<BatchSequence> sequence, const LoaderOptions& options,
                     Replacement replacement)
    : source_(source),
      options_(options),
      replacement_(replacement),
      image_floats_(static_cast<size_t>(options.pipeline.channels) * static_cast<size_t>(options.pipeline.height) *
                    static_cast<size_t>(options.pipeline.width)),
      busy_(static_cast<size_t>(std::max(options.worker_threads, options.max_worker_threads))),
      sequence_(std::move(sequence)),
      active_(options.worker_threads) {
    const size_t capacity = static_cast<size_t>(options.slot_capacity);
    images_per_claim_ = std::clamp(options.slot_capacity / (4 * worker_count()), 1, kMaxImagesPerClaim);
    HeapPool pool;
    slots_.resize(static_cast<size_t>(options.batches_ahead) + 1);  // one more is in the consumer's hands
    for (BatchSlot& slot : slots_) {
        slot.images = pool.allocate(capacity * image_floats_ * sizeof(float));
        slot.labels.resize(capacity);
        slot.second_labels.resize(capacity);
        slot.samples.resize(capacity);
    }
}

bool BatchRing::head_ready() {
    if (worker_failure_) return true;
    return taken_ < opened_ ? slot_of(taken_).complete() : exhausted_;
}

int64_t BatchRing::ready_batches() {
    int64_t ready = 0;
    while (taken_ + ready < opened_ && slot_of(taken_ + ready).complete()) ++ready;
    return ready;
}

Batch BatchRing::batch_of(BatchSlot& slot, int64_t wait_ns) {
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

std::optional<Batch> BatchRing::next() {
    const int64_t begin_ns = now_ns();
    std::unique_lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (released_ < taken_) {
        released_ = taken_;
        space_.notify_all();
    }
    const bool waited = !head_ready();
    const int64_t ready = ready_batches();
    if (waited) wait_for_head(lock);
    if (worker_failure_) failure_ = worker_failure_;
    if (failure_) std::rethrow_exception(failure_);
    if (taken_ == opened_) return std::nullopt;
    BatchSlot& slot = slot_of(taken_);
    ++taken_;
    if (slot.error) {
        failure_ = slot.error;
        std::rethrow_exception(failure_);
    }
    const int64_t wait_ns = waited ? now_ns() - begin_ns : 0;
    if (waited) learn_from_wait(wait_ns);
    statistics_.starved += waited ? 1 : 0;
    statistics_.wait_ns += wait_ns;
    statistics_.ready_batches += ready;
    statistics_.images += slot.assignment.count;
    ++statistics_.batches;
    return batch_of(slot, wait_ns);
}

// Bounded by lack of progress: while any image gets finished there is hope.
void BatchRing::wait_for_head(std::unique_lock<std::mutex>& lock) {
    AwakeClock awake(std::min(kLongestLookMs, options_.timeout_ms / 4) * kNsPerMs);
    const int64_t begin_ns = awake.read();
    int64_t finished = finished_images_, progress_ns = begin_ns, warn_after_ns = options_.slow_after_ms * kNsPerMs;
    while (!head_ready()) {
        ready_.wait_for(lock, std::chrono::milliseconds(kLookEveryMs));
        if (head_ready()) return;
        const int64_t now = awake.read();
        if (const int64_t finished_now = finished_images_; finished_now != finished) {
            finished = finished_now;
            progress_ns = now;
        }
        if (options_.while_waiting) {
            lock.unlock();
            options_.while_waiting();
            lock.lock();
            if (head_ready()) return;
        }
        if (now - progress_ns >= options_.timeout_ms * kNsPerMs) {
            failure_ = std::make_exception_ptr(DataError(
                fmt::format("no image was finished for {:.1f} s: {}; the storage does not answer, mend it or raise data.timeout",
                            seconds(now - progress_ns), what_is_read(now_ns()))));
            return;
        }
        if (now - begin_ns < warn_after_ns) continue;
        ++statistics_.slow_waits;
        warn_after_ns = INT64_MAX;
        if (++warnings_given_ > kMaxWarnings) continue;
        log::warn_here("a step waits for data since {:.1f} s: {}; slow storage, or too few loader threads (data.workers){}",
                       seconds(now - begin_ns), what_is_read(now_ns()),
                       warnings_given_ == kMaxWarnings ? "; no more of these warnings" : "");
    }
}

// What keeps the workers busy, the longest first.
std::string BatchRing::what_is_read(int64_t now) const {
    std::vector<std::pair<int64_t, int64_t>> busy;  // since, sample
    for (const Busy& worker : busy_) {
        if (const int64_t sample = worker.sample; sample >= 0) busy.emplace_back(worker.since_ns, sample);
    }
    if (busy.empty()) return "no loader thread has an image in hand";
    std::sort(busy.begin(), busy.end());
    return fmt::format("{} of {} loader threads are at an image, the longest at {} since {:.1f} s", busy.size(), active_,
                       source_.name(busy.front().second), seconds(now - busy.front().first));
}

// Waiting while the ring fills for the first time teaches nothing, nor does it before the last new worker had its effect.
void BatchRing::learn_from_wait(int64_t wait_ns) {
    if (active_ == worker_count() || wait_ns < kWorthAWorkerNs) return;
    if (taken_ - grown_at_ <= 2 * std::ssize(slots_)) return;
    ++active_;
    grown_at_ = taken_;
    space_.notify_all();
}

LoaderStatistics BatchRing::statistics() const {
    const std::lock_guard lock(mutex_);
    LoaderStatistics result = statistics_;
    result.workers = active_;
    result.bad_images = std::ssize(bad_);
    for (const auto& [sample, reason] : bad_) result.bad_paths.push_back(reason);
    return result;
}

bool BatchRing::stop(int64_t patience_ms) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    failure_ = nullptr;  // what next() threw ends in the thread that caught it, not in one that is left behind
    space_.notify_all();
    return ready_.wait_for(lock, std::chrono::milliseconds(patience_ms), [this] { return living_ == 0; });
}

void BatchRing::work(int index) {
    {
        const std::lock_guard lock(mutex_);
        ++living_;
    }
    std::exception_ptr failure;
    try {
        Tools tools(options_);
        Busy& busy = busy_[static_cast<size_t>(index)];
        while (const std::optional<Claim> mine = claim(index, tools.soon)) {
            for (const int64_t sample : tools.soon) source_.will_need(sample);
            tools.soon.clear();
            make(*mine, busy, tools);
        }
    } catch (...) {
        failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (failure) worker_failure_ = failure;
    --living_;
    ready_.notify_all();
}

void BatchRing::make(const Claim& claim, Busy& busy, Tools& tools) {
    const int64_t begin_ns = thread_cpu_ns();
    const LoaderStatistics before = tools.sums();
    std::exception_ptr error;
    try {
        for (int place = claim.first; place < claim.last; ++place) {
            busy.since_ns = now_ns();
            busy.sample = claim.slot->samples[static_cast<size_t>(place)];
            load(*claim.slot, place, tools);
            ++finished_images_;
        }
    } catch (...) {
        error = std::current_exception();
    }
    busy.sample = -1;
    LoaderStatistics sum = tools.sums();
    sum.decode_ns = thread_cpu_ns() - begin_ns;
    sum.warnings -= before.warnings;
    sum.read_bytes -= before.read_bytes;
    for (size_t stage = 0; stage < kStageCount; ++stage) sum.stages[stage] -= before.stages[stage];
    finish(claim, error, sum);
}

// Called with the mutex held; true when there is a new slot to work on, whose samples are then in `soon`.
bool BatchRing::open_next_slot(std::vector<int64_t>& soon) {
    if (exhausted_ || !has_space()) return false;
    BatchSlot& slot = slot_of(opened_);
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
    soon.assign(slot.samples.begin(), slot.samples.begin() + slot.assignment.count);
    return true;
}

std::optional<BatchRing::Claim> BatchRing::claim(int index, std::vector<int64_t>& soon) {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        const bool may_claim = index < active_;
        if (may_claim && has_unclaimed()) {
            BatchSlot& slot = slot_of(opened_ - 1);
            const int first = slot.claimed;
            slot.claimed = std::min(first + images_per_claim_, slot.assignment.count);
            return Claim{&slot, first, slot.claimed};
        }
        if (may_claim && open_next_slot(soon)) {
            space_.notify_all();
        } else if (exhausted_) {
            return std::nullopt;
        } else {
            space_.wait(lock);
        }
    }
    return std::nullopt;
}

void BatchRing::finish(const Claim& claim, std::exception_ptr error, const LoaderStatistics& sum) {
    std::unique_lock lock(mutex_);
    BatchSlot& slot = *claim.slot;
    if (error && !slot.error) slot.error = error;
    slot.done += claim.last - claim.first;
    statistics_.decode_ns += sum.decode_ns;
    statistics_.warnings += sum.warnings;
    statistics_.read_bytes += sum.read_bytes;
    statistics_.made += claim.last - claim.first;
    add(statistics_.stages, sum.stages);
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
void BatchRing::mix_images(BatchSlot& slot) {
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
void BatchRing::load(BatchSlot& slot, int place, Tools& tools) {
    const int64_t wanted = slot.samples[static_cast<size_t>(place)];
    if (try_load(slot, place, wanted, tools)) return;
    if (replacement_ == Replacement::empty) {
        const auto image = slot.images.f32().subspan(static_cast<size_t>(place) * image_floats_, image_floats_);
        std::fill(image.begin(), image.end(), 0.0F);
        slot.labels[static_cast<size_t>(place)] = -1;
        return;
    }
    for (int64_t further = 1; further < source_.size(); ++further) {
        const int64_t candidate = (wanted + further) % source_.size();
        if (!try_load(slot, place, candidate, tools)) continue;
        slot.samples[static_cast<size_t>(place)] = candidate;
        return;
    }
    throw DataError(fmt::format("none of the {} images of {} can be decoded", source_.size(), source_.description()));
}

bool BatchRing::try_load(BatchSlot& slot, int place, int64_t sample, Tools& tools) {
    const size_t index = static_cast<size_t>(place);
    try {
        tools.clock.begin();
        source_.read(sample, tools.record);
        tools.clock.lap(Stage::read);
        tools.read_bytes += std::ssize(tools.record.bytes);
        const BatchAssignment& assignment = slot.assignment;
        tools.pipeline.run(tools.record, assignment.epoch, slot.samples[index],
                           slot.images.f32().subspan(index * image_floats_, image_floats_));
        slot.labels[index] = tools.record.label;
        return true;
    } catch (const DataError& error) {
        if (options_.pipeline.on_bad_image == BadImagePolicy::error) throw;
        const std::lock_guard lock(mutex_);
        bad_.emplace(sample, error.what());
        return false;
    }
}

}  // namespace lockstep
