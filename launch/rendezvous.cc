#include "launch/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/host.h"
#include "net/secrets.h"

namespace lockstep {

namespace {

constexpr int64_t kAttemptMs = 250;  // on one port, before the next is tried
constexpr int64_t kProbeMs = 200;
constexpr int64_t kClockSlackMs = 50;
constexpr int64_t kRefusalMs = 200;  // between two looks for a refusal
constexpr int64_t kLastQuestionsMs = 500;
constexpr int kMaxPort = 65'535;

constexpr const char* kRefused = "rendezvous/refused";

std::string this_process() { return fmt::format("{} pid {}", host_name(), getpid()); }

std::string rank_key(int rank) { return fmt::format("rendezvous/rank/{}", rank); }

bool serves_this_job(const World& world, int port) {
    try {
        connect_store({.host = "127.0.0.1",
                       .port = port,
                       .job_id = world.job_id,
                       .secret = job_secret_from_environment(),
                       .connect_timeout_ms = kProbeMs});
        return true;
    } catch (const CommError&) {
        return false;
    }
}

// A taken port belongs to another program or job (try the next), or to a second rank 0 of this job.
std::unique_ptr<StoreServer> start_server(const World& world) {
    const std::string bind_host = world.node_count == 1 ? "127.0.0.1" : "";
    for (int port = world.store_port;; ++port) {
        try {
            return StoreServer::start(
                {.bind_host = bind_host, .port = port, .job_id = world.job_id, .secret = job_secret_from_environment()});
        } catch (const CommError&) {
            if (serves_this_job(world, port)) {
                throw ConfigError(
                    fmt::format("rank 0 is doubled: this process ({}) and the one that serves {}:{} both say rank 0 of job {}; "
                                "give each process its own rank",
                                this_process(), world.store_host, port, world.job_id));
            }
            if (port + 1 >= world.store_port + kPortCandidates || port >= kMaxPort) throw;
        }
    }
}

// Where rank 0 serves, by the way it has bound: on one node MASTER_ADDR may name an interface that it does not listen on.
std::string host_to_meet_at(const World& world) { return world.node_count == 1 ? "127.0.0.1" : world.store_host; }

// Goes round the candidate ports until one serves this job: rank 0 may start later, or have had to take a later port.
std::unique_ptr<Store> connect_round_robin(const World& world, const Deadline& deadline, int64_t timeout_ms) {
    std::string last_reason;
    for (int offset = 0; !deadline.expired(); offset = (offset + 1) % kPortCandidates) {
        const int port = std::min(world.store_port + offset, kMaxPort);
        try {
            return connect_store({.host = host_to_meet_at(world),
                                  .port = port,
                                  .job_id = world.job_id,
                                  .secret = job_secret_from_environment(),
                                  .connect_timeout_ms = std::min(kAttemptMs, deadline.remaining_ms() + 1)});
        } catch (const CommError& error) {
            if (offset == 0) last_reason = error.what();
        }
    }
    throw CommError(
        fmt::format("rank {} of {} has not met rank 0 at {}, ports {} to {}, within {:.1f} s ({}); check that rank 0 runs and that "
                    "the address is right",
                    world.rank, world.size, host_to_meet_at(world), world.store_port, world.store_port + kPortCandidates - 1,
                    1e-3 * static_cast<double>(timeout_ms), last_reason));
}

std::unique_ptr<Store> connect(const World& world, const StoreServer* server, const Deadline& deadline, int64_t timeout_ms) {
    if (server == nullptr && world.launcher != "lockstep") return connect_round_robin(world, deadline, timeout_ms);
    return connect_store({.host = server != nullptr ? "127.0.0.1" : world.store_host,
                          .port = server != nullptr ? server->port() : world.store_port,
                          .job_id = world.job_id,
                          .secret = job_secret_from_environment(),
                          .connect_timeout_ms = timeout_ms});
}

// The job cannot begin: also those who wait already learn why, instead of waiting out their time.
[[noreturn]] void refuse(Store& store, const std::string& why) {
    store.set(kRefused, why);
    throw ConfigError(why);
}

void check_in(const World& world, Store& store) {
    const std::string size = fmt::format("{}", world.size);
    const std::string agreed = store.compare_set("rendezvous/size", std::nullopt, size);
    if (agreed != size) {
        refuse(store,
               fmt::format("rank {} ({}) says the world has {} ranks, an earlier rank said {}; start all with one world size",
                           world.rank, this_process(), size, agreed));
    }
    const std::string mine = this_process();
    const std::string present = store.compare_set(rank_key(world.rank), std::nullopt, mine);
    if (present != mine) {
        refuse(store,
               fmt::format("rank {} is doubled: {} and {} both say so; give each process its own rank", world.rank, present, mine));
    }
}

// Waits for `key` and looks from time to time whether the job was refused.
void wait_for(Store& store, const std::string& key, const Deadline& deadline) {
    while (true) {
        const int64_t patience_ms = std::min(kRefusalMs, deadline.remaining_ms());
        try {
            store.wait(key, patience_ms);
            return;
        } catch (const CommError&) {
            if (const auto why = store.get(kRefused)) throw ConfigError(*why);
            if (deadline.expired() || patience_ms < kRefusalMs) throw;
        }
    }
}

[[noreturn]] void throw_missing(const World& world, Store& store, int64_t timeout_ms) {
    std::vector<int> missing;
    for (int rank = 0; rank < world.size; ++rank) {
        if (!store.get(rank_key(rank))) missing.push_back(rank);
    }
    throw CommError(fmt::format("rank {} of {} waited {:.1f} s; not there: rank {}; check that all were started and their output",
                                world.rank, world.size, 1e-3 * static_cast<double>(timeout_ms), fmt::join(missing, ", ")));
}

// Rank 0 sees every rank's key, then says so: one wait per rank in all.
void wait_for_all(const World& world, Store& store, const Deadline& deadline, int64_t timeout_ms) {
    try {
        if (world.rank == 0) {
            for (int rank = 0; rank < world.size; ++rank) wait_for(store, rank_key(rank), deadline);
            store.set("rendezvous/complete", "1");
        } else {
            wait_for(store, "rendezvous/complete", deadline);
        }
    } catch (const CommError&) {
        if (deadline.remaining_ms() > kClockSlackMs) throw;  // the store, which counts whole milliseconds, may be a little early
        throw_missing(world, store, timeout_ms);
    }
}

}  // namespace

void announce_work(Store& store) { store.set(kAtWorkKey, ""); }

Rendezvous::~Rendezvous() {
    store.reset();
    if (server != nullptr) server->wait_until_left(kLastQuestionsMs);
}

Rendezvous meet(const World& world, int64_t timeout_ms) {
    Rendezvous rendezvous;
    if (world.size == 1) {
        rendezvous.store = make_memory_store();
        return rendezvous;
    }
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    if (world.rank == 0 && world.launcher != "lockstep") rendezvous.server = start_server(world);
    rendezvous.store = connect(world, rendezvous.server.get(), deadline, timeout_ms);
    check_in(world, *rendezvous.store);
    wait_for_all(world, *rendezvous.store, deadline, timeout_ms);  // when ranks are missing, the others ask for them until the end
    return rendezvous;
}

}  // namespace lockstep
