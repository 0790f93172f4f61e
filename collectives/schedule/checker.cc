#include "collectives/schedule/checker.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/communicator.h"
#include "collectives/schedule/form_check.h"
#include "collectives/schedule/interval_map.h"
#include "collectives/schedule/replay.h"
#include "collectives/schedule/symbolic_sums.h"

namespace lockstep::schedule {

std::string_view to_string(Fault fault) {
    constexpr std::string_view kNames[] = {"none",          "malformed", "hazard",         "lanes overlap", "unmatched message",
                                           "wrong message", "deadlock",  "undefined data", "counted twice", "wrong result",
                                           "ranks differ"};
    return kNames[static_cast<size_t>(fault)];
}

namespace {

std::string text_of(Range range) { return fmt::format("[{}, {})", range.first, range.last); }

struct Message {
    std::vector<Stretch> parts;
    int64_t depth = 0;
};

class SymbolicRun {
public:
    SymbolicRun(const Plan& plan, std::span<const Program> programs, int64_t count)
        : plan_(plan), programs_(programs), count_(count), rank_count_(static_cast<int>(programs.size())), sums_(rank_count_) {}

    Verdict run(uint64_t seed) {
        for (int rank = 0; rank < rank_count_; ++rank) check_form(program(rank), rank, rank_count_, count_);
        matching_ = match(programs_);
        check_messages();
        prepare();
        size_t completed = 0;
        for (const RoundEvent& event : rendezvous_order(programs_, matching_, seed)) {
            event.completes ? complete(event) : ship(event);
            completed += event.completes ? 1 : 0;
            if (event.completes) ++rounds_done_[static_cast<size_t>(event.rank)][event.lane];
        }
        check_all_completed(completed);
        check_outputs();
        count_costs();
        return verdict_;
    }

private:
    const Program& program(int rank) const { return programs_[static_cast<size_t>(rank)]; }

    void check_messages() const {
        for (int rank = 0; rank < rank_count_; ++rank) {
            for (uint32_t index = 0; index < program(rank).moves.size(); ++index) {
                const Move& move = program(rank).moves[index];
                const bool sends = move.kind == MoveKind::send;
                const uint32_t partner = matching_.partner[matching_.number(rank, index)];
                if (partner == kNoPartner) {
                    throw Finding{Fault::unmatched,
                                  fmt::format("rank {} {} rank {} {} and there is no other side", rank,
                                              sends ? "sends to" : "receives from", move.peer, text_of(move.range))};
                }
                const Range other = program(move.peer).moves[partner - matching_.first_move[static_cast<size_t>(move.peer)]].range;
                if (other.first == move.range.first && other.last == move.range.last) continue;
                throw Finding{Fault::wrong_message,
                              fmt::format("rank {} {} rank {} {}, which there is {}", rank, sends ? "sends to" : "receives from",
                                          move.peer, text_of(move.range), text_of(other))};
            }
        }
    }

    void prepare() {
        messages_.resize(matching_.partner.size());
        for (int rank = 0; rank < rank_count_; ++rank) {
            buffers_.push_back(initial_content(rank));
            slots_.emplace_back(static_cast<size_t>(program(rank).slot_count), IntervalMap(count_, SymbolicSums::kUndefined));
            depths_.emplace_back(program(rank).lanes.size(), 0);
            rounds_done_.emplace_back(program(rank).lanes.size(), 0);
        }
    }

    IntervalMap initial_content(int rank) const {
        const bool has_all =
            plan_.collective != Collective::allgather && (plan_.collective != Collective::broadcast || rank == plan_.root);
        IntervalMap content(count_, has_all ? sums_.contribution(rank) : SymbolicSums::kUndefined);
        if (plan_.collective == Collective::allgather) content.write({slice(rank), sums_.contribution(rank)});
        return content;
    }

    Range slice(int rank) const {
        const auto [first, last] = Communicator::slice(count_, rank, rank_count_);
        return {first, last};
    }

    void ship(const RoundEvent& event) {
        const Program& mine = program(event.rank);
        const Round& round = mine.rounds[event.round];
        for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
            const Move& move = mine.moves[index];
            if (move.kind != MoveKind::send) continue;
            Message& message = messages_[matching_.partner[matching_.number(event.rank, index)]];
            message.parts = buffers_[static_cast<size_t>(event.rank)].read(move.range);
            message.depth = depths_[static_cast<size_t>(event.rank)][event.lane] + 1;
            for (const Stretch& part : message.parts) expect_defined(part, event.rank, "sends");
        }
    }

    void complete(const RoundEvent& event) {
        const Program& mine = program(event.rank);
        const Round& round = mine.rounds[event.round];
        int64_t& depth = depths_[static_cast<size_t>(event.rank)][event.lane];
        for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
            const Move& move = mine.moves[index];
            if (move.kind != MoveKind::receive) continue;
            const Message message = std::move(messages_[matching_.number(event.rank, index)]);
            depth = std::max(depth, message.depth);
            for (const Stretch& part : message.parts) place(event.rank, move.slot).write(part);
        }
        if (round.operand_count > 0) sum(event.rank, round.sum_range, mine.operands_of(round));
    }

    // Element by element in thought; in fact up to where any operand's content changes.
    void sum(int rank, Range range, std::span<const int32_t> operands) {
        parts_.resize(std::max(parts_.size(), operands.size()));
        for (size_t operand = 0; operand < operands.size(); ++operand) place(rank, operands[operand]).read(range, parts_[operand]);
        std::vector<size_t> at(operands.size(), 0);
        std::vector<int32_t> contents(operands.size());
        for (int64_t first = range.first; first < range.last;) {
            int64_t last = range.last;
            for (size_t operand = 0; operand < operands.size(); ++operand) {
                while (parts_[operand][at[operand]].range.last <= first) ++at[operand];
                const Stretch& part = parts_[operand][at[operand]];
                expect_defined(part, rank, "adds");
                contents[operand] = part.content;
                last = std::min(last, part.range.last);
            }
            const int32_t result = sums_.add_as_tree(contents);
            if (result == SymbolicSums::kTwice) throw counted_twice(rank, {first, last}, contents);
            buffers_[static_cast<size_t>(rank)].write({{first, last}, result});
            first = last;
        }
    }

    Finding counted_twice(int rank, Range range, std::span<const int32_t> contents) const {
        std::string list;
        for (const int32_t content : contents) list += fmt::format("{}{}", list.empty() ? "" : " and ", sums_.describe(content));
        return {Fault::counted_twice, fmt::format("rank {} adds in {}: {}", rank, text_of(range), list)};
    }

    void expect_defined(const Stretch& part, int rank, std::string_view verb) const {
        if (part.content >= 0) return;
        throw Finding{Fault::undefined_data, fmt::format("rank {} {} {}, which holds nothing", rank, verb, text_of(part.range))};
    }

    IntervalMap& place(int rank, int32_t slot) {
        return slot == kInPlace ? buffers_[static_cast<size_t>(rank)]
                                : slots_[static_cast<size_t>(rank)][static_cast<size_t>(slot)];
    }

    void check_all_completed(size_t completed) const {
        size_t expected = 0;
        for (const Program& one : programs_) expected += one.rounds.size();
        if (completed == expected) return;
        for (int rank = 0; rank < rank_count_; ++rank) {
            for (size_t lane = 0; lane < program(rank).lanes.size(); ++lane) {
                const size_t done = rounds_done_[static_cast<size_t>(rank)][lane];
                if (done == program(rank).lanes[lane].round_count) continue;
                throw Finding{Fault::deadlock,
                              fmt::format("{} of {} rounds never end, the first of them: rank {}, lane {}, round {}",
                                          expected - completed, expected, rank, lane, done)};
            }
        }
    }

    // What `rank` must hold in the end.
    void check_outputs() {
        std::vector<int32_t> leaves(programs_.size());
        std::iota(leaves.begin(), leaves.end(), 0);
        const int32_t rank_tree = sums_.add_as_tree(leaves);
        verdict_.follows_rank_tree = true;
        for (int rank = 0; rank < rank_count_; ++rank) {
            switch (plan_.collective) {
                case Collective::allreduce:
                    check_sum(rank, {0, count_}, rank_tree);
                    break;
                case Collective::reduce_scatter:
                    check_sum(rank, slice(rank), rank_tree);
                    break;
                case Collective::reduce:
                    if (rank == plan_.root) check_sum(rank, {0, count_}, rank_tree);
                    break;
                case Collective::allgather:
                    for (int other = 0; other < rank_count_; ++other) check_copy(rank, slice(other), other);
                    break;
                case Collective::broadcast:
                    check_copy(rank, {0, count_}, plan_.root);
                    break;
            }
        }
        if (plan_.collective == Collective::allreduce) check_ranks_agree();
    }

    void check_sum(int rank, Range range, int32_t rank_tree) {
        for (const Stretch& part : buffers_[static_cast<size_t>(rank)].read(range)) {
            if (!sums_.is_complete(part.content)) throw wrong_result(rank, part);
            verdict_.follows_rank_tree = verdict_.follows_rank_tree && part.content == rank_tree;
        }
    }

    void check_copy(int rank, Range range, int source) const {
        for (const Stretch& part : buffers_[static_cast<size_t>(rank)].read(range)) {
            if (part.content != sums_.contribution(source)) throw wrong_result(rank, part);
        }
    }

    Finding wrong_result(int rank, const Stretch& part) const {
        return {Fault::wrong_result,
                fmt::format("rank {} ends with {} in {}", rank, sums_.describe(part.content), text_of(part.range))};
    }

    void check_ranks_agree() const {
        for (const Stretch& part : buffers_[0].read({0, count_})) {
            for (int rank = 1; rank < rank_count_; ++rank) {
                for (const Stretch& other : buffers_[static_cast<size_t>(rank)].read(part.range)) {
                    if (other.content == part.content) continue;
                    throw Finding{Fault::ranks_differ,
                                  fmt::format("ranks 0 and {} add {} in different orders", rank, text_of(other.range))};
                }
            }
        }
    }

    void count_costs() {
        for (int rank = 0; rank < rank_count_; ++rank) {
            int64_t messages = 0;
            int64_t sent = 0;
            int64_t added = 0;
            for (const Move& move : program(rank).moves) {
                if (move.kind != MoveKind::send) continue;
                ++messages;
                sent += move.range.size();
            }
            for (const Round& round : program(rank).rounds) {
                if (round.operand_count > 0) added += (round.operand_count - 1) * round.sum_range.size();
            }
            verdict_.messages_sent = std::max(verdict_.messages_sent, messages);
            verdict_.elements_sent = std::max(verdict_.elements_sent, sent);
            verdict_.elements_added = std::max(verdict_.elements_added, added);
            for (const int64_t depth : depths_[static_cast<size_t>(rank)]) verdict_.steps = std::max(verdict_.steps, depth);
        }
    }

    const Plan& plan_;
    const std::span<const Program> programs_;
    const int64_t count_;
    const int rank_count_;
    SymbolicSums sums_;
    Matching matching_;
    std::vector<Message> messages_;                 // by receive
    std::vector<IntervalMap> buffers_;              // by rank
    std::vector<std::vector<IntervalMap>> slots_;   // by rank and slot
    std::vector<std::vector<int64_t>> depths_;      // by rank and lane: messages in the longest chain so far
    std::vector<std::vector<size_t>> rounds_done_;  // by rank and lane
    std::vector<std::vector<Stretch>> parts_;       // scratch of sum(): what the operands hold
    Verdict verdict_;
};

}  // namespace

Verdict prove(const Plan& plan, std::span<const Program> programs, int64_t count, uint64_t seed) {
    try {
        return SymbolicRun(plan, programs, count).run(seed);
    } catch (const Finding& finding) {
        return {.fault = finding.fault, .text = fmt::format("{}: {}", to_string(finding.fault), finding.text)};
    }
}

}  // namespace lockstep::schedule
