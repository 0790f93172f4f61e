// The checker must refuse what is broken, and say by name how.
#include "collectives/schedule/checker.h"

#include <gtest/gtest.h>

#include "collectives/schedule/interval_map.h"
#include "collectives/schedule/program_builder.h"

namespace lockstep::schedule {
namespace {

constexpr int64_t kCount = 160;
constexpr Range kAll{0, kCount};
constexpr Plan kAllreduce{};

// A program of one lane, written down by hand.
class Hand {
public:
    Hand() { builder_.lane(); }
    Hand& round() {
        builder_.round();
        return *this;
    }
    Hand& send(int peer, Range range = kAll) {
        builder_.send(peer, range);
        return *this;
    }
    Hand& receive(int peer, Range range = kAll, int32_t slot = 0) {
        builder_.receive(peer, range, slot);
        return *this;
    }
    Hand& sum(std::vector<int32_t> operands = {kInPlace, 0}, Range range = kAll) {
        builder_.sum(range, operands);
        return *this;
    }
    Program program() { return builder_.finish(); }

private:
    ProgramBuilder builder_;
};

Program exchange_with(int peer) { return Hand().round().send(peer).receive(peer).sum().program(); }

Fault fault_of(std::vector<Program> programs, Plan plan = kAllreduce) {
    const Verdict verdict = prove(plan, programs, kCount);
    EXPECT_EQ(verdict.text.empty(), verdict.fault == Fault::none);
    return verdict.fault;
}

std::vector<Program> ring_of_four() { return build_all({.algorithm = Algorithm::ring}, 4, kCount); }

TEST(Checker, AcceptsTwoRanksThatExchange) {
    EXPECT_EQ(fault_of({exchange_with(1), exchange_with(0)}), Fault::none);
    EXPECT_EQ(fault_of(ring_of_four()), Fault::none);
}

TEST(Checker, RefusesADroppedMessage) {
    std::vector<Program> programs = ring_of_four();
    Program& broken = programs[2];
    Round& round = broken.rounds[1];
    ASSERT_EQ(broken.moves[round.first_move].kind, MoveKind::send);
    ++round.first_move;
    --round.move_count;
    const Verdict verdict = prove(kAllreduce, programs, kCount);
    EXPECT_TRUE(verdict.fault == Fault::unmatched || verdict.fault == Fault::wrong_message) << verdict.text;
    EXPECT_EQ(fault_of({exchange_with(1), Hand().round().receive(0).sum().program()}), Fault::unmatched);
}

TEST(Checker, NamesBothEndsOfAMessageWithoutAnOtherSide) {
    const Verdict verdict =
        prove(kAllreduce, std::vector<Program>{exchange_with(1), Hand().round().receive(0).sum().program()}, kCount);
    EXPECT_EQ(verdict.text, "unmatched message: rank 0 receives from rank 1 [0, 160) and there is no other side");
}

TEST(Checker, RefusesAContributionThatIsAddedTwice) {
    std::vector<Program> programs = build_all({.radix = 2}, 4, kCount);
    for (Program& program : programs) {  // the first exchange once more
        const Program copy = program;
        program.rounds.insert(program.rounds.begin(), copy.rounds[0]);
        ++program.lanes[0].round_count;
    }
    EXPECT_EQ(fault_of(programs), Fault::counted_twice);
    const Program doubled = Hand().round().send(1).receive(1).sum({kInPlace, 0, 0}).program();
    EXPECT_EQ(fault_of({doubled, exchange_with(0)}), Fault::counted_twice);
}

TEST(Checker, RefusesAMissingContribution) {
    const Program deaf = Hand().round().send(1).receive(1).program();
    EXPECT_EQ(fault_of({deaf, exchange_with(0)}), Fault::wrong_result);
}

TEST(Checker, RefusesAReceiveOnWhatTheRoundUses) {
    const auto in_place = [](int peer) { return Hand().round().send(peer, {0, 100}).receive(peer, {0, 100}, kInPlace).program(); };
    EXPECT_EQ(fault_of({in_place(1), in_place(0)}), Fault::hazard);
    const Program twice = Hand().round().receive(1, {0, 100}).receive(1, {50, 160}).sum().program();
    const Program sender = Hand().round().send(0, {0, 100}).send(0, {50, 160}).program();
    EXPECT_EQ(fault_of({twice, sender}), Fault::hazard);
    const Program under_sum = Hand().round().receive(1, {0, 10}, kInPlace).receive(1, kAll, 0).sum().program();
    EXPECT_EQ(fault_of({under_sum, sender}), Fault::hazard);
}

TEST(Checker, RefusesSwappedRounds) {
    const auto fault_of_swapped = [](const Plan& plan) {
        std::vector<Program> programs = build_all(plan, 4, kCount);
        std::swap(programs[1].rounds[0], programs[1].rounds[1]);
        return fault_of(programs);
    };
    EXPECT_EQ(fault_of_swapped({.algorithm = Algorithm::exchange, .radix = 2}), Fault::counted_twice);
    EXPECT_EQ(fault_of_swapped({.algorithm = Algorithm::halving_doubling, .radix = 2}), Fault::wrong_result);
    EXPECT_EQ(fault_of_swapped({.algorithm = Algorithm::ring}), Fault::wrong_message);
    EXPECT_EQ(fault_of_swapped({.algorithm = Algorithm::tree}), Fault::deadlock);
}

TEST(Checker, RefusesACyclicWait) {
    const auto receives_first = [](int peer) { return Hand().round().receive(peer).sum().round().send(peer).program(); };
    EXPECT_EQ(fault_of({receives_first(1), receives_first(0)}), Fault::deadlock);
    // Sends in a ring, one after the other: with buffers this would pass, without it must not.
    std::vector<Program> ring;
    for (int rank = 0; rank < 3; ++rank) {
        ring.push_back(Hand().round().send((rank + 1) % 3).round().receive((rank + 2) % 3).sum().program());
    }
    EXPECT_EQ(fault_of(ring), Fault::deadlock);
}

TEST(Checker, RefusesDataThatWasNeverWritten) {
    const Program adds_empty_slot = Hand().round().send(1, {0, 80}).receive(1, {0, 80}).sum().program();
    EXPECT_EQ(fault_of({adds_empty_slot, Hand().round().send(0, {0, 80}).receive(0, {0, 80}).sum().program()}),
              Fault::undefined_data);
    const Plan broadcast{.collective = Collective::broadcast, .root = 0};
    EXPECT_EQ(fault_of({Hand().round().receive(1, kAll, kInPlace).program(), Hand().round().send(0).program()}, broadcast),
              Fault::undefined_data);
}

TEST(Checker, RefusesEndsThatNameDifferentRanges) {
    const Program sender = Hand().round().send(1, {0, 80}).receive(1).sum().program();
    const Program receiver = Hand().round().send(0).receive(0, {80, 160}).sum().program();
    EXPECT_EQ(fault_of({sender, receiver}), Fault::wrong_message);
}

TEST(Checker, RefusesLanesThatShareARange) {
    std::vector<Program> programs;
    for (int rank = 0; rank < 2; ++rank) {
        ProgramBuilder builder;
        for (const Range range : {Range{0, 100}, Range{90, 160}}) {
            builder.lane();
            builder.round();
            builder.send(1 - rank, range);
            builder.receive(1 - rank, range, 0);
            builder.sum(range, std::vector<int32_t>{kInPlace, 0});
        }
        programs.push_back(builder.finish());
    }
    EXPECT_EQ(fault_of(programs), Fault::lanes_overlap);
}

TEST(Checker, RefusesRanksThatAddInDifferentOrders) {
    // Everyone has everyone's data; rank 2 adds it in another order.
    std::vector<Program> programs;
    for (int rank = 0; rank < 3; ++rank) {
        Hand hand;
        hand.round();
        std::vector<int32_t> operands;
        for (int peer = 0; peer < 3; ++peer) {
            const auto slot = static_cast<int32_t>(peer < rank ? peer : peer - 1);
            operands.push_back(peer == rank ? kInPlace : slot);
            if (peer != rank) hand.send(peer).receive(peer, kAll, slot);
        }
        if (rank == 2) std::swap(operands[1], operands[2]);
        programs.push_back(hand.sum(operands).program());
    }
    EXPECT_EQ(fault_of(programs), Fault::ranks_differ);
}

TEST(Checker, RefusesWhatDoesNotExist) {
    EXPECT_EQ(fault_of({exchange_with(5), exchange_with(0)}), Fault::malformed);
    EXPECT_EQ(fault_of({exchange_with(0), exchange_with(0)}), Fault::malformed);
    EXPECT_EQ(fault_of({Hand().round().send(1, {0, 161}).program(), exchange_with(0)}), Fault::malformed);
    EXPECT_EQ(fault_of({Hand().round().send(1).receive(1).sum({kInPlace, 3}).program(), exchange_with(0)}), Fault::malformed);
}

TEST(Checker, ComesToOneVerdictWhateverTheOrderOfEvents) {
    const Plan plan{.algorithm = Algorithm::double_tree, .chunks = 4};
    const std::vector<Program> programs = build_all(plan, 13, kCount);
    for (uint64_t seed = 0; seed < 200; ++seed) EXPECT_EQ(prove(plan, programs, kCount, seed).text, "") << seed;
}

TEST(IntervalMap, HoldsWhatAPlainArrayHolds) {
    std::vector<int32_t> plain(50, -1);
    IntervalMap map(50, -1);
    uint32_t state = 1;
    const auto draw = [&](int64_t bound) {
        state = state * 1664525U + 1013904223U;
        return static_cast<int64_t>((state >> 8) % static_cast<uint32_t>(bound));
    };
    for (int turn = 0; turn < 2000; ++turn) {
        const int64_t first = draw(50);
        const Stretch run{{first, first + 1 + draw(50 - first)}, static_cast<int32_t>(draw(4))};
        map.write(run);
        std::fill(plain.begin() + run.range.first, plain.begin() + run.range.last, run.content);
        int64_t next = 0;
        for (const Stretch& part : map.read({0, 50})) {
            ASSERT_EQ(part.range.first, next);
            for (; next < part.range.last; ++next) ASSERT_EQ(plain[static_cast<size_t>(next)], part.content) << turn;
        }
        ASSERT_EQ(next, 50);
    }
}

}  // namespace
}  // namespace lockstep::schedule
