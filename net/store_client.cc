#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "net/message.h"
#include "net/socket.h"
#include "net/store.h"
#include "net/store_greeting.h"
#include "net/store_protocol.h"

namespace lockstep {

namespace {

using store_protocol::Request;
using store_protocol::Status;

constexpr int64_t kPauseMs = 20;        // between two greetings
constexpr int64_t kWaitGraceMs = 2000;  // the server answers a wait at its time limit; the answer may travel this long

// Several threads may share it: each call takes an idle connection or opens one more, so a long wait blocks nobody else.
class StoreClient final : public Store {
public:
    explicit StoreClient(const StoreClientOptions& options) : options_(options) { give_back(open_connection()); }

    void set(std::string_view key, std::string_view value) override {
        MessageWriter message = begin(Request::set, key);
        message.put_text(value);
        exchange(message, "set", key, options_.request_timeout_ms);
    }

    std::optional<std::string> get(std::string_view key) override {
        MessageWriter message = begin(Request::get, key);
        const Reply reply = exchange(message, "get", key, options_.request_timeout_ms);
        if (reply.status == Status::absent) return std::nullopt;
        return text_of(reply);
    }

    std::string wait(std::string_view key, int64_t timeout_ms) override {
        MessageWriter message = begin(Request::wait, key);
        message.put_i64(timeout_ms);
        const Reply reply = exchange(message, "wait", key, timeout_ms + kWaitGraceMs);
        if (reply.status == Status::absent) {
            throw CommError(fmt::format("key `{}` did not appear in the store at {} within {:.1f} s; check the other ranks' output",
                                        key, endpoint(), 1e-3 * static_cast<double>(timeout_ms)));
        }
        return text_of(reply);
    }

    int64_t add(std::string_view key, int64_t delta) override {
        MessageWriter message = begin(Request::add, key);
        message.put_i64(delta);
        return number_of(exchange(message, "add", key, options_.request_timeout_ms));
    }

    std::string compare_set(std::string_view key, const std::optional<std::string>& expected, std::string_view desired) override {
        MessageWriter message = begin(Request::compare_set, key);
        message.put_u8(expected ? 1 : 0);
        message.put_text(expected.value_or(std::string()));
        message.put_text(desired);
        return text_of(exchange(message, "compare_set", key, options_.request_timeout_ms));
    }

    bool remove(std::string_view key) override {
        MessageWriter message = begin(Request::remove, key);
        return exchange(message, "remove", key, options_.request_timeout_ms).status == Status::ok;
    }

    int64_t append(std::string_view list, std::string_view value) override {
        MessageWriter message = begin(Request::append, list);
        message.put_text(value);
        return number_of(exchange(message, "append", list, options_.request_timeout_ms));
    }

    void append_when_gone(std::string_view list, std::string_view value) override {
        MessageWriter message = begin(Request::append_when_gone, list);
        message.put_text(value);
        std::optional<Socket> former = std::exchange(last_will_, std::nullopt);
        Socket socket = former ? std::move(*former) : open_connection();
        exchange_over(socket, message, "append_when_gone", list, options_.request_timeout_ms);
        last_will_ = std::move(socket);  // a connection of its own, which ends with this client and carries nothing else
    }

private:
    struct Reply {
        Status status = Status::ok;
        std::string body;
    };

    static MessageWriter begin(Request request, std::string_view key) {
        MessageWriter message;
        message.put_u8(static_cast<uint8_t>(request));
        message.put_text(key);
        return message;
    }

    std::string endpoint() const { return endpoint_text(options_.host, options_.port); }

    [[noreturn]] void throw_malformed() const {
        throw CommError(fmt::format("{} answers but is not this program's store; check host and port", endpoint()));
    }

    Reply parse(std::string_view payload) const {
        if (payload.empty()) throw_malformed();
        const auto status = static_cast<Status>(static_cast<uint8_t>(payload[0]));
        if (status != Status::ok && status != Status::absent && status != Status::refused) throw_malformed();
        return {status, std::string(payload.substr(1))};
    }

    std::string text_of(const Reply& reply) const {
        MessageReader reader(reply.body);
        const std::string_view text = reader.get_text();
        if (!reader.ok()) throw_malformed();
        return std::string(text);
    }

    int64_t number_of(const Reply& reply) const {
        MessageReader reader(reply.body);
        const int64_t number = reader.get_i64();
        if (!reader.ok()) throw_malformed();
        return number;
    }

    // Tries again when the connection ends before the greeting is over: a store under a flood of strangers drops the oldest.
    Socket open_connection() const {
        const Deadline deadline = Deadline::after_ms(options_.connect_timeout_ms);
        while (true) {
            Socket socket = connect_socket(options_.host, options_.port, deadline.remaining_ms());
            try {
                greet_store(socket, options_.job_id, options_.secret, deadline);
                return socket;
            } catch (const StoreRefused&) {
                throw;
            } catch (const CommError&) {
                if (deadline.remaining_ms() < kPauseMs) throw;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
        }
    }

    Socket take_connection(std::string_view what, std::string_view key) {
        {
            const std::lock_guard lock(mutex_);
            if (!idle_.empty()) {
                Socket socket = std::move(idle_.back());
                idle_.pop_back();
                return socket;
            }
        }
        try {
            return open_connection();
        } catch (const CommError& error) {
            throw CommError(fmt::format("store request `{} {}` failed: {}", what, key, error.what()));
        }
    }

    void give_back(Socket socket) {
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(socket));
    }

    Reply exchange(MessageWriter& message, std::string_view what, std::string_view key, int64_t timeout_ms) {
        Socket socket = take_connection(what, key);
        Reply reply = exchange_over(socket, message, what, key, timeout_ms);
        give_back(std::move(socket));
        return reply;
    }

    // A connection that failed is dropped, never reused: its next answer would belong to the failed request.
    Reply exchange_over(Socket& socket, MessageWriter& message, std::string_view what, std::string_view key,
                        int64_t timeout_ms) const {
        const Deadline deadline = Deadline::after_ms(timeout_ms);
        try {
            send_frame(socket, message.take_frame(), deadline);
            Reply reply = parse(receive_frame(socket, deadline));
            if (reply.status == Status::refused) throw CommError(text_of(reply));
            return reply;
        } catch (const CommError& error) {
            throw CommError(fmt::format("store request `{} {}` failed: {}", what, key, error.what()));
        }
    }

    const StoreClientOptions options_;
    std::mutex mutex_;
    std::vector<Socket> idle_;         // guarded by mutex_
    std::optional<Socket> last_will_;  // one thread at a time
};

}  // namespace

std::unique_ptr<Store> connect_store(const StoreClientOptions& options) { return std::make_unique<StoreClient>(options); }

}  // namespace lockstep
