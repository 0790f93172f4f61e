#include "tests/unit/collectives_tcp/ranks.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"

namespace lockstep::testing_support {

TcpOptions quick_options() { return {.timeout_ms = 10'000, .connect_timeout_ms = 20'000, .heartbeat_ms = 1000}; }

World world_of(int rank, int size, const std::string& host) {
    World world{.rank = rank, .size = size, .local_rank = rank, .local_size = size};
    world.store_host = host;
    world.job_id = "tcp-test";
    return world;
}

std::vector<std::string> TcpRanks::run(const std::function<std::string(const World&, Transport&)>& body) const {
    const auto store = make_memory_store();
    std::vector<std::string> texts(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            World world = world_of(rank, size, host);
            TcpOptions own = options;
            if (change) change(world, own);
            std::string& text = texts[static_cast<size_t>(rank)];
            const std::string error = error_of([&] {
                const auto transport = make_tcp_transport(world, *store, "test", own);
                text = body(world, *transport);
            });
            if (error != "no error") text = error;
        });
    }
    for (std::thread& thread : threads) thread.join();
    return texts;
}

void complete(Transport& transport, std::initializer_list<const Transfer*> transfers) {
    while (!std::all_of(transfers.begin(), transfers.end(), [](const Transfer* each) { return each->complete(); })) {
        transport.progress(100'000'000);
    }
}

void complete(Transport& transport, const std::vector<Transfer>& transfers) {
    while (!std::all_of(transfers.begin(), transfers.end(), [](const Transfer& each) { return each.complete(); })) {
        transport.progress(100'000'000);
    }
}

void stay(Transport& transport, int64_t duration_ms) {
    const Deadline end = Deadline::after_ms(duration_ms);
    while (!end.expired()) transport.progress(std::min<int64_t>(end.remaining_ms() + 1, 20) * 1'000'000);
}

std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
    std::vector<std::byte> result(bytes);
    RandomStream random(seed, "pattern");
    // Eight bytes at a time: tests move a hundred megabytes.
    uint64_t state = random.next_u32();
    for (size_t index = 0; index < bytes; index += sizeof state) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        std::memcpy(result.data() + index, &state, std::min(sizeof state, bytes - index));
    }
    return result;
}

Transfer transfer(int peer, uint64_t tag, std::vector<std::byte>& bytes, int32_t urgency) {
    return {.peer = peer, .tag = tag, .data = bytes.data(), .bytes = bytes.size(), .urgency = urgency};
}

void exchange_a_byte(Transport& transport, int peer, uint64_t tag) {
    std::vector<std::byte> out(1, std::byte{1}), in(1);
    Transfer send = transfer(peer, tag, out);
    Transfer receive = transfer(peer, tag, in);
    transport.post_receive(receive);
    transport.post_send(send);
    complete(transport, {&send, &receive});
}

}  // namespace lockstep::testing_support
