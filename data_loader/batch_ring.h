// The ring of batch slots behind a DataLoader, and the threads that fill it. Internal to data_loader.
//
// Batch number b lives in slot b % slots. Three counters move through the batches: opened (given to workers), taken (given to the
// consumer), and released (the consumer is done with it); a slot is free again when its batch is released. Workers take a few
// images of the slot that was opened last, and open the next one when none is left, so that the first batch is made by all of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data_loader/batch_sequence.h"
#include "data_loader/loader.h"

namespace lockstep {

// What becomes of a bad image under BadImagePolicy::skip. A training step keeps its size, so another image takes the place; an
// evaluation counts every image at most once, so the place stays empty (label -1).
enum class Replacement : uint8_t { next_good, empty };

struct BatchSlot {
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

// Owned jointly by the consumer and the workers: a worker that storage never answers outlives its consumer.
class BatchRing {
public:
    BatchRing(const Source& source, std::unique_ptr<BatchSequence> sequence, const LoaderOptions& options, Replacement replacement);

    // The life of worker number `index`, on a thread of its own.
    void work(int index);
    // From now on no worker begins an image. False when one is still inside after `patience_ms`.
    bool stop(int64_t patience_ms);

    std::optional<Batch> next();
    LoaderStatistics statistics() const;
    int worker_count() const { return static_cast<int>(busy_.size()); }

private:
    // Images [first, last) of a slot, handed to one worker.
    struct Claim {
        BatchSlot* slot;
        int first, last;
    };
    // What a worker is at: read by the consumer when a batch is late.
    struct Busy {
        std::atomic<int64_t> sample{-1}, since_ns{0};
    };
    struct Tools;  // a worker's own

    BatchSlot& slot_of(int64_t batch) { return slots_[static_cast<size_t>(batch) % slots_.size()]; }
    bool has_space() const { return opened_ - released_ < std::ssize(slots_); }
    // Workers drain one slot before they open the next.
    bool has_unclaimed() { return opened_ > 0 && slot_of(opened_ - 1).claimed < slot_of(opened_ - 1).assignment.count; }
    bool head_ready();
    int64_t ready_batches();
    Batch batch_of(BatchSlot& slot, int64_t wait_ns);

    void wait_for_head(std::unique_lock<std::mutex>& lock);
    std::string what_is_read(int64_t now) const;
    void learn_from_wait(int64_t wait_ns);

    bool open_next_slot(std::vector<int64_t>& soon);
    std::optional<Claim> claim(int index, std::vector<int64_t>& soon);
    void make(const Claim& claim, Busy& busy, Tools& tools);
    void finish(const Claim& claim, std::exception_ptr error, const LoaderStatistics& sum);
    void mix_images(BatchSlot& slot);
    void load(BatchSlot& slot, int place, Tools& tools);
    bool try_load(BatchSlot& slot, int place, int64_t sample, Tools& tools);

    const Source& source_;
    const LoaderOptions options_;
    const Replacement replacement_;
    const size_t image_floats_;
    int images_per_claim_ = 1;
    std::vector<BatchSlot> slots_;
    std::vector<Busy> busy_;                   // of each worker
    std::atomic<int64_t> finished_images_{0};  // good or bad: a sign of life

    mutable std::mutex mutex_;
    std::condition_variable space_;            // workers: a slot may be free
    std::condition_variable ready_;            // consumer: the head may be complete, or a worker has ended
    std::unique_ptr<BatchSequence> sequence_;  // all below are guarded by mutex_
    int64_t opened_ = 0, taken_ = 0, released_ = 0;
    bool exhausted_ = false, stopping_ = false;
    int active_ = 1;                      // workers that may claim
    int64_t grown_at_ = 0;                // batches taken when the last one was added
    int living_ = 0;                      // workers inside work()
    int warnings_given_ = 0;              // of late batches
    std::exception_ptr failure_;          // what next() threw; the loader is dead
    std::exception_ptr worker_failure_;   // a worker ended outside any batch
    std::map<int64_t, std::string> bad_;  // sample -> reason: each bad image once, however often it was met
    LoaderStatistics statistics_;         // without bad images
};

}  // namespace lockstep
