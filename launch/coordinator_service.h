// The coordinator at work: a thread that reads the agents' events from the store, watches their signs of life and writes decisions.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "launch/coordinator.h"
#include "net/store.h"

namespace lockstep {

class CoordinatorService {
public:
    // `server` must outlive it. Opens a table for each round's ranks and drops that of the round before.
    CoordinatorService(const CoordinatorOptions& options, double keep_alive_s, StoreServer& server, std::unique_ptr<Store> store);
    CoordinatorService(const CoordinatorService&) = delete;
    CoordinatorService& operator=(const CoordinatorService&) = delete;
    ~CoordinatorService();

private:
    void work();
    // Monotonic, but for the time in which this process was stopped: then no agent could be heard.
    int64_t awake_ns();
    void hear_next_event();
    void look_for_beats();
    void write_decisions();
    void warn_of_clock(const AgentFacts& facts);

    Coordinator coordinator_;
    const bool own_program_;
    const int64_t keep_alive_ns_;
    StoreServer& server_;
    std::unique_ptr<Store> store_;
    int64_t next_event_ = 0;
    int64_t next_look_ns_ = 0;
    const int64_t nap_ns_;
    int64_t looked_ns_, asleep_ns_ = 0;
    std::map<int64_t, std::string> beats_;  // as last seen, by agent
    std::string open_job_;
    std::atomic<bool> stopping_ = false;
    std::thread thread_;
};

}  // namespace lockstep
