#include "launch/reachability.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/error.h"
#include "core/json_text.h"
#include "net/secrets.h"
#include "net/socket.h"

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodePair, from, to, endpoint, problem, round_trip_ms, clock_offset_ms)

namespace {

constexpr int kQuestions = 5;
constexpr int kPollMs = 50;
constexpr int64_t kCallerMs = 1000;  // for a caller's questions: one that says nothing holds nobody up for long

// A question is a nonce; the answer proves the job's key over it and shows the clock. Both sides run the same program.
struct Question {
    std::array<char, 16> nonce;
};
struct Answer {
    std::array<char, kProofBytes> proof;
    double clock_s;
};

std::string proof_of(std::string_view job_key, const Question& question) {
    return keyed_hash(job_key, std::string_view(question.nonce.data(), question.nonce.size()));
}

template <typename Message>
std::span<std::byte> bytes_of(Message& message) {
    return std::as_writable_bytes(std::span(&message, 1));
}

class Server final : public ReachabilityServer {
public:
    explicit Server(std::string_view job_key)
        : job_key_(job_key), listener_(listen_on("", 0)), port_(bound_port(listener_.get())), thread_([this] { serve(); }) {}
    ~Server() override {
        stop_ = true;
        thread_.join();
    }
    int port() const override { return port_; }

private:
    void serve() {
        while (!stop_) {
            pollfd waiting{listener_.get(), POLLIN, 0};
            if (poll(&waiting, 1, kPollMs) <= 0) continue;
            std::string peer;
            FileHandle handle = accept_connection(listener_.get(), peer);
            if (!handle.is_open()) continue;
            try {
                answer(Socket(std::move(handle), peer));
            } catch (const CommError&) {
                // A stranger, or one that has heard enough.
            }
        }
    }

    void answer(Socket socket) const {
        const Deadline deadline = Deadline::after_ms(kCallerMs);
        for (int count = 0; count < kQuestions; ++count) {
            Question question{};
            socket.receive_exact(bytes_of(question), deadline);
            Answer answer{.proof = {}, .clock_s = wall_clock_s()};
            std::ranges::copy(proof_of(job_key_, question), answer.proof.begin());
            socket.send_all(bytes_of(answer), deadline);
        }
    }

    std::string job_key_;
    FileHandle listener_;
    int port_;
    std::atomic<bool> stop_{false};
    std::thread thread_;  // last: uses the others
};

// Keeps the figures of the shortest round trip, whose halves are most nearly equal.
void ask(Socket& socket, std::string_view job_key, const Deadline& deadline, NodePair& pair) {
    pair.round_trip_ms = HUGE_VAL;
    for (int count = 0; count < kQuestions; ++count) {
        Question question{};
        std::ranges::copy(random_bytes(question.nonce.size()), question.nonce.begin());
        Answer answer{};
        const double sent_s = wall_clock_s();
        const int64_t sent_ns = now_ns();
        socket.send_all(bytes_of(question), deadline);
        socket.receive_exact(bytes_of(answer), deadline);
        const double took_ms = 1e-6 * static_cast<double>(now_ns() - sent_ns);
        if (!equal_secrets(proof_of(job_key, question), std::string_view(answer.proof.data(), answer.proof.size())))
            throw CommError("another program or job answers there");
        if (took_ms >= pair.round_trip_ms) continue;
        pair.round_trip_ms = took_ms;
        pair.clock_offset_ms = 1e3 * (answer.clock_s - sent_s) - took_ms / 2;
    }
}

}  // namespace

std::unique_ptr<ReachabilityServer> ReachabilityServer::start(std::string_view job_key) {
    return std::make_unique<Server>(job_key);
}

NodePair reach(int from, int to, const std::vector<std::string>& addresses, int port, std::string_view job_key,
               int64_t timeout_ms) {
    NodePair pair{.from = from, .to = to};
    for (const std::string& address : addresses) {
        const Deadline deadline = Deadline::after_ms(timeout_ms / static_cast<int64_t>(addresses.size()));
        pair.endpoint = endpoint_text(address, port);
        pair.problem.clear();
        try {
            FileHandle handle = try_connect(address, port, deadline, pair.problem);
            if (!handle.is_open()) continue;
            Socket socket(std::move(handle), pair.endpoint);
            ask(socket, job_key, deadline, pair);
            return pair;
        } catch (const CommError& error) {
            pair.problem = error.what();
        }
    }
    pair.round_trip_ms = 0.0;
    return pair;
}

std::string to_json(const std::vector<NodePair>& pairs) { return json_text(nlohmann::json(pairs)); }

std::vector<NodePair> pairs_from_json(const std::string& text) {
    try {
        return nlohmann::json::parse(text).get<std::vector<NodePair>>();
    } catch (const nlohmann::json::exception& error) {
        throw CommError(
            fmt::format("the preflight's figures of a node cannot be read ({}); do all ranks run the same program?", error.what()));
    }
}

}  // namespace lockstep
