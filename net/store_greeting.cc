#include "net/store_greeting.h"

#include <fmt/format.h>

#include "net/message.h"
#include "net/secrets.h"
#include "net/store.h"
#include "net/store_protocol.h"

namespace lockstep {

namespace {

using store_protocol::Status;

constexpr std::string_view kServerSide = "store", kClientSide = "client";
constexpr std::string_view kSecretHelp = "set LOCKSTEP_JOB_SECRET or LOCKSTEP_JOB_SECRET_FILE alike on all nodes";

std::string proof_of(std::string_view secret, std::string_view side, std::string_view transcript) {
    return keyed_hash(secret, std::string(side) + '\0' + std::string(transcript));
}

std::string_view payload_of(std::string_view frame) { return frame.substr(kFrameHeaderBytes); }

}  // namespace

StoreGreeting::StoreGreeting(std::string_view secret, std::function<std::string(std::string_view)> serves)
    : secret_(secret), serves_(std::move(serves)) {}

StoreGreeting::Reply StoreGreeting::hear(std::string_view payload) {
    return step_ == Step::hello ? hear_hello(payload) : hear_proof(payload);
}

StoreGreeting::Reply StoreGreeting::refuse(std::string_view reason) {
    MessageWriter message;
    message.put_u8(static_cast<uint8_t>(Status::refused));
    message.put_text(reason);
    return {message.take_frame(), std::string(reason)};
}

StoreGreeting::Reply StoreGreeting::refuse_foreign_protocol() {
    return refuse("this port speaks the protocol of a training job's store");
}

StoreGreeting::Reply StoreGreeting::hear_hello(std::string_view payload) {
    MessageReader reader(payload);
    const uint32_t magic = reader.get_u32();
    const uint32_t version = reader.get_u32();
    if (!reader.ok() || magic != store_protocol::kMagic) return refuse_foreign_protocol();
    if (version != store_protocol::kVersion) {  // before the rest, which may look different there
        return refuse(fmt::format("it speaks protocol version {}, the client {}; start all ranks from the same build",
                                  store_protocol::kVersion, version));
    }
    job_id_ = reader.get_text();
    const std::string_view nonce = reader.get_text();
    if (!reader.at_end() || nonce.size() != store_protocol::kNonceBytes) return refuse_foreign_protocol();
    const std::string own_nonce = random_bytes(store_protocol::kNonceBytes);
    transcript_ = std::string(payload) + own_nonce;
    MessageWriter message;
    message.put_u8(static_cast<uint8_t>(Status::ok));
    message.put_text(own_nonce);
    message.put_text(proof_of(secret_, kServerSide, transcript_));
    step_ = Step::proof;
    return {message.take_frame(), {}};
}

StoreGreeting::Reply StoreGreeting::hear_proof(std::string_view payload) {
    MessageReader reader(payload);
    const std::string_view proof = reader.get_text();
    if (!reader.at_end()) return refuse_foreign_protocol();
    if (!equal_secrets(proof, proof_of(secret_, kClientSide, transcript_))) {
        return refuse(fmt::format("the client does not know the job's secret; {}", kSecretHelp));
    }
    if (const std::string reason = serves_(job_id_); !reason.empty()) return refuse(reason);
    MessageWriter message;
    message.put_u8(static_cast<uint8_t>(Status::ok));
    step_ = Step::done;
    return {message.take_frame(), {}};
}

namespace {

// The rest of an answer behind its status.
MessageReader open_answer(const std::string& payload, const Socket& socket) {
    MessageReader reader(payload);
    const auto status = static_cast<Status>(reader.get_u8());
    if (reader.ok() && status == Status::ok) return reader;
    const std::string_view reason = reader.get_text();
    if (status == Status::refused && reader.ok()) throw StoreRefused(fmt::format("store at {} refused: {}", socket.peer(), reason));
    throw StoreRefused(fmt::format("{} answers but is not this program's store; check host and port", socket.peer()));
}

}  // namespace

void greet_store(Socket& socket, std::string_view job_id, std::string_view secret, const Deadline& deadline) {
    MessageWriter hello;
    hello.put_u32(store_protocol::kMagic);
    hello.put_u32(store_protocol::kVersion);
    hello.put_text(job_id);
    hello.put_text(random_bytes(store_protocol::kNonceBytes));
    const std::string hello_frame = hello.take_frame();
    send_frame(socket, hello_frame, deadline);
    const std::string challenge = receive_frame(socket, deadline);
    MessageReader reader = open_answer(challenge, socket);
    const std::string_view nonce = reader.get_text();
    const std::string_view its_proof = reader.get_text();
    if (!reader.at_end()) {
        throw StoreRefused(fmt::format("{} answers but is not this program's store; check host and port", socket.peer()));
    }
    const std::string transcript = std::string(payload_of(hello_frame)) + std::string(nonce);
    MessageWriter proof;
    proof.put_text(proof_of(secret, kClientSide, transcript));
    send_frame(socket, proof.take_frame(), deadline);
    const std::string verdict = receive_frame(socket, deadline);
    open_answer(verdict, socket);
    if (!equal_secrets(its_proof, proof_of(secret, kServerSide, transcript))) {
        throw StoreRefused(fmt::format("store at {} does not know the job's secret; {}", socket.peer(), kSecretHelp));
    }
}

}  // namespace lockstep
