// The ranks of one round on this node: started together, watched, ended together.
#pragma once

#include <poll.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/child_process.h"
#include "launch/rank_stream.h"
#include "launch/verdict.h"

namespace lockstep {

struct RankPlan {
    int rank = 0;
    std::vector<std::string> environment;
    std::vector<int> processors;  // it may run on; empty: on all
    RankStreamOptions output, error;
    std::string log_folder;            // named in the table; empty: none
    std::filesystem::path error_file;  // where it may say why it failed; empty: nowhere
};

class RankGroup {
public:
    RankGroup(std::string host, int round) : host_(std::move(host)), round_(round) {}
    RankGroup(const RankGroup&) = delete;
    RankGroup& operator=(const RankGroup&) = delete;
    ~RankGroup();  // kills what still runs

    int round() const { return round_; }

    // As start_child. A rank that cannot be started is one that has failed, with the reason as its last line.
    void start_rank(const std::vector<std::string>& command, const RankPlan& plan);

    bool any_running() const;
    void append_to(std::vector<pollfd>& watched) const;  // the streams that can be read
    void forward_output();

    // Notes the ranks that have ended, and returns those that failed.
    std::vector<RankEnd> reap();

    void signal_all(int number) const;
    // Those that end from now on do so because of us: TERM after one time, KILL after another, for those that are left. Never later
    // than an earlier plan said.
    void plan_stop(std::optional<double> term_after_s, double kill_after_s);
    void mark_stopping() { stopping_ = true; }
    bool is_stopping() const { return stopping_; }
    void kill_now();
    void escalate();  // carries out what is due of the plan
    std::optional<int64_t> next_due_ns() const;

    // Reads what is left of the output, with a deadline: a process that left its group may hold a pipe open for ever.
    void drain();
    // Of all ranks, with their last lines. After drain().
    std::vector<RankEnd> ends() const;

private:
    struct Rank {
        RankEnd end;
        bool running = true;
        std::unique_ptr<RankStream> output, error;  // null: it never started
        std::vector<std::string> last_words;        // why not
        std::filesystem::path error_file;
    };
    std::vector<RankStream*> streams() const;
    void note_end(Rank& rank, int code, int status) const;

    const std::string host_;
    const int round_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::vector<RankEnd> failed_starts_;
    bool stopping_ = false;          // ranks that end from now on do so because of us
    bool stopping_by_term_ = false;  // TERM has been sent
    std::optional<int64_t> term_at_ns_, kill_at_ns_;
};

}  // namespace lockstep
