// Two ranks as threads over a network in memory: what a rounded wire may touch, and what not.
#include "trainer/gradient_reducer.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/transport_communicator.h"
#include "core/random.h"
#include "tests/support/memory_transport.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;

// Statistics stand between gradients, as in a network, and are much larger.
ParameterArena make_arena() {
    HeapPool pool;
    std::vector<ParameterEntry> entries;
    const auto add = [&](ParameterKind kind, int64_t count) {
        entries.push_back(
            {.spec = {.name = "entry" + std::to_string(entries.size()), .kind = kind, .shape = {count}}, .physical_count = count});
    };
    for (int layer = 0; layer < 3; ++layer) {
        add(ParameterKind::bn_scale, 40);
        add(ParameterKind::bn_shift, 40);
        add(ParameterKind::bn_mean, 40);
        add(ParameterKind::bn_variance, 40);
        add(ParameterKind::weight, 3000);
    }
    return ParameterArena(std::move(entries), pool, pool, 0);
}

void fill(ParameterArena& arena, int rank, int step) {
    for (size_t entry = 0; entry < arena.entries().size(); ++entry) {
        RandomStream random(7, "reducer", static_cast<uint64_t>(100 * rank + step), entry);
        const float size = is_trainable(arena.entries()[entry].spec.kind) ? 0.01F : 1e6F;  // beyond fp16
        for (float& value : arena.gradient(entry)) value = size * random.normal();
    }
}

struct RankResult {
    std::vector<std::vector<float>> entries;  // after the last step
    float wire_rounding = 0.0F;
};

std::vector<RankResult> reduce(DataType wire) {
    testing_support::MemoryNetwork network(kRanks, {});
    std::vector<RankResult> results(kRanks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
            const World world{.rank = rank, .size = kRanks, .local_rank = rank, .local_size = kRanks};
            CommunicatorOptions options{.wire = wire};
            options.plan.probing = Probing::never;
            TransportCommunicator communicator(
                world, options,
                {.name = "memory", .make_transport = [&] { return network.transport(rank); }, .make_node_memory = {}});
            ParameterArena arena = make_arena();
            GradientReducer reducer(communicator, arena, plan_buckets(arena, {.bucket_bytes = 8 << 10}), true);
            EXPECT_GT(reducer.plan().size(), 3U);
            for (int step = 0; step < 3; ++step) {
                fill(arena, rank, step);
                reducer.begin(step);
                for (size_t end = 1; end < arena.entries().size(); ++end) reducer.ready_up_to(end);
                reducer.finish();
            }
            RankResult& result = results[static_cast<size_t>(rank)];
            for (size_t entry = 0; entry < arena.entries().size(); ++entry) {
                const auto sum = arena.gradient(entry);
                result.entries.emplace_back(sum.begin(), sum.end());
            }
            result.wire_rounding = communicator.take_usage().wire_rounding;
        });
    }
    threads.clear();
    return results;
}

TEST(GradientReducer, ARoundedWireTouchesGradientsOnly) {
    const std::vector<RankResult> exact = reduce(DataType::f32);
    const ParameterArena arena = make_arena();
    for (const DataType wire : {DataType::bf16, DataType::f16}) {
        const std::vector<RankResult> rounded = reduce(wire);
        EXPECT_EQ(rounded[0].entries, rounded[1].entries);
        for (size_t entry = 0; entry < arena.entries().size(); ++entry) {
            const bool is_gradient = is_trainable(arena.entries()[entry].spec.kind);
            EXPECT_EQ(rounded[0].entries[entry] != exact[0].entries[entry], is_gradient)
                << arena.entries()[entry].spec.name << " with " << to_string(wire);
        }
        EXPECT_GT(rounded[0].wire_rounding, 0.0F);
        EXPECT_LT(rounded[0].wire_rounding, 1.0F / 256);
    }
}

}  // namespace
}  // namespace lockstep
