#include "collectives/tcp/handshake.h"

#include <utility>

#include <fmt/format.h>

#include "net/message.h"
#include "net/secrets.h"

namespace lockstep::tcp {

namespace {

constexpr uint32_t kMagic = 0x48544C4C;  // "LLTH"
constexpr size_t kNonceBytes = 32;
constexpr size_t kPrefixBytes = 9;  // magic, version, verdict
constexpr size_t kMaxShownBytes = 400;
constexpr uint8_t kAccepted = 1;
constexpr uint8_t kRefused = 2;
constexpr std::string_view kCallerSide = "lockstep tcp caller";
constexpr std::string_view kListenerSide = "lockstep tcp listener";

MessageWriter message_of(uint8_t verdict) {
    MessageWriter message;
    message.put_u32(kMagic);
    message.put_u32(kProtocolVersion);
    message.put_u8(verdict);
    return message;
}

// A stranger's text goes into our log: one line, no control characters, not long.
std::string harmless(std::string_view text) {
    std::string shown(text.substr(0, kMaxShownBytes));
    for (char& each : shown) {
        if (static_cast<unsigned char>(each) < ' ' || each == 127) each = '?';
    }
    return shown;
}

}  // namespace

Handshake::Handshake(Identity identity, int peer, Objection objection)
    : identity_(std::move(identity)), peer_(peer), objection_(std::move(objection)) {}

Handshake Handshake::as_caller(Identity identity, int peer) {
    Handshake handshake(std::move(identity), peer, {});
    handshake.send_hello();
    return handshake;
}

Handshake Handshake::as_listener(Identity identity, Objection objection) { return {std::move(identity), -1, std::move(objection)}; }

std::string Handshake::take_output() { return std::exchange(output_, {}); }

std::string Handshake::proof_of(std::string_view side) const {
    return keyed_hash(identity_.secret, std::string(side) + '\0' + transcript_);
}

void Handshake::end_as_refused(std::string reason, bool is_stranger) {
    state_ = State::refused;
    reason_ = std::move(reason);
    is_stranger_ = is_stranger;
}

void Handshake::refuse(std::string reason) {
    MessageWriter message = message_of(kRefused);
    message.put_text(reason);
    output_ += message.take_frame();
    end_as_refused(std::move(reason));
}

void Handshake::receive(std::string_view message) {
    MessageReader reader(message);
    const uint32_t magic = reader.get_u32();
    const uint32_t version = reader.get_u32();
    const uint8_t verdict = reader.get_u8();
    if (!reader.ok() || magic != kMagic) return end_as_refused("it does not speak this program's protocol", true);
    if (verdict == kRefused) {
        const std::string_view reason = reader.get_text();
        return end_as_refused(fmt::format("it refused: {}", reader.ok() ? harmless(reason) : "without a reason"));
    }
    if (version != kProtocolVersion) {
        return refuse(
            fmt::format("one side speaks version {} of the protocol, the other version {}; start all ranks with the same "
                        "build",
                        version, kProtocolVersion));
    }
    switch (awaited_) {
        case Step::hello:
            return on_hello(message);
        case Step::challenge:
            return on_challenge(message);
        case Step::answer:
            return on_answer(message);
        case Step::welcome:
            return on_welcome(message);
    }
}

void Handshake::send_hello() {
    MessageWriter message = message_of(kAccepted);
    message.put_u32(static_cast<uint32_t>(identity_.rank));
    message.put_u32(static_cast<uint32_t>(peer_));
    message.put_u32(static_cast<uint32_t>(identity_.size));
    message.put_text(identity_.job);
    message.put_text(random_bytes(kNonceBytes));
    const std::string frame = message.take_frame();
    transcript_ = frame.substr(lockstep::kFrameHeaderBytes);
    output_ += frame;
    awaited_ = Step::challenge;
}

void Handshake::on_hello(std::string_view message) {
    MessageReader reader(message.substr(kPrefixBytes));
    const uint32_t rank = reader.get_u32();
    const uint32_t wanted = reader.get_u32();
    const uint32_t size = reader.get_u32();
    const std::string_view job = reader.get_text();
    const std::string_view nonce = reader.get_text();
    if (!reader.at_end() || nonce.size() != kNonceBytes) return end_as_refused("its hello is damaged", true);
    if (job != identity_.job) return refuse(fmt::format("rank {} belongs to another job than rank {}", rank, identity_.rank));
    if (size != static_cast<uint32_t>(identity_.size)) {
        return refuse(
            fmt::format("rank {} is in a world of {} ranks, rank {} in one of {}", rank, size, identity_.rank, identity_.size));
    }
    if (wanted != static_cast<uint32_t>(identity_.rank)) {
        return refuse(fmt::format("rank {} looks for rank {} where rank {} listens", rank, wanted, identity_.rank));
    }
    if (rank >= size || rank == wanted) return refuse(fmt::format("there is no rank {} to come here", rank));
    peer_ = static_cast<int>(rank);
    const std::string own_nonce = random_bytes(kNonceBytes);
    transcript_ = std::string(message) + own_nonce;
    MessageWriter challenge = message_of(kAccepted);
    challenge.put_text(own_nonce);
    challenge.put_text(proof_of(kListenerSide));
    output_ += challenge.take_frame();
    awaited_ = Step::answer;
}

void Handshake::on_challenge(std::string_view message) {
    MessageReader reader(message.substr(kPrefixBytes));
    const std::string_view nonce = reader.get_text();
    const std::string_view proof = reader.get_text();
    if (!reader.at_end() || nonce.size() != kNonceBytes) return end_as_refused("its challenge is damaged", true);
    transcript_ += nonce;
    if (!equal_secrets(proof, proof_of(kListenerSide))) {
        return refuse(fmt::format("rank {} and rank {} do not have the same job secret; set LOCKSTEP_JOB_SECRET alike on all nodes",
                                  identity_.rank, peer_));
    }
    MessageWriter answer = message_of(kAccepted);
    answer.put_text(proof_of(kCallerSide));
    output_ += answer.take_frame();
    awaited_ = Step::welcome;
}

void Handshake::on_answer(std::string_view message) {
    MessageReader reader(message.substr(kPrefixBytes));
    const std::string_view proof = reader.get_text();
    if (!reader.at_end() || !equal_secrets(proof, proof_of(kCallerSide))) {
        return refuse(fmt::format("who claims to be rank {} does not know the job's secret", peer_));
    }
    if (std::string objection = objection_(peer_); !objection.empty()) return refuse(std::move(objection));
    output_ += message_of(kAccepted).take_frame();
    state_ = State::done;
}

void Handshake::on_welcome(std::string_view message) {
    if (message.size() != kPrefixBytes) return end_as_refused("its welcome is damaged", true);
    state_ = State::done;
}

}  // namespace lockstep::tcp
