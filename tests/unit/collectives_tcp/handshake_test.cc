// The handshake as pure messages: who gets in and who does not.
#include "collectives/tcp/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "net/message.h"

namespace lockstep::tcp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using State = Handshake::State;

Identity identity(int rank) { return {.rank = rank, .size = 4, .job = "job communicator/1", .secret = "a secret of the job"}; }

Handshake listener(Identity own = identity(0)) {
    return Handshake::as_listener(std::move(own), [](int) { return std::string(); });
}

std::string payload_of(const std::string& frame) { return frame.substr(lockstep::kFrameHeaderBytes); }

// One message at a time, from either side, until nobody has anything to say.
void talk(Handshake& caller, Handshake& answerer) {
    while (true) {
        const std::string to_listener = caller.take_output();
        if (!to_listener.empty() && answerer.state() == State::under_way) answerer.receive(payload_of(to_listener));
        const std::string to_caller = answerer.take_output();
        if (!to_caller.empty() && caller.state() == State::under_way) caller.receive(payload_of(to_caller));
        if (to_listener.empty() && to_caller.empty()) return;
    }
}

TEST(Handshake, RanksOfOneJobMeet) {
    Handshake caller = Handshake::as_caller(identity(2), 0);
    Handshake answerer = listener();
    talk(caller, answerer);
    EXPECT_EQ(caller.state(), State::done);
    EXPECT_EQ(answerer.state(), State::done);
    EXPECT_EQ(answerer.peer(), 2);
}

TEST(Handshake, TheSecretDoesNotTravel) {
    Handshake caller = Handshake::as_caller(identity(2), 0);
    Handshake answerer = listener();
    const std::string hello = caller.take_output();
    answerer.receive(payload_of(hello));
    const std::string challenge = answerer.take_output();
    caller.receive(payload_of(challenge));
    const std::string answer = caller.take_output();
    for (const std::string& each : {hello, challenge, answer}) EXPECT_EQ(each.find(identity(0).secret), std::string::npos);
}

struct Stranger {
    const char* name;
    void (*change)(Identity&);
    const char* reason;
};

class StrangersAreRefused : public testing::TestWithParam<Stranger> {};

TEST_P(StrangersAreRefused, OnBothSides) {
    Identity other = identity(2);
    GetParam().change(other);
    Handshake caller = Handshake::as_caller(other, 0);
    Handshake answerer = listener();
    talk(caller, answerer);
    EXPECT_EQ(caller.state(), State::refused);
    EXPECT_EQ(answerer.state(), State::refused);
    EXPECT_THAT(caller.reason(), HasSubstr(GetParam().reason));
    EXPECT_THAT(answerer.reason(), HasSubstr(GetParam().reason));
    EXPECT_FALSE(caller.is_stranger()) << "another try would not help";
}

INSTANTIATE_TEST_SUITE_P(
    Handshake, StrangersAreRefused,
    testing::Values(Stranger{"secret", [](Identity& each) { each.secret += "x"; }, "do not have the same job secret"},
                    Stranger{"job", [](Identity& each) { each.job = "other"; }, "another job"},
                    Stranger{"size", [](Identity& each) { each.size = 8; }, "world of 8 ranks, rank 0 in one of 4"},
                    Stranger{"rank", [](Identity& each) { each.rank = 4; }, "no rank 4"},
                    Stranger{"itself", [](Identity& each) { each.rank = 0; }, "no rank 0"}),
    [](const auto& each) { return each.param.name; });

// A caller that skips the check of the listener, as an attacker would.
TEST(Handshake, WhoCannotProveTheSecretIsRefusedByTheListener) {
    Handshake caller = Handshake::as_caller(identity(2), 0);
    Handshake answerer = listener();
    answerer.receive(payload_of(caller.take_output()));
    const std::string challenge = payload_of(answerer.take_output());
    MessageReader reader(std::string_view(challenge).substr(9));
    reader.get_text();
    const std::string listeners_proof(reader.get_text());
    for (const std::string& proof : {std::string(32, '\0'), listeners_proof, std::string()}) {
        Handshake again = answerer;
        MessageWriter answer;
        answer.put_u32(0x48544C4C);
        answer.put_u32(kProtocolVersion);
        answer.put_u8(1);
        answer.put_text(proof);
        again.receive(payload_of(answer.take_frame()));
        EXPECT_EQ(again.state(), State::refused);
        EXPECT_THAT(again.reason(), HasSubstr("does not know the job's secret"));
    }
}

TEST(Handshake, AnswersOfAnEarlierConversationAreWorthless) {
    Handshake caller = Handshake::as_caller(identity(2), 0);
    Handshake first = listener();
    const std::string hello = payload_of(caller.take_output());
    first.receive(hello);
    caller.receive(payload_of(first.take_output()));
    const std::string answer = payload_of(caller.take_output());
    Handshake second = listener();
    second.receive(hello);
    second.receive(answer);
    EXPECT_EQ(second.state(), State::refused);
}

TEST(Handshake, AnotherVersionIsNamedWithBothNumbers) {
    MessageWriter hello;
    hello.put_u32(0x48544C4C);
    hello.put_u32(99);
    hello.put_u8(1);
    hello.put_text("whatever that version says");
    Handshake answerer = listener();
    answerer.receive(payload_of(hello.take_frame()));
    EXPECT_EQ(answerer.state(), State::refused);
    EXPECT_THAT(answerer.reason(), AllOf(HasSubstr("version 99"), HasSubstr("version 1")));
    // And it is told so.
    Handshake told = Handshake::as_caller(identity(2), 0);
    told.receive(payload_of(answerer.take_output()));
    EXPECT_THAT(told.reason(), HasSubstr("version 99"));
}

TEST(Handshake, ARankThatIsThereAlreadyIsRefusedAfterItsProof) {
    Handshake caller = Handshake::as_caller(identity(2), 0);
    Handshake answerer = Handshake::as_listener(identity(0), [](int rank) { return "rank " + std::to_string(rank) + " is here"; });
    talk(caller, answerer);
    EXPECT_EQ(caller.state(), State::refused);
    EXPECT_THAT(caller.reason(), HasSubstr("rank 2 is here"));
}

TEST(Handshake, TextOfAStrangerIsHarmlessInALog) {
    MessageWriter refusal;
    refusal.put_u32(0x48544C4C);
    refusal.put_u32(1);
    refusal.put_u8(2);
    refusal.put_text("bad\n\x1b[31mline" + std::string(3000, 'x'));
    Handshake caller = Handshake::as_caller(identity(2), 0);
    caller.receive(payload_of(refusal.take_frame()));
    EXPECT_THAT(caller.reason(), HasSubstr("bad??[31mline"));
    EXPECT_LT(caller.reason().size(), 500U);
}

TEST(Handshake, GarbageIsSurvived) {
    RandomStream random(7, "handshake");
    Handshake model = Handshake::as_caller(identity(2), 0);
    const std::string hello = payload_of(model.take_output());
    for (int round = 0; round < 3000; ++round) {
        std::string bytes = hello;
        for (uint64_t change = 0; change <= random.below(5); ++change)
            bytes[random.below(bytes.size())] = static_cast<char>(random.next_u32());
        bytes.resize(random.below(bytes.size() + 1));
        Handshake answerer = listener();
        answerer.receive(bytes);
        answerer.receive(bytes);
        EXPECT_NE(answerer.state(), State::done);
    }
}

}  // namespace
}  // namespace lockstep::tcp
