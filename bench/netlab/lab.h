// The laboratory at work: processes inside nodes, packets carried between the nodes, signals obeyed, exit codes collected. One
// thread and one loop do it all.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/netlab/emulated_switch.h"
#include "bench/netlab/lab_network.h"

namespace lockstep::netlab {

struct LabOptions {
    int node_count = 2;
    LinkOptions link;
    double cut_after_s = 0;  // 0: never
    int cut_node = -1;       // whose link is cut, then or on SIGUSR1 (SIGUSR2 mends it); -1: the last node's
    double limit_s = 600;    // all processes are killed then
};

class Lab {
public:
    // Blocks the signals that run() obeys. Throws DeviceError where namespaces or TUN devices are not permitted.
    explicit Lab(const LabOptions& options);
    ~Lab();  // kills what still runs

    const std::vector<LabNode>& nodes() const { return nodes_; }
    // Where another process of this machine finds the nodes' namespaces while this one lives:
    // "ADDRESS NETWORK_PATH UTS_PATH" per node, separated by ';'.
    std::string directory() const;

    // Runs `body` in a new process inside the node (-1: outside all nodes); its result is the exit code. The process and its group
    // are killed when this one ends.
    void start(const std::string& name, int node, const std::function<int()>& body);

    // Until all processes have ended. Says on stderr which failed. Returns the code of the first that failed (128 + signal), else
    // 0; 128 + signal when this process was told to end; 124 when the time was over.
    int run();

private:
    struct Child {
        std::string name;
        pid_t pid = -1;
        bool running = true;
    };
    void carry_packets();
    void read_node(int node);
    void obey_signals();
    void collect_children();
    void check_times();
    bool anything_runs() const;
    void signal_all(int number);
    void end_all(int verdict);  // politely first

    const LabOptions options_;
    EmulatedSwitch switch_;
    std::vector<LabNode> nodes_;
    FileHandle signals_;
    std::vector<Child> children_;
    std::vector<std::byte> packet_;
    int64_t started_ns_ = 0;
    int64_t kill_at_ns_ = 0;  // when those are killed that were asked to end; 0: nobody was
    bool cut_done_ = false;
    int verdict_ = 0;
};

// What a job's launcher tells each rank, in torchrun's words. Rank r is on node r / ranks_per_node.
std::vector<std::pair<std::string, std::string>> rank_environment(const std::vector<LabNode>& nodes, int ranks_per_node, int rank);

// Measures the link between the first two nodes with its own TCP ping-pong and stream, and prints what it finds beside what was
// asked for. Exit code; 140 when the link does not answer.
int self_test(Lab& lab, const LinkOptions& link);

}  // namespace lockstep::netlab
