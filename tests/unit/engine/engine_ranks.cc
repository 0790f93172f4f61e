#include "tests/unit/engine/engine_ranks.h"

#include <memory>
#include <thread>

#include "core/error.h"
#include "core/random.h"

namespace lockstep::testing_support {

using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;

std::vector<std::vector<int>> everybody(int rank_count) {
    std::vector<int> ranks(static_cast<size_t>(rank_count));
    for (int rank = 0; rank < rank_count; ++rank) ranks[static_cast<size_t>(rank)] = rank;
    return {ranks};
}

std::vector<std::string> run_ranks(int rank_count, const MemoryNetworkOptions& network_options, const EngineOptions& options,
                                   const EngineBody& body, MemoryNetwork* network) {
    std::unique_ptr<MemoryNetwork> own;
    if (network == nullptr) {
        own = std::make_unique<MemoryNetwork>(rank_count, network_options);
        network = own.get();
    }
    std::vector<std::string> results(static_cast<size_t>(rank_count));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < rank_count; ++rank) {
        threads.emplace_back([&, rank] {
            const auto transport = network->transport(rank);
            ScheduleEngine engine(*transport, rank, everybody(rank_count), options);
            try {
                results[static_cast<size_t>(rank)] = body(engine, *transport, rank);
            } catch (const Error& error) {
                transport->abort(error.what());
                results[static_cast<size_t>(rank)] = error.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
}

void drive(ScheduleEngine& engine, Transport& transport, const std::function<bool()>& until) {
    while (!until()) {
        if (!engine.advance())
            transport.progress(1'000'000);
        else
            transport.progress(0);
    }
}

ScheduleRequest request_for(const Plan& plan, const ElementFormat& format, void* data, int64_t count, uint64_t sequence) {
    Operation operation{.kind = OperationKind::allreduce, .label = {.what = "bucket", .step = 3, .bucket = 1}};
    operation.byte_count = static_cast<size_t>(count) * format.value_bytes();
    operation.sequence = sequence;
    operation.root = plan.root;
    if (plan.collective == Collective::reduce_scatter) operation.kind = OperationKind::reduce_scatter;
    if (plan.collective == Collective::allgather) operation.kind = OperationKind::allgather;
    if (plan.collective == Collective::broadcast) operation.kind = OperationKind::broadcast;
    return {.number = sequence,
            .operation = OperationSignature::of(operation, -1),
            .plan = plan,
            .format = format,
            .data = static_cast<std::byte*>(data),
            .element_count = count};
}

void run_one(ScheduleEngine& engine, Transport& transport, const ScheduleRequest& request) {
    const int handle = engine.start(request);
    drive(engine, transport, [&] { return engine.finished(handle); });
    engine.release(handle);
}

float whole_number(int rank, size_t index) {
    return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) % 101) - 50.0F;
}

std::vector<float> whole_numbers(int rank, size_t count) {
    std::vector<float> values(count);
    for (size_t index = 0; index < count; ++index) values[index] = whole_number(rank, index);
    return values;
}

std::vector<float> sum_of_whole_numbers(int rank_count, size_t count) {
    std::vector<float> sums(count, 0.0F);
    for (int rank = 0; rank < rank_count; ++rank) {
        for (size_t index = 0; index < count; ++index) sums[index] += whole_number(rank, index);
    }
    return sums;
}

std::vector<float> random_floats(int rank, size_t count, uint64_t purpose) {
    RandomStream stream(3, "engine-test", purpose, static_cast<uint64_t>(rank));
    std::vector<float> values(count);
    for (float& value : values) value = stream.normal();
    return values;
}

std::vector<Plan> allreduce_plans() {
    std::vector<Plan> plans;
    for (const int radix : {2, 3, 4, 16}) plans.push_back({.algorithm = Algorithm::exchange, .radix = radix});
    for (const int radix : {2, 4, 16}) plans.push_back({.algorithm = Algorithm::halving_doubling, .radix = radix});
    for (const int chunks : {1, 3}) {
        plans.push_back({.algorithm = Algorithm::ring, .chunks = chunks});
        plans.push_back({.algorithm = Algorithm::tree, .chunks = chunks});
        plans.push_back({.algorithm = Algorithm::double_tree, .chunks = chunks});
    }
    return plans;
}

}  // namespace lockstep::testing_support
