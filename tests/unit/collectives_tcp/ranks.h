// Threads that act as the ranks of a job over TCP, and the few verbs that tests of a transport need.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "collectives/tcp/tcp_transport.h"
#include "collectives/transport.h"
#include "core/world.h"
#include "net/store.h"
#include "tests/support/error_of.h"

namespace lockstep::testing_support {

TcpOptions quick_options();  // short time limits, for tests on one machine

struct TcpRanks {
    int size = 2;
    std::string host = "127.0.0.1";  // "::1" for IPv6
    TcpOptions options = quick_options();
    std::function<void(World&, TcpOptions&)> change = nullptr;  // per rank

    // One text per rank: what the body returned, or the message of the Error that it, or making the transport, threw.
    std::vector<std::string> run(const std::function<std::string(const World&, Transport&)>& body) const;
};

World world_of(int rank, int size, const std::string& host = "127.0.0.1");

// Calls progress() until all are complete.
void complete(Transport& transport, std::initializer_list<const Transfer*> transfers);
void complete(Transport& transport, const std::vector<Transfer>& transfers);
// Calls progress() for that long.
void stay(Transport& transport, int64_t duration_ms);

std::vector<std::byte> pattern(size_t bytes, uint64_t seed);
Transfer transfer(int peer, uint64_t tag, std::vector<std::byte>& bytes, int32_t urgency = 0);
void exchange_a_byte(Transport& transport, int peer, uint64_t tag);  // both ways, complete when it returns

}  // namespace lockstep::testing_support
