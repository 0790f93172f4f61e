#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <list>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "net/key_value_table.h"
#include "net/message.h"
#include "net/socket.h"
#include "net/store.h"
#include "net/store_protocol.h"

namespace lockstep {

namespace {

using store_protocol::Request;
using store_protocol::Status;

constexpr int64_t kHelloTimeoutMs = 10'000;  // a client that connects and stays silent is dropped
constexpr size_t kMaxClients = 16'384;
constexpr size_t kReadBytes = size_t{64} << 10;

// One connection. While an answer is being sent or a wait is pending nothing more is read, so a client holds at most one request.
struct Client {
    FileHandle handle;
    Deadline hello_deadline = Deadline::after_ms(kHelloTimeoutMs);
    bool greeted = false;
    bool closing = false;  // drop once `output` is sent
    bool dead = false;
    std::string input;
    std::string output;
    size_t output_sent = 0;
    bool waiting = false;
    std::string awaited_key;
    Deadline wait_deadline = Deadline::never();
};

std::string answer(Status status) {
    MessageWriter message;
    message.put_u8(static_cast<uint8_t>(status));
    return message.take_frame();
}

std::string answer_text(Status status, std::string_view text) {
    MessageWriter message;
    message.put_u8(static_cast<uint8_t>(status));
    message.put_text(text);
    return message.take_frame();
}

// All state but the count of clients belongs to the serving thread.
class Server final : public StoreServer {
public:
    Server(FileHandle listener, std::string job_id)
        : listener_(std::move(listener)),
          port_(bound_port(listener_.get())),
          job_id_(std::move(job_id)),
          stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (!stop_event_.is_open()) {
            throw DeviceError(fmt::format("no event descriptor for the store: {}; raise the limit of open files (ulimit -n)",
                                          std::strerror(errno)));
        }
        thread_ = std::thread([this] { serve(); });
    }

    ~Server() override {
        const uint64_t one = 1;
        check(write(stop_event_.get(), &one, sizeof one) == sizeof one, "eventfd takes one number");
        thread_.join();
    }

    int port() const override { return port_; }

    void wait_until_left(int64_t timeout_ms) override {
        const Deadline deadline = Deadline::after_ms(timeout_ms);
        while (client_count_.load() > 0 && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }

private:
    void serve() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the program's business, not this thread's
        while (wait_for_events()) {
            if ((poll_set_[1].revents & POLLIN) != 0) accept_clients();
            size_t index = 2;
            for (auto client = clients_.begin(); client != clients_.end() && index < poll_set_.size(); ++client, ++index) {
                serve_client(*client, poll_set_[index].revents);
            }
            answer_expired_waits();
            clients_.remove_if([](const Client& client) { return client.dead; });
            client_count_ = clients_.size();
        }
    }

    // False when the server is being destroyed.
    bool wait_for_events() {
        poll_set_.clear();
        poll_set_.push_back({stop_event_.get(), POLLIN, 0});
        poll_set_.push_back({clients_.size() < kMaxClients ? listener_.get() : -1, POLLIN, 0});
        int64_t next_ms = 60'000;
        for (const Client& client : clients_) {
            const bool sending = client.output_sent < client.output.size();
            // A waiting client is watched too: poll reports its hang-up.
            poll_set_.push_back({client.handle.get(), static_cast<short>(sending ? POLLOUT : POLLIN), 0});
            if (!client.greeted) next_ms = std::min(next_ms, client.hello_deadline.remaining_ms() + 1);
            if (client.waiting) next_ms = std::min(next_ms, client.wait_deadline.remaining_ms() + 1);
        }
        if (poll(poll_set_.data(), poll_set_.size(), static_cast<int>(next_ms)) < 0) {
            for (pollfd& entry : poll_set_) entry.revents = 0;
        }
        return (poll_set_[0].revents & POLLIN) == 0;
    }

    void accept_clients() {
        while (clients_.size() < kMaxClients) {
            FileHandle handle(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!handle.is_open()) {
                // Out of file descriptors: leave the rest in the queue, and do not turn the loop into a spin.
                if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(10));
                return;
            }
            const int on = 1;
            setsockopt(handle.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
            clients_.emplace_back().handle = std::move(handle);
        }
    }

    void serve_client(Client& client, short events) {
        if (!client.greeted && client.hello_deadline.expired()) client.dead = true;
        if ((events & (POLLERR | POLLNVAL)) != 0) client.dead = true;
        if (client.dead) return;
        if ((events & POLLOUT) != 0) flush(client);
        if ((events & (POLLIN | POLLHUP)) != 0) receive(client);
        while (!client.dead && !client.closing && !client.waiting && client.output.empty() && handle_one_frame(client)) {
        }
    }

    void receive(Client& client) {
        if (client.input.size() > kMaxFrameBytes + kReadBytes) {  // sends on while its request is being worked on
            client.dead = true;
            return;
        }
        const size_t before = client.input.size();
        client.input.resize(before + kReadBytes);
        const ssize_t received = recv(client.handle.get(), client.input.data() + before, kReadBytes, MSG_DONTWAIT);
        client.input.resize(before + static_cast<size_t>(std::max<ssize_t>(received, 0)));
        if (received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) client.dead = true;
    }

    void send(Client& client, std::string frame) {
        client.output = std::move(frame);
        client.output_sent = 0;
        flush(client);
    }

    void flush(Client& client) {
        while (client.output_sent < client.output.size()) {
            const ssize_t sent = ::send(client.handle.get(), client.output.data() + client.output_sent,
                                        client.output.size() - client.output_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0) {
                client.dead = errno != EAGAIN;
                return;
            }
            client.output_sent += static_cast<size_t>(sent);
        }
        client.output.clear();
        client.output_sent = 0;
        client.dead = client.closing;
    }

    // True when a whole frame was there and has been dealt with.
    bool handle_one_frame(Client& client) {
        if (client.input.size() < kFrameHeaderBytes) return false;
        const size_t limit = client.greeted ? kMaxFrameBytes : store_protocol::kMaxHelloBytes;
        const std::optional<size_t> payload_bytes = frame_payload_bytes(client.input, limit);
        if (!payload_bytes) {
            refuse(client, "this port speaks the protocol of a training job's store");
            return false;
        }
        if (client.input.size() < kFrameHeaderBytes + *payload_bytes) return false;
        const std::string payload = client.input.substr(kFrameHeaderBytes, *payload_bytes);
        client.input.erase(0, kFrameHeaderBytes + *payload_bytes);
        if (client.greeted) {
            handle_request(client, payload);
        } else {
            handle_hello(client, payload);
        }
        return true;
    }

    void refuse(Client& client, std::string_view reason) {
        client.closing = true;
        send(client, answer_text(Status::refused, reason));
    }

    void handle_hello(Client& client, std::string_view payload) {
        MessageReader reader(payload);
        const uint32_t magic = reader.get_u32();
        const uint32_t version = reader.get_u32();
        const std::string_view job_id = reader.get_text();
        if (!reader.at_end() || magic != store_protocol::kMagic) {
            refuse(client, "this port speaks the protocol of a training job's store");
        } else if (version != store_protocol::kVersion) {
            refuse(client, fmt::format("it speaks protocol version {}, the client {}; start all ranks from the same build",
                                       store_protocol::kVersion, version));
        } else if (job_id != job_id_) {
            refuse(client,
                   fmt::format("it belongs to job `{}`, the client to job `{}`; two jobs share this port: give each its own",
                               job_id_, job_id));
        } else {
            client.greeted = true;
            send(client, answer(Status::ok));
        }
    }

    void handle_request(Client& client, std::string_view payload) {
        MessageReader reader(payload);
        const auto request = static_cast<Request>(reader.get_u8());
        const std::string_view key = reader.get_text();
        switch (request) {
            case Request::set: {
                const std::string_view value = reader.get_text();
                if (!reader.at_end()) break;
                table_.set(key, value);
                send(client, answer(Status::ok));
                return answer_waits(key);
            }
            case Request::get: {
                if (!reader.at_end()) break;
                return send_value(client, key);
            }
            case Request::wait: {
                const int64_t timeout_ms = reader.get_i64();
                if (!reader.at_end()) break;
                if (table_.find(key) != nullptr) return send_value(client, key);
                client.waiting = true;
                client.awaited_key = key;
                client.wait_deadline = Deadline::after_ms(std::clamp<int64_t>(timeout_ms, 0, std::numeric_limits<int32_t>::max()));
                return;
            }
            case Request::add: {
                const int64_t delta = reader.get_i64();
                if (!reader.at_end()) break;
                return handle_add(client, key, delta);
            }
            case Request::compare_set: {
                const bool has_expected = reader.get_u8() != 0;
                const std::string_view expected = reader.get_text();
                const std::string_view desired = reader.get_text();
                if (!reader.at_end()) break;
                const auto expectation = has_expected ? std::optional<std::string>(expected) : std::nullopt;
                send(client, answer_text(Status::ok, table_.compare_set(key, expectation, desired)));
                return answer_waits(key);
            }
            case Request::remove: {
                if (!reader.at_end()) break;
                return send(client, answer(table_.remove(key) ? Status::ok : Status::absent));
            }
        }
        refuse(client, "the request is malformed");
    }

    void handle_add(Client& client, std::string_view key, int64_t delta) {
        const std::optional<int64_t> sum = table_.add(key, delta);
        if (!sum) return send(client, answer_text(Status::refused, "the present value is no number it can be added to"));
        MessageWriter message;
        message.put_u8(static_cast<uint8_t>(Status::ok));
        message.put_i64(*sum);
        send(client, message.take_frame());
        answer_waits(key);
    }

    void send_value(Client& client, std::string_view key) {
        const std::string* value = table_.find(key);
        send(client, value == nullptr ? answer(Status::absent) : answer_text(Status::ok, *value));
    }

    void answer_waits(std::string_view key) {
        if (table_.find(key) == nullptr) return;
        for (Client& client : clients_) {
            if (!client.waiting || client.dead || client.awaited_key != key) continue;
            client.waiting = false;
            send_value(client, key);
        }
    }

    void answer_expired_waits() {
        for (Client& client : clients_) {
            if (!client.waiting || client.dead || !client.wait_deadline.expired()) continue;
            client.waiting = false;
            send(client, answer(Status::absent));
        }
    }

    FileHandle listener_;
    const int port_;
    const std::string job_id_;
    FileHandle stop_event_;
    std::vector<pollfd> poll_set_;  // stop, listener, then clients_ in order
    std::list<Client> clients_;
    KeyValueTable table_;
    std::atomic<size_t> client_count_ = 0;  // for other threads
    std::thread thread_;
};

}  // namespace

std::unique_ptr<StoreServer> StoreServer::start(const Options& options) {
    return std::make_unique<Server>(listen_on(options.bind_host, options.port), options.job_id);
}

}  // namespace lockstep
