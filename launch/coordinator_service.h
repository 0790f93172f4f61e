// The coordinator at work: a thread that reads the agents' events from the store, watches their signs of life and writes decisions.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "core/clock.h"
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
    void hear_next_event();
    void look_for_beats();
    void write_decisions();
    void warn_of_clock(const AgentFacts& facts);

    AwakeClock awake_;
    Coordinator coordinator_;
    const bool own_program_;
    const int64_t keep_alive_ns_;
    StoreServer& server_;
    std::unique_ptr<Store> store_;
    int64_t next_event_ = 0;
    int64_t next_look_ns_ = 0;
    std::map<int64_t, std::string> beats_;  // as last seen, by agent
    std::string open_job_;
    std::atomic<bool> stopping_ = false;
    std::thread thread_;
};

}  // namespace lockstep
