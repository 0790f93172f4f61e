// The processes of one contestant, seen from the driver: started, given turns, ended.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/allreduce_contestants.h"
#include "bench/turn.h"
#include "launch/child_process.h"
#include "net/socket.h"

namespace lockstep::bench {

// The driver's ear: a unix socket in the file system, which processes in other network namespaces reach as well.
class ControlListener {
public:
    explicit ControlListener(const std::string& path);
    FileHandle accept_one() const;  // closed handle: nobody is there
    int descriptor() const { return handle_.get(); }

private:
    FileHandle handle_;
};

struct TurnOutcome {
    std::vector<double> us;  // by call, the longest of all ranks'
    double cpu_s = 0;        // all ranks together, per call
    double link_bytes = 0;
};

class ContestantGroup {
public:
    // Starts the processes and returns when all ranks of contestant `number` have said hello. CommError with what they printed when
    // they do not; nothing is left of them then.
    ContestantGroup(const std::vector<Command>& commands, int number, int rank_count, const ControlListener& listener,
                    double timeout_s);
    ContestantGroup(const ContestantGroup&) = delete;
    ContestantGroup& operator=(const ContestantGroup&) = delete;
    ~ContestantGroup() { end(); }

    const std::string& version() const { return version_; }

    // CommError when a rank dies, is silent for the time limit, or had a wrong sum. Then the group is of no more use.
    TurnOutcome take_turn(const Turn& turn);

private:
    struct Rank {
        FileHandle socket;
        std::string received;
        std::string take_line();  // empty: no whole line yet
    };
    void accept_ranks(const ControlListener& listener, int number);
    void end() noexcept;  // hangs up, waits a moment, kills
    std::string read_line(Rank& rank, const Deadline& deadline, const std::string& what);
    void listen_for(int descriptor, int64_t wait_ms);  // for a message there, and to what the processes print
    void check_alive();
    [[noreturn]] void fail(const std::string& what);

    const double timeout_s_;
    std::vector<ChildProcess> children_;
    std::vector<Rank> ranks_;
    std::string printed_;  // the last few thousand letters
    std::string version_;
};

}  // namespace lockstep::bench
