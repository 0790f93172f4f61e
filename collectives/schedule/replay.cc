#include "collectives/schedule/replay.h"

#include <algorithm>
#include <utility>

#include "core/random.h"

namespace lockstep::schedule {

namespace {

struct Endpoint {
    uint64_t key = 0;  // lane, sender, receiver
    uint32_t move = 0;

    bool operator<(const Endpoint& other) const { return key < other.key; }
};

uint64_t key_of(uint64_t lane, int sender, int receiver) {
    constexpr int kRankBits = 20;
    return (((lane << kRankBits) | static_cast<uint32_t>(sender)) << kRankBits) | static_cast<uint32_t>(receiver);
}

}  // namespace

Matching match(std::span<const Program> programs) {
    Matching matching;
    std::vector<Endpoint> sends;
    std::vector<Endpoint> receives;
    uint32_t total = 0;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        const Program& program = programs[rank];
        const auto self = static_cast<int>(rank);
        matching.first_move.push_back(total);
        for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
            for (const Round& round : program.rounds_of(program.lanes[lane])) {
                for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
                    const Move& move = program.moves[index];
                    if (move.kind == MoveKind::send) {
                        sends.push_back({key_of(lane, self, move.peer), total + index});
                    } else {
                        receives.push_back({key_of(lane, move.peer, self), total + index});
                    }
                }
            }
        }
        total += static_cast<uint32_t>(program.moves.size());
    }
    matching.first_move.push_back(total);
    matching.partner.assign(total, kNoPartner);
    std::stable_sort(sends.begin(), sends.end());  // stable: the n-th of a key stays the n-th
    std::stable_sort(receives.begin(), receives.end());
    for (size_t left = 0, right = 0; left < sends.size() && right < receives.size();) {
        const Endpoint& send = sends[left];
        const Endpoint& receive = receives[right];
        left += send.key <= receive.key ? 1 : 0;
        right += receive.key <= send.key ? 1 : 0;
        if (send.key != receive.key) continue;
        matching.partner[send.move] = receive.move;
        matching.partner[receive.move] = send.move;
    }
    return matching;
}

namespace {

class Rendezvous {
public:
    Rendezvous(std::span<const Program> programs, const Matching& matching, uint64_t seed)
        : programs_(programs), matching_(matching), draws_(seed, "rendezvous"), is_shuffled_(seed != 0) {
        posted_.assign(matching.partner.size(), false);
        place_of_move_.assign(matching.partner.size(), 0);
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            for (size_t lane = 0; lane < programs[rank].lanes.size(); ++lane)
                add_place(static_cast<int>(rank), static_cast<uint32_t>(lane));
        }
    }

    std::vector<RoundEvent> run() {
        while (!ready_.empty()) {
            if (is_shuffled_) std::swap(ready_[draws_.below(ready_.size())], ready_.back());
            const Ready next = ready_.back();
            ready_.pop_back();
            next.completes ? complete(next.place) : begin(next.place);
        }
        return std::move(events_);
    }

private:
    // How far one lane of one rank has come.
    struct Place {
        int32_t rank = 0;
        uint32_t lane = 0;
        uint32_t round = 0;
        uint32_t last_round = 0;
        uint32_t open_moves = 0;
    };
    struct Ready {
        uint32_t place = 0;
        bool completes = false;
    };

    void add_place(int rank, uint32_t lane) {
        const Program& program = programs_[static_cast<size_t>(rank)];
        const Lane& rounds = program.lanes[lane];
        if (rounds.round_count == 0) return;
        const auto place = static_cast<uint32_t>(places_.size());
        places_.push_back({rank, lane, rounds.first_round, rounds.first_round + rounds.round_count, 0});
        ready_.push_back({place, false});
        for (const Round& round : program.rounds_of(rounds)) {
            for (uint32_t index = 0; index < round.move_count; ++index)
                place_of_move_[matching_.number(rank, round.first_move + index)] = place;
        }
    }

    void begin(uint32_t number) {
        Place& place = places_[number];
        events_.push_back({place.rank, place.lane, place.round, false});
        const Round& round = programs_[static_cast<size_t>(place.rank)].rounds[place.round];
        place.open_moves = round.move_count;
        if (round.move_count == 0) ready_.push_back({number, true});
        for (uint32_t index = 0; index < round.move_count; ++index) {
            const uint32_t move = matching_.number(place.rank, round.first_move + index);
            posted_[move] = true;
            const uint32_t partner = matching_.partner[move];
            if (partner == kNoPartner || !posted_[partner]) continue;
            close_one(number);
            close_one(place_of_move_[partner]);
        }
    }

    void close_one(uint32_t number) {
        if (--places_[number].open_moves == 0) ready_.push_back({number, true});
    }

    void complete(uint32_t number) {
        Place& place = places_[number];
        events_.push_back({place.rank, place.lane, place.round, true});
        if (++place.round < place.last_round) ready_.push_back({number, false});
    }

    const std::span<const Program> programs_;
    const Matching& matching_;
    RandomStream draws_;
    const bool is_shuffled_;
    std::vector<bool> posted_;
    std::vector<uint32_t> place_of_move_;
    std::vector<Place> places_;
    std::vector<Ready> ready_;
    std::vector<RoundEvent> events_;
};

}  // namespace

std::vector<RoundEvent> rendezvous_order(std::span<const Program> programs, const Matching& matching, uint64_t seed) {
    return Rendezvous(programs, matching, seed).run();
}

}  // namespace lockstep::schedule
