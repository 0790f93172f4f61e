#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/clock.h"
#include "core/error.h"
#include "net/key_value_table.h"
#include "net/message.h"
#include "net/socket.h"
#include "net/store.h"
#include "net/store_connection.h"
#include "net/store_greeting.h"
#include "net/store_protocol.h"

namespace lockstep {

namespace {

using store_protocol::Request;
using store_protocol::Status;

constexpr int64_t kHelloTimeoutMs = 10'000;  // a client that connects and stays silent is dropped
constexpr size_t kMaxClients = 16'384;
constexpr size_t kMaxUnknown = 256;  // of them have not introduced themselves; beyond it the oldest goes

struct ListEntry {
    std::string list, value;
};

struct Client {
    Client(StoreConnection its_connection, StoreGreeting its_greeting)
        : connection(std::move(its_connection)), greeting(std::move(its_greeting)) {}

    StoreConnection connection;
    StoreGreeting greeting;
    Deadline hello_deadline = Deadline::after_ms(kHelloTimeoutMs);
    KeyValueTable* table = nullptr;  // of its job, once it is greeted
    bool waiting = false;
    std::string awaited_key;
    Deadline wait_deadline = Deadline::never();
    std::optional<ListEntry> when_gone;
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

std::string answer_number(int64_t number) {
    MessageWriter message;
    message.put_u8(static_cast<uint8_t>(Status::ok));
    message.put_i64(number);
    return message.take_frame();
}

class Server final : public StoreServer {
public:
    Server(FileHandle listener, const Options& options)
        : listener_(std::move(listener)),
          port_(bound_port(listener_.get())),
          secret_(options.secret),
          wake_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (!wake_event_.is_open()) {
            throw DeviceError(fmt::format("no event descriptor for the store: {}; raise the limit of open files (ulimit -n)",
                                          std::strerror(errno)));
        }
        tables_.try_emplace(options.job_id);
        thread_ = std::thread([this] { serve(); });
    }

    ~Server() override {
        stopping_ = true;
        wake();
        thread_.join();
    }

    int port() const override { return port_; }

    void open_table(const std::string& job_id) override {
        const std::lock_guard lock(mutex_);
        tables_.try_emplace(job_id);
    }

    void close_table(const std::string& job_id) override {
        const std::lock_guard lock(mutex_);
        const auto table = tables_.find(job_id);
        if (table == tables_.end()) return;
        for (Client& client : clients_) {
            if (client.table != &table->second) continue;
            client.connection.drop();
            client.when_gone.reset();
            client.waiting = false;
        }
        remove_dead();
        tables_.erase(table);
        wake();
    }

    bool holds(const std::string& job_id, std::string_view key) const override {
        const std::lock_guard lock(mutex_);
        const auto table = tables_.find(job_id);
        return table != tables_.end() && table->second.find(key) != nullptr;
    }

    StoreStrangers strangers() const override {
        const std::lock_guard lock(mutex_);
        return strangers_;
    }

    void wait_until_left(int64_t timeout_ms) override {
        const Deadline deadline = Deadline::after_ms(timeout_ms);
        while (greeted_count_.load() > 0 && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }

private:
    void wake() {
        const uint64_t one = 1;
        check(write(wake_event_.get(), &one, sizeof one) == sizeof one, "eventfd takes one number");
    }

    void serve() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the program's business, not this thread's
        while (!stopping_) {
            const std::vector<std::pair<int, short>> events = wait_for_events();
            const std::lock_guard lock(mutex_);
            for (const auto& [descriptor, what] : events) {
                if (descriptor == listener_.get()) accept_clients();
                const auto client =
                    std::ranges::find(clients_, descriptor, [](const Client& each) { return each.connection.descriptor(); });
                if (client != clients_.end()) serve_client(*client, what);
            }
            drop_silent();
            answer_expired_waits();
            remove_dead();
        }
    }

    // What happened at which descriptor. Without the lock while it waits.
    std::vector<std::pair<int, short>> wait_for_events() {
        std::vector<pollfd> watched{{wake_event_.get(), POLLIN, 0}};
        int64_t next_ms = 60'000;
        {
            const std::lock_guard lock(mutex_);
            if (clients_.size() < kMaxClients) watched.push_back({listener_.get(), POLLIN, 0});
            for (const Client& client : clients_) {
                // A waiting client is watched too: poll reports its hang-up.
                const bool sending = client.connection.is_sending();
                watched.push_back({client.connection.descriptor(), static_cast<short>(sending ? POLLOUT : POLLIN), 0});
                if (client.table == nullptr) next_ms = std::min(next_ms, client.hello_deadline.remaining_ms() + 1);
                if (client.waiting) next_ms = std::min(next_ms, client.wait_deadline.remaining_ms() + 1);
            }
        }
        std::vector<std::pair<int, short>> events;
        if (poll(watched.data(), watched.size(), static_cast<int>(next_ms)) <= 0) return events;
        uint64_t ignored = 0;
        if (watched[0].revents != 0 && read(wake_event_.get(), &ignored, sizeof ignored) < 0) return events;
        for (size_t index = 1; index < watched.size(); ++index) {
            if (watched[index].revents != 0) events.emplace_back(watched[index].fd, watched[index].revents);
        }
        return events;
    }

    void accept_clients() {
        while (clients_.size() < kMaxClients) {
            std::string peer;
            FileHandle handle = accept_connection(listener_.get(), peer);
            if (!handle.is_open()) {
                const bool no_files = errno == EMFILE || errno == ENFILE;
                if (no_files && drop_oldest_unknown("there are more connections than files")) continue;
                // Leave the rest in the queue, and do not turn the loop into a spin.
                if (no_files) std::this_thread::sleep_for(std::chrono::milliseconds(10));
                return;
            }
            clients_.emplace_back(StoreConnection(std::move(handle), std::move(peer)),
                                  StoreGreeting(secret_, [this](std::string_view job_id) { return why_not(job_id); }));
            const auto unknown = std::ranges::count_if(clients_, [](const Client& each) { return each.table == nullptr; });
            if (static_cast<size_t>(unknown) > kMaxUnknown)
                drop_oldest_unknown("there are too many that do not introduce themselves");
        }
    }

    bool drop_oldest_unknown(std::string_view reason) {
        const auto oldest = std::ranges::find_if(clients_, [](const Client& each) { return each.table == nullptr; });
        if (oldest == clients_.end()) return false;
        note_stranger(*oldest, reason);
        clients_.erase(oldest);  // at once: its descriptor is wanted
        return true;
    }

    void note_stranger(const Client& client, std::string_view reason) {
        if (strangers_.count++ == 0) strangers_.first = fmt::format("{}: {}", client.connection.peer(), reason);
    }

    void drop_silent() {
        for (Client& client : clients_) {
            if (client.table != nullptr || client.connection.is_dead() || !client.hello_deadline.expired()) continue;
            note_stranger(client, fmt::format("it did not introduce itself within {} s", kHelloTimeoutMs / 1000));
            client.connection.drop();
        }
    }

    void remove_dead() {
        for (auto client = clients_.begin(); client != clients_.end();) {
            if (!client->connection.is_dead()) {
                ++client;
                continue;
            }
            const std::optional<ListEntry> last = std::move(client->when_gone);
            KeyValueTable* const table = client->table;
            client = clients_.erase(client);
            if (last) answer_waits(*table, table->append(last->list, last->value));
        }
        greeted_count_ =
            static_cast<size_t>(std::ranges::count_if(clients_, [](const Client& each) { return each.table != nullptr; }));
    }

    // Why a job is not served here; empty: it is.
    std::string why_not(std::string_view job_id) const {
        if (tables_.contains(job_id)) return {};
        std::vector<std::string> mine;
        for (const auto& [id, table] : tables_) mine.push_back(fmt::format("`{}`", id));
        return fmt::format("it belongs to job {}, the client to job `{}`; two jobs share this port: give each its own",
                           fmt::join(mine, ", "), job_id);
    }

    void serve_client(Client& client, short events) {
        StoreConnection& connection = client.connection;
        if ((events & (POLLERR | POLLNVAL)) != 0) connection.drop();
        if (connection.is_dead()) return;
        if ((events & POLLOUT) != 0) connection.flush();
        if ((events & (POLLIN | POLLHUP)) != 0) connection.receive();
        while (!client.waiting && handle_one_frame(client)) {
        }
    }

    // True when a whole frame was there and has been dealt with.
    bool handle_one_frame(Client& client) {
        bool oversized = false;
        const size_t limit = client.table != nullptr ? kMaxFrameBytes : store_protocol::kMaxHelloBytes;
        const std::optional<std::string> payload = client.connection.next_frame(limit, oversized);
        if (oversized) turn_away(client, StoreGreeting::refuse_foreign_protocol());
        if (!payload) return false;
        if (client.table != nullptr) {
            handle_request(client, *payload);
        } else {
            greet(client, *payload);
        }
        return true;
    }

    void turn_away(Client& client, StoreGreeting::Reply reply) {
        if (client.table == nullptr) note_stranger(client, reply.refusal);
        client.connection.send_and_close(std::move(reply.frame));
    }

    void greet(Client& client, std::string_view payload) {
        StoreGreeting::Reply reply = client.greeting.hear(payload);
        if (!reply.refusal.empty()) return turn_away(client, std::move(reply));
        if (client.greeting.is_done()) client.table = &tables_.find(client.greeting.job_id())->second;
        client.connection.send(std::move(reply.frame));
    }

    void handle_request(Client& client, std::string_view payload) {
        KeyValueTable& table = *client.table;
        StoreConnection& connection = client.connection;
        MessageReader reader(payload);
        const auto request = static_cast<Request>(reader.get_u8());
        const std::string_view key = reader.get_text();
        switch (request) {
            case Request::set: {
                const std::string_view value = reader.get_text();
                if (!reader.at_end()) break;
                table.set(key, value);
                connection.send(answer(Status::ok));
                return answer_waits(table, key);
            }
            case Request::get: {
                if (!reader.at_end()) break;
                return send_value(client, key);
            }
            case Request::wait: {
                const int64_t timeout_ms = reader.get_i64();
                if (!reader.at_end()) break;
                if (table.find(key) != nullptr) return send_value(client, key);
                client.waiting = true;
                client.awaited_key = key;
                client.wait_deadline = Deadline::after_ms(std::clamp<int64_t>(timeout_ms, 0, std::numeric_limits<int32_t>::max()));
                return;
            }
            case Request::add: {
                const int64_t delta = reader.get_i64();
                if (!reader.at_end()) break;
                const std::optional<int64_t> sum = table.add(key, delta);
                connection.send(sum ? answer_number(*sum)
                                    : answer_text(Status::refused, "the present value is no number it can be added to"));
                return answer_waits(table, key);
            }
            case Request::compare_set: {
                const bool has_expected = reader.get_u8() != 0;
                const std::string_view expected = reader.get_text();
                const std::string_view desired = reader.get_text();
                if (!reader.at_end()) break;
                const auto expectation = has_expected ? std::optional<std::string>(expected) : std::nullopt;
                connection.send(answer_text(Status::ok, table.compare_set(key, expectation, desired)));
                return answer_waits(table, key);
            }
            case Request::remove: {
                if (!reader.at_end()) break;
                return connection.send(answer(table.remove(key) ? Status::ok : Status::absent));
            }
            case Request::append: {
                const std::string_view value = reader.get_text();
                if (!reader.at_end()) break;
                const std::string entry = table.append(key, value);
                connection.send(answer_number(std::stoll(entry.substr(key.size() + 1))));
                return answer_waits(table, entry);
            }
            case Request::append_when_gone: {
                const std::string_view value = reader.get_text();
                if (!reader.at_end()) break;
                client.when_gone = ListEntry{std::string(key), std::string(value)};
                return connection.send(answer(Status::ok));
            }
        }
        turn_away(client, StoreGreeting::refuse("the request is malformed"));
    }

    static void send_value(Client& client, std::string_view key) {
        const std::string* value = client.table->find(key);
        client.connection.send(value == nullptr ? answer(Status::absent) : answer_text(Status::ok, *value));
    }

    void answer_waits(const KeyValueTable& table, std::string_view key) {
        if (table.find(key) == nullptr) return;
        for (Client& client : clients_) {
            if (!client.waiting || client.connection.is_dead() || client.table != &table || client.awaited_key != key) continue;
            client.waiting = false;
            send_value(client, key);
        }
    }

    void answer_expired_waits() {
        for (Client& client : clients_) {
            if (!client.waiting || client.connection.is_dead() || !client.wait_deadline.expired()) continue;
            client.waiting = false;
            client.connection.send(answer(Status::absent));
        }
    }

    FileHandle listener_;
    const int port_;
    const std::string secret_;
    FileHandle wake_event_;
    std::atomic<bool> stopping_ = false;
    std::atomic<size_t> greeted_count_ = 0;
    mutable std::mutex mutex_;  // guards all below; held while events are dealt with, not while they are waited for
    std::list<Client> clients_;
    std::map<std::string, KeyValueTable, std::less<>> tables_;  // by job id
    StoreStrangers strangers_;
    std::thread thread_;
};

}  // namespace

std::unique_ptr<StoreServer> StoreServer::start(const Options& options) {
    return std::make_unique<Server>(listen_on(options.bind_host, options.port), options);
}

}  // namespace lockstep
