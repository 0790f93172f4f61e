#include "bench/update_bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/machine_json.h"
#include "collectives/node_sharing.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/parallel.h"
#include "core/parameter_arena.h"
#include "optim/optimizer.h"

namespace lockstep::bench {

namespace {

double ms_since(int64_t start_ns) { return 1e-6 * static_cast<double>(now_ns() - start_ns); }

ParameterArena make_arena(const UpdateBenchOptions& options, MemoryPool& values, MemoryPool& gradients) {
    // Tensors of 1 MiB: the borders of entries cost nothing worth measuring.
    std::vector<ParameterEntry> entries;
    for (int64_t left = options.parameters; left > 0; left -= int64_t{1} << 18) {
        const int64_t count = std::min(left, int64_t{1} << 18);
        ParameterEntry& entry = entries.emplace_back();
        entry.spec.name = std::to_string(entries.size());
        entry.spec.shape.push_back(count);
        entry.physical_count = count;
    }
    return {std::move(entries), values, gradients, 1};
}

// One way, with memory of its own.
class Way {
public:
    Way(std::string name, Communicator& communicator, const UpdateBenchOptions& options, ParameterArena arena)
        : name_(std::move(name)),
          communicator_(communicator),
          node_(*communicator.node_sharing()),
          threads_(options.threads),
          arena_(std::move(arena)),
          optimizer_(make_sgd({}, options.threads)) {
        const int64_t bucket_count = options.bucket_bytes / static_cast<int64_t>(sizeof(float));
        for (int64_t offset = 0; offset < arena_.total_count(); offset += bucket_count) {
            buckets_.push_back({.offset = offset, .count = std::min(bucket_count, arena_.total_count() - offset)});
        }
    }
    virtual ~Way() = default;

    void run_round(int round) {
        fill_gradients(round);
        communicator_.barrier({.what = "round"});
        const int64_t start_ns = now_ns();
        for (const ArenaRange& bucket : buckets_) works_.push_back(sum(gradients_of(bucket)));
        for (const Work& work : works_) work.wait();
        works_.clear();
        const double sum_ms = ms_since(start_ns);
        optimizer_->inspect(arena_, 32.0);
        update();
        const double update_ms = ms_since(start_ns);
        read_values();
        note(sum_ms, update_ms, ms_since(start_ns), round == 0);
    }

    UpdateWay result() const {
        return {.name = name_,
                .sum_ms = spread_of(sum_ms_),
                .update_ms = spread_of(update_ms_),
                .read_ms = spread_of(read_ms_),
                .total_ms = spread_of(total_ms_)};
    }

protected:
    virtual Work sum(std::span<float> bucket) = 0;
    virtual void update() = 0;

    void step() { optimizer_->step(arena_, {.rate = 0.01, .images = 32.0}); }
    std::vector<ArenaRange> own_slices() const {
        std::vector<ArenaRange> slices;
        for (const ArenaRange& bucket : buckets_) {
            const auto [first, last] = node_.node_slice(bucket.count);
            slices.push_back({.offset = bucket.offset + first, .count = last - first});
        }
        return slices;
    }
    std::span<float> gradients_of(const ArenaRange& bucket) const {
        return arena_.gradients().subspan(static_cast<size_t>(bucket.offset), static_cast<size_t>(bucket.count));
    }

    const std::string name_;
    Communicator& communicator_;
    NodeSharing& node_;
    const int threads_;
    HeapPool heap_;
    ParameterArena arena_;
    std::vector<ArenaRange> buckets_;

private:
    void fill_gradients(int round) {
        const std::span<float> gradients = arena_.gradients();
        for (size_t index = 0; index < gradients.size(); ++index) {
            gradients[index] = 1e-3F * static_cast<float>((index + static_cast<size_t>(round)) % 1021);
        }
    }
    void read_values() {
        constexpr int64_t kChunk = 1 << 14;
        const std::span<const float> values = arena_.values();
        const auto count = static_cast<int64_t>(values.size());
        parallel_for(threads_, (count + kChunk - 1) / kChunk, [&](int64_t chunk) {
            float sum = 0.0F;
            const int64_t last = std::min(count, (chunk + 1) * kChunk);
#pragma omp simd reduction(+ : sum)
            for (int64_t index = chunk * kChunk; index < last; ++index) sum += values[static_cast<size_t>(index)];
            if (sum == 0.123F) seen_ = sum;  // the compiler cannot leave the sum out
        });
    }
    // The slowest rank's time of each part; the first round warms up.
    void note(double sum_ms, double update_ms, double total_ms, bool warms_up) {
        const double mine[] = {sum_ms, update_ms - sum_ms, total_ms - update_ms, total_ms};
        std::vector<double> all(4 * static_cast<size_t>(communicator_.world().size));
        communicator_.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), {.what = "times"});
        if (warms_up) return;
        std::vector<double>* const kept[] = {&sum_ms_, &update_ms_, &read_ms_, &total_ms_};
        for (size_t part = 0; part < 4; ++part) {
            double slowest = 0.0;
            for (size_t at = part; at < all.size(); at += 4) slowest = std::max(slowest, all[at]);
            kept[part]->push_back(slowest);
        }
    }

    std::unique_ptr<Optimizer> optimizer_;
    std::vector<Work> works_;
    std::vector<double> sum_ms_, update_ms_, read_ms_, total_ms_;
    float seen_ = 0.0F;
};

class Whole final : public Way {
public:
    Whole(Communicator& communicator, const UpdateBenchOptions& options, MemoryPool& heap)
        : Way("whole", communicator, options, make_arena(options, heap, communicator.gradient_pool())) {}

private:
    Work sum(std::span<float> bucket) override { return communicator_.allreduce(bucket, {.what = "bucket"}); }
    void update() override { step(); }
};

// Gradients and parameters lie in the segment, so that the owner of a slice can store into its peers' copies.
class Copies final : public Way {
public:
    Copies(Communicator& communicator, const UpdateBenchOptions& options)
        : Way("copies", communicator, options, make_arena(options, communicator.gradient_pool(), communicator.gradient_pool())) {
        Buffer own = communicator.gradient_pool().allocate(arena_.values().size_bytes());
        arena_.share_out(std::move(own), own_slices(), heap_);
    }

private:
    Work sum(std::span<float> bucket) override { return node_.reduce_to_slices(bucket, {.what = "bucket"}); }
    void update() override {
        node_.node_barrier({.what = "inspection"});
        step();
        for (const ArenaRange& bucket : buckets_) {
            node_.exchange_slices(arena_.values().subspan(static_cast<size_t>(bucket.offset), static_cast<size_t>(bucket.count)),
                                  {.what = "values"});
        }
    }
};

class OneCopy final : public Way {
public:
    OneCopy(Communicator& communicator, const UpdateBenchOptions& options, MemoryPool& heap)
        : Way("one copy", communicator, options, make_arena(options, heap, communicator.gradient_pool())) {
        Buffer common = node_.common_pool().allocate(arena_.values().size_bytes());
        arena_.share_out(std::move(common), own_slices(), heap_);
    }

private:
    Work sum(std::span<float> bucket) override { return node_.reduce_to_slices(bucket, {.what = "bucket"}); }
    void update() override {
        node_.node_barrier({.what = "inspection"});
        step();
        node_.node_barrier({.what = "update"});
    }
};

// Of one buffer in the layout; entries begin on 16 floats.
size_t buffer_bytes(const UpdateBenchOptions& options) { return (static_cast<size_t>(options.parameters) + 1024) * sizeof(float); }

}  // namespace

// Three buffers of gradients; of the copies also values, twice, and the state before it is cut.
size_t update_bench_segment_bytes(const UpdateBenchOptions& options) { return 6 * buffer_bytes(options); }

size_t update_bench_common_bytes(const UpdateBenchOptions& options) { return buffer_bytes(options); }

UpdateBenchResult run_update_bench(Communicator& communicator, const UpdateBenchOptions& options) {
    if (communicator.node_sharing() == nullptr) {
        throw ConfigError(
            fmt::format("bench update: {} has no memory that ranks share; use comm.backend=native", communicator.name()));
    }
    HeapPool heap;
    std::vector<std::unique_ptr<Way>> ways;
    ways.push_back(std::make_unique<Whole>(communicator, options, heap));
    ways.push_back(std::make_unique<Copies>(communicator, options));
    ways.push_back(std::make_unique<OneCopy>(communicator, options, heap));
    for (int round = 0; round <= options.rounds; ++round) {
        for (const auto& way : ways) way->run_round(round);
    }
    UpdateBenchResult result{.options = options, .rank_count = communicator.world().size};
    for (const auto& way : ways) result.ways.push_back(way->result());
    return result;
}

std::string to_json(const UpdateBenchResult& result) {
    const auto of = [](const Spread& spread) {
        return nlohmann::ordered_json{{"median", spread.median}, {"p10", spread.p10}, {"p90", spread.p90}};
    };
    nlohmann::ordered_json ways = nlohmann::ordered_json::array();
    for (const UpdateWay& way : result.ways) {
        ways.push_back({{"name", way.name},
                        {"sum_ms", of(way.sum_ms)},
                        {"update_ms", of(way.update_ms)},
                        {"read_ms", of(way.read_ms)},
                        {"total_ms", of(way.total_ms)}});
    }
    const nlohmann::ordered_json json{{"benchmark", "update"},
                                      {"ranks", result.rank_count},
                                      {"parameters", result.options.parameters},
                                      {"bucket_bytes", result.options.bucket_bytes},
                                      {"threads", result.options.threads},
                                      {"rounds", result.options.rounds},
                                      {"ways", ways},
                                      {"machine", json_of(machine_facts())}};
    return json.dump();
}

std::string to_text(const UpdateBenchResult& result) {
    std::string text = fmt::format("{} parameters, {} ranks with {} threads, {} rounds; ms, median (10 % to 90 %)\n",
                                   result.options.parameters, result.rank_count, result.options.threads, result.options.rounds);
    const auto cell = [](const Spread& spread) {
        return fmt::format("{:.1f} ({:.1f}-{:.1f})", spread.median, spread.p10, spread.p90);
    };
    text += fmt::format("{:10} {:>20} {:>20} {:>20} {:>20}\n", "", "sum of the buckets", "update", "read", "total");
    for (const UpdateWay& way : result.ways) {
        text += fmt::format("{:10} {:>20} {:>20} {:>20} {:>20}\n", way.name, cell(way.sum_ms), cell(way.update_ms),
                            cell(way.read_ms), cell(way.total_ms));
    }
    return text;
}

}  // namespace lockstep::bench
