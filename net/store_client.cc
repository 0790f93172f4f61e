#include <cstring>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "net/message.h"
#include "net/socket.h"
#include "net/store.h"
#include "net/store_protocol.h"

namespace lockstep {

namespace {

using store_protocol::Request;
using store_protocol::Status;

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
        const Reply reply = exchange(message, "add", key, options_.request_timeout_ms);
        MessageReader reader(reply.body);
        const int64_t sum = reader.get_i64();
        if (!reader.ok()) throw_malformed();
        return sum;
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

    Socket open_connection() const {
        const Deadline deadline = Deadline::after_ms(options_.connect_timeout_ms);
        Socket socket = connect_socket(options_.host, options_.port, options_.connect_timeout_ms);
        MessageWriter hello;
        hello.put_u32(store_protocol::kMagic);
        hello.put_u32(store_protocol::kVersion);
        hello.put_text(options_.job_id);
        send_frame(socket, hello.take_frame(), deadline);
        const Reply reply = parse(receive_frame(socket, deadline));
        if (reply.status == Status::refused) throw CommError(fmt::format("store at {} refused: {}", endpoint(), text_of(reply)));
        return socket;
    }

    Socket take_connection() {
        {
            const std::lock_guard lock(mutex_);
            if (!idle_.empty()) {
                Socket socket = std::move(idle_.back());
                idle_.pop_back();
                return socket;
            }
        }
        return open_connection();
    }

    void give_back(Socket socket) {
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(socket));
    }

    // A connection that failed is dropped, never reused: its next answer would belong to the failed request.
    Reply exchange(MessageWriter& message, std::string_view what, std::string_view key, int64_t timeout_ms) {
        const Deadline deadline = Deadline::after_ms(timeout_ms);
        try {
            Socket socket = take_connection();
            send_frame(socket, message.take_frame(), deadline);
            Reply reply = parse(receive_frame(socket, deadline));
            give_back(std::move(socket));
            if (reply.status == Status::refused) throw CommError(text_of(reply));
            return reply;
        } catch (const CommError& error) {
            throw CommError(fmt::format("store request `{} {}` failed: {}", what, key, error.what()));
        }
    }

    const StoreClientOptions options_;
    std::mutex mutex_;
    std::vector<Socket> idle_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Store> connect_store(const StoreClientOptions& options) { return std::make_unique<StoreClient>(options); }

}  // namespace lockstep
