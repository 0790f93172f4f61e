#include "collectives/schedule/simulator.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "collectives/schedule/cost_model.h"
#include "collectives/schedule/replay.h"
#include "core/error.h"

namespace lockstep::schedule {

namespace {

class Simulation {
public:
    Simulation(std::span<const Program> programs, int64_t element_bytes, const NetworkModel& network)
        : programs_(programs),
          element_bytes_(element_bytes),
          network_(network),
          matching_(match(programs)),
          has_arrived_(matching_.partner.size(), false),
          place_of_move_(matching_.partner.size(), 0),
          ranks_(programs.size()),
          nodes_(programs.size() / static_cast<size_t>(network.local_count) + 1) {}

    SimulatedRun run() {
        for (size_t rank = 0; rank < programs_.size(); ++rank) add_rank(static_cast<int>(rank));
        for (; !events_.empty(); events_.pop()) {
            const Event event = events_.top();
            now_ = event.time_us;
            switch (event.kind) {
                case EventKind::begin_round:
                    begin(event.subject);
                    break;
                case EventKind::on_wire:
                    leave(event.subject);
                    break;
                case EventKind::first_byte:
                    arrive(event.subject);
                    break;
                case EventKind::last_byte:
                    deliver(event.subject);
                    break;
            }
        }
        check(rounds_left_ == 0, "a schedule that is simulated comes to its end");
        return result_;
    }

private:
    enum class EventKind : uint8_t { begin_round, on_wire, first_byte, last_byte };
    struct Event {
        double time_us = 0.0;
        uint64_t number = 0;  // equal times in order of making
        EventKind kind = EventKind::begin_round;
        uint32_t subject = 0;  // a place, or the receive of a message

        bool operator<(const Event& other) const {  // the queue's top is its largest
            return time_us != other.time_us ? time_us > other.time_us : number > other.number;
        }
    };
    // How far one lane of one rank has come.
    struct Place {
        int32_t rank = 0;
        uint32_t round = 0;
        uint32_t last_round = 0;
        uint32_t open_receives = 0;
        bool is_open = false;
    };
    struct Wire {
        double out_free_us = 0.0;
        double in_free_us = 0.0;
    };
    struct RankState {
        double processor_free_us = 0.0;
        Wire memory;
    };

    void add_rank(int rank) {
        const Program& program = programs_[static_cast<size_t>(rank)];
        for (const Lane& lane : program.lanes) {
            if (lane.round_count == 0) continue;
            const auto number = static_cast<uint32_t>(places_.size());
            places_.push_back({.rank = rank, .round = lane.first_round, .last_round = lane.first_round + lane.round_count});
            rounds_left_ += lane.round_count;
            for (const Round& round : program.rounds_of(lane)) {
                for (uint32_t index = 0; index < round.move_count; ++index) {
                    place_of_move_[matching_.number(rank, round.first_move + index)] = number;
                }
            }
            push(0.0, EventKind::begin_round, number);
        }
    }

    void push(double time_us, EventKind kind, uint32_t subject) { events_.push({time_us, next_number_++, kind, subject}); }

    double occupy_processor(int rank, double duration_us) {
        double& free_us = ranks_[static_cast<size_t>(rank)].processor_free_us;
        free_us = std::max(free_us, now_) + duration_us;
        result_.time_us = std::max(result_.time_us, free_us);
        return free_us;
    }

    int node_of(int rank) const { return rank / network_.local_count; }
    bool is_local(int rank, int peer) const { return node_of(rank) == node_of(peer); }
    const LinkModel& link(int rank, int peer) const { return is_local(rank, peer) ? network_.local : network_.remote; }
    Wire& wire(int rank, int peer) {
        return is_local(rank, peer) ? ranks_[static_cast<size_t>(rank)].memory : nodes_[static_cast<size_t>(node_of(rank))];
    }

    void begin(uint32_t number) {
        Place& place = places_[number];
        const Program& program = programs_[static_cast<size_t>(place.rank)];
        const Round& round = program.rounds[place.round];
        place.is_open = true;
        place.open_receives = 0;
        for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
            const Move& move = program.moves[index];
            if (move.kind == MoveKind::receive) {
                ++place.open_receives;
                continue;
            }
            const double sent_us = occupy_processor(place.rank, link(place.rank, move.peer).overhead_us);
            push(sent_us, EventKind::on_wire, matching_.partner[matching_.number(place.rank, index)]);
        }
        for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
            const uint32_t move = matching_.number(place.rank, index);
            if (has_arrived_[move]) take(place, program.moves[index]);
        }
        if (place.open_receives == 0) finish(number);
    }

    const Move& move_at(int rank, uint32_t number) const {
        return programs_[static_cast<size_t>(rank)].moves[number - matching_.first_move[static_cast<size_t>(rank)]];
    }
    double wire_us(const Move& move, const LinkModel& on) const {
        return static_cast<double>(move.range.size() * element_bytes_) * on.wire_ns_per_byte * 1e-3;
    }

    void leave(uint32_t receive) {
        const int receiver = places_[place_of_move_[receive]].rank;
        const Move& move = move_at(receiver, receive);
        const LinkModel& on = link(receiver, move.peer);
        double& free_us = wire(move.peer, receiver).out_free_us;
        const double start_us = std::max(now_, free_us);
        free_us = start_us + wire_us(move, on);
        ++result_.messages;
        if (!is_local(receiver, move.peer)) result_.remote_bytes += move.range.size() * element_bytes_;
        push(start_us + on.latency_us, EventKind::first_byte, receive);
    }

    void arrive(uint32_t receive) {
        const int receiver = places_[place_of_move_[receive]].rank;
        const Move& move = move_at(receiver, receive);
        double& free_us = wire(receiver, move.peer).in_free_us;
        free_us = std::max(now_, free_us) + wire_us(move, link(receiver, move.peer));
        push(free_us, EventKind::last_byte, receive);
    }

    void deliver(uint32_t receive) {
        const uint32_t number = place_of_move_[receive];
        Place& place = places_[number];
        const Round& round = programs_[static_cast<size_t>(place.rank)].rounds[place.round];
        const uint32_t index = receive - matching_.first_move[static_cast<size_t>(place.rank)];
        has_arrived_[receive] = true;
        if (!place.is_open || index < round.first_move || index >= round.first_move + round.move_count)
            return;  // waits for its round
        take(place, programs_[static_cast<size_t>(place.rank)].moves[index]);
        if (place.open_receives == 0) finish(number);
    }

    void take(Place& place, const Move& move) {
        occupy_processor(place.rank, link(place.rank, move.peer).overhead_us);
        --place.open_receives;
    }

    void finish(uint32_t number) {
        Place& place = places_[number];
        const Round& round = programs_[static_cast<size_t>(place.rank)].rounds[place.round];
        const int64_t added = round.operand_count > 0 ? (round.operand_count - 1) * round.sum_range.size() * element_bytes_ : 0;
        const double done_us = occupy_processor(place.rank, static_cast<double>(added) * network_.remote.sum_ns_per_byte * 1e-3);
        place.is_open = false;
        --rounds_left_;
        if (++place.round < place.last_round) push(done_us, EventKind::begin_round, number);
    }

    const std::span<const Program> programs_;
    const int64_t element_bytes_;
    const NetworkModel& network_;
    const Matching matching_;
    std::vector<bool> has_arrived_;        // by receive
    std::vector<uint32_t> place_of_move_;  // by move
    std::vector<Place> places_;
    std::vector<RankState> ranks_;
    std::vector<Wire> nodes_;
    std::priority_queue<Event> events_;
    uint64_t next_number_ = 0;
    uint64_t rounds_left_ = 0;
    double now_ = 0.0;
    SimulatedRun result_;
};

constexpr int64_t kElementBytes = 4;

int64_t elements_of(int64_t bytes) { return (bytes + kElementBytes - 1) / kElementBytes; }

bool is_too_large(const Program& of_one_rank, int rank_count) {
    return static_cast<int64_t>(of_one_rank.moves.size()) / 2 * rank_count > kMostMessages;
}

}  // namespace

SimulatedRun simulate(std::span<const Program> programs, int64_t element_bytes, const NetworkModel& network) {
    check(network.local_count >= 1, "a node has at least one rank");
    return Simulation(programs, element_bytes, network).run();
}

SimulatedRun simulate_flat(const Plan& plan, int rank_count, int64_t bytes, const NetworkModel& network) {
    const int64_t count = elements_of(bytes);
    if (is_too_large(build(plan, 0, rank_count, count), rank_count)) {
        return {.time_us = predicted_us(plan, rank_count, bytes, network.remote), .by_events = false};
    }
    return simulate(build_all(plan, rank_count, count), kElementBytes, network);
}

SimulatedRun simulate_hierarchical(const Plan& between_nodes, int node_count, int64_t bytes, const NetworkModel& network) {
    const int rank_count = node_count * network.local_count;
    const int64_t count = elements_of(bytes);
    std::vector<Program> programs;
    for (int rank = 0; rank < rank_count; ++rank) {
        programs.push_back(build_hierarchical(between_nodes, rank, node_count, network.local_count, count));
        if (rank == 0 && is_too_large(programs[0], rank_count)) {
            return {.time_us = predicted_hierarchical_us(between_nodes, node_count, network.local_count, bytes, network.local,
                                                         network.remote),
                    .by_events = false};
        }
    }
    return simulate(programs, kElementBytes, network);
}

}  // namespace lockstep::schedule
