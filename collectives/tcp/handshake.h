// How two ranks recognise each other at the start of a connection. Each proves to the other that it knows the job's secret by
// keying a hash of both sides' fresh random numbers with it; the secret itself never travels.
//
//   caller    hello      magic, version, rank, rank it looks for, world size, job, random number
//   listener  challenge  magic, version, random number, proof      or a refusal with the reason
//   caller    answer     proof                                     or a refusal
//   listener  welcome                                              or a refusal
//
// Magic and version come first in every version, so that a rank of another version is told so. The proofs differ by side: none can
// be sent back to who made it. Messages are frames of net/message.h. No socket and no clock: messages in, messages out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::tcp {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kMaxHandshakeBytes = 4096;  // payload of one message

struct Identity {
    int rank = 0;
    int size = 1;
    std::string job;     // names the job and which of its communicators; any text
    std::string secret;  // not empty
};

class Handshake {
public:
    enum class State { under_way, done, refused };
    // The listener's own reason not to take rank `rank`, which has proven itself; empty: welcome.
    using Objection = std::function<std::string(int rank)>;

    static Handshake as_caller(Identity identity, int peer);
    static Handshake as_listener(Identity identity, Objection objection);

    std::string take_output();  // frames to be sent now; may be there also when refused
    void receive(std::string_view message);

    State state() const { return state_; }
    int peer() const { return peer_; }                     // -1 while a listener does not know it
    const std::string& reason() const { return reason_; }  // of a refusal, by either side

    // A refusal that another try may cure: bytes that are no handshake at all, so perhaps another program at this address.
    bool is_stranger() const { return is_stranger_; }

private:
    enum class Step { hello, challenge, answer, welcome };

    Handshake(Identity identity, int peer, Objection objection);
    void send_hello();
    void on_hello(std::string_view message);
    void on_challenge(std::string_view message);
    void on_answer(std::string_view message);
    void on_welcome(std::string_view message);
    void refuse(std::string reason);  // and tell the peer
    void end_as_refused(std::string reason, bool is_stranger = false);
    std::string proof_of(std::string_view side) const;

    Identity identity_;
    int peer_ = -1;
    Objection objection_;
    Step awaited_ = Step::hello;
    State state_ = State::under_way;
    std::string output_;
    std::string reason_;
    bool is_stranger_ = false;
    std::string transcript_;  // what both proofs are about: the hello and the listener's random number
};

}  // namespace lockstep::tcp
