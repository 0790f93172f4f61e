// What every thread of this process is doing, on request: USR2 writes all stacks to a file of the run folder and training goes on.
// When a rank stands still, or ranks disagree, each asks those of its node, so that the one that is stuck says where.
#pragma once

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// Catches USR2 while it lives; afterwards the process ignores it. One at a time per process.
class StackDump {
public:
    // `file` is made when the first request comes, and appended to.
    explicit StackDump(std::filesystem::path file);
    StackDump(const StackDump&) = delete;
    StackDump& operator=(const StackDump&) = delete;
    ~StackDump();  // after what was asked for has been written

private:
    void serve();
    std::string all_stacks() const;

    const std::filesystem::path file_;
    int requests_[2] = {-1, -1};  // a pipe: the handler writes, the thread reads
    std::thread thread_;
};

// The processes of this node's ranks, this one included.
class NodeProcesses {
public:
    // Collective.
    explicit NodeProcesses(Communicator& communicator);
    // USR2 to each that is still this program. Never throws.
    void ask_for_stacks() const noexcept;

private:
    std::vector<int> pids_;
};

}  // namespace lockstep
