// What is wrong with a set of machines: a pure function of what their ranks have found.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launch/preflight.h"

namespace lockstep {

namespace {

constexpr double kClockWarningMs = 1000.0;  // stamps of logs and checkpoints are compared over machines; nothing else is

class Judge {
public:
    Judge(const std::vector<MachineFacts>& ranks, const std::vector<NodePair>& pairs, const PreflightNeeds& needs)
        : ranks_(ranks), pairs_(pairs), needs_(needs) {
        for (const MachineFacts& rank : ranks) ranks_of_node_[rank.node].push_back(&rank);
    }

    std::vector<PreflightFinding> judge() {
        check_addresses();
        check_pairs();
        check_names();
        check_programs();
        check_shared_memory();
        check_open_files();
        check_run_folder();
        check_data();
        check_processors();
        std::stable_partition(findings_.begin(), findings_.end(), [](const PreflightFinding& finding) { return finding.is_error; });
        return std::move(findings_);
    }

private:
    void error(std::string text) { findings_.push_back({true, std::move(text)}); }
    void warn(std::string text) { findings_.push_back({false, std::move(text)}); }

    const std::string& host_of(int node) const { return ranks_of_node_.at(node).front()->host; }

    void check_addresses() {
        for (const MachineFacts& rank : ranks_) {
            if (!rank.address_problem.empty()) error(fmt::format("rank {} on {}: {}", rank.rank, rank.host, rank.address_problem));
        }
    }

    void check_pairs() {
        for (const NodePair& pair : pairs_) {
            if (!pair.problem.empty()) {
                error(
                    fmt::format("node {} ({}) cannot reach node {} ({}) at {}: {}; open the firewall between them or name the "
                                "interface that reaches it with comm.interface",
                                pair.from, host_of(pair.from), pair.to, host_of(pair.to), pair.endpoint, pair.problem));
            } else if (std::abs(pair.clock_offset_ms) > kClockWarningMs && pair.from < pair.to) {
                warn(
                    fmt::format("the clocks of node {} ({}) and node {} ({}) are {:.1f} s apart; times of logs and checkpoints "
                                "will not compare: run a time service (chrony, ntp)",
                                pair.from, host_of(pair.from), pair.to, host_of(pair.to), 1e-3 * std::abs(pair.clock_offset_ms)));
            }
        }
    }

    // Ranks that share a node number must share a machine: they are about to share its memory.
    void check_names() {
        for (const auto& [node, members] : ranks_of_node_) {
            for (const MachineFacts* member : members) {
                if (member->boot_id == members.front()->boot_id) continue;
                error(
                    fmt::format("ranks {} and {} both say node {}, but run on different machines ({} and {}); start them with "
                                "the right node rank",
                                members.front()->rank, member->rank, node, members.front()->host, member->host));
                break;
            }
        }
        std::map<std::string, const MachineFacts*> first_of_name;
        for (const auto& [node, members] : ranks_of_node_) {
            const MachineFacts& mine = *members.front();
            const auto [known, is_new] = first_of_name.emplace(mine.host, &mine);
            if (is_new || known->second->boot_id == mine.boot_id) continue;
            warn(
                fmt::format("nodes {} and {} are different machines and both call themselves {}; messages that name a host will "
                            "not tell them apart",
                            known->second->node, node, mine.host));
        }
    }

    void check_programs() {
        for (const MachineFacts& rank : ranks_) {
            if (rank.program == ranks_.front().program) continue;
            error(fmt::format("rank {} on {} runs another program ({}) than rank 0 ({}); install one build on all machines",
                              rank.rank, rank.host, rank.program, ranks_.front().program));
            return;
        }
    }

    void check_shared_memory() {
        for (const auto& [node, members] : ranks_of_node_) {
            const uint64_t needed = members.size() * needs_.shared_memory_per_rank;
            const Room& room = members.front()->shared_memory;
            if (members.size() < 2 || room.free >= needed) continue;
            error(
                fmt::format("/dev/shm of node {} ({}) has {} of {} bytes free, {} ranks need about {}; enlarge it (docker run "
                            "--shm-size, mount -o remount,size=…) or set comm.backend=tcp with comm.shared_memory=false",
                            node, members.front()->host, room.free, room.total, members.size(), needed));
        }
    }

    void check_open_files() {
        for (const MachineFacts& rank : ranks_) {
            if (rank.open_files_limit >= needs_.open_files) continue;
            error(fmt::format("rank {} on {} may open {} files and needs about {}; raise the limit (ulimit -Hn)", rank.rank,
                              rank.host, rank.open_files_limit, needs_.open_files));
        }
    }

    void check_run_folder() {
        const MachineFacts& writer = ranks_.front();
        if (!writer.run_folder.problem.empty()) {
            error(fmt::format("rank 0 on {} cannot write run.dir: {}", writer.host, writer.run_folder.problem));
        } else if (writer.run_folder.free < needs_.run_folder) {
            warn(
                fmt::format("run.dir on {} has {} bytes free, the checkpoints that are kept take about {}; free some or keep fewer "
                            "(checkpoint.keep_last)",
                            writer.host, writer.run_folder.free, needs_.run_folder));
        }
    }

    void check_data() {
        std::set<std::string> known;  // the ranks of a machine see the same
        const auto error_once = [&](std::string text) {
            if (known.insert(text).second) error(std::move(text));
        };
        for (const MachineFacts& rank : ranks_) {
            for (size_t index = 0; index < rank.data.size(); ++index) {
                const PathFact& mine = rank.data[index];
                const PathFact* first = index < ranks_.front().data.size() ? &ranks_.front().data[index] : nullptr;
                if (!mine.problem.empty()) {
                    error_once(fmt::format("node {} ({}) cannot read {}: {}; mount or copy the data there", rank.node, rank.host,
                                           mine.path, mine.problem));
                } else if (first != nullptr && first->problem.empty() && first->found != mine.found) {
                    error_once(fmt::format("{} is a {} on node {} ({}) and a {} on node 0; give all ranks the same data", mine.path,
                                           mine.found, rank.node, rank.host, first->found));
                }
            }
        }
    }

    void check_processors() {
        std::set<std::string> warnings;  // ranks of one kind say the same
        for (const MachineFacts& rank : ranks_) {
            if (!rank.thread_warning.empty() && warnings.insert(rank.thread_warning).second)
                warn(fmt::format("rank {} on {}: {}", rank.rank, rank.host, rank.thread_warning));
        }
        const MachineFacts& first = ranks_.front();
        for (const auto& [node, members] : ranks_of_node_) {
            const MachineFacts& mine = *members.front();
            if (mine.instruction_set != first.instruction_set) {
                warn(fmt::format("node {} ({}) has {}, rank 0's has {}: the slower one sets the pace", node, mine.host,
                                 mine.instruction_set, first.instruction_set));
            }
            if (mine.compute_threads != first.compute_threads) {
                warn(fmt::format(
                    "node {} ({}) has {} compute threads for a rank, rank 0's has {}: the slower one sets the pace; start "
                    "as many ranks per node as its cores allow",
                    node, mine.host, mine.compute_threads, first.compute_threads));
            }
        }
    }

    const std::vector<MachineFacts>& ranks_;
    const std::vector<NodePair>& pairs_;
    const PreflightNeeds& needs_;
    std::map<int, std::vector<const MachineFacts*>> ranks_of_node_;
    std::vector<PreflightFinding> findings_;
};

}  // namespace

std::vector<PreflightFinding> find_problems(const std::vector<MachineFacts>& ranks, const std::vector<NodePair>& pairs,
                                            const PreflightNeeds& needs) {
    return Judge(ranks, pairs, needs).judge();
}

}  // namespace lockstep
