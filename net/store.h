// The job's key/value store: how ranks find each other and agree before step 0. One server (in the launcher, or in rank 0), one
// client per rank. Every wait has a deadline; every error names the key, the peer's address and how long it waited.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace lockstep {

// The store does not want this client: another job, another secret, another program. Trying again does not help.
class StoreRefused final : public CommError {
public:
    using CommError::CommError;
};

class Store {
public:
    virtual ~Store() = default;
    virtual void set(std::string_view key, std::string_view value) = 0;
    virtual std::optional<std::string> get(std::string_view key) = 0;        // does not wait
    virtual std::string wait(std::string_view key, int64_t timeout_ms) = 0;  // CommError when it does not appear
    virtual int64_t add(std::string_view key, int64_t delta) = 0;            // returns the new value; starts at 0
    // Sets `desired` when the present value equals `expected` (nullopt: absent). Returns the value now there.
    virtual std::string compare_set(std::string_view key, const std::optional<std::string>& expected, std::string_view desired) = 0;
    virtual bool remove(std::string_view key) = 0;
    // A list is a sequence of keys LIST/0, LIST/1, ... without gaps, so that `wait` for the next number follows it. Returns the
    // number that `value` got.
    virtual int64_t append(std::string_view list, std::string_view value) = 0;
    // The store itself appends `value` once this client's process, or its connection, is gone. One for each client; a second call
    // replaces the first.
    virtual void append_when_gone(std::string_view list, std::string_view value) = 0;
};
std::string list_key(std::string_view list, int64_t number);  // "LIST/NUMBER"

// Who was turned away at the door: wrong or no secret, another job, garbage, silence.
struct StoreStrangers {
    int64_t count = 0;
    std::string first;  // where from and why
};

// Serves in a background thread until destroyed. Each job id has a table of its own; clients whose hello carries another job id, or
// that do not prove that they know the secret, are refused with a reason. Of clients that have not introduced themselves only a
// limited number is kept, the newest, so that a flood of connections takes neither memory nor files from the job.
class StoreServer {
public:
    struct Options {
        std::string bind_host;  // empty: all interfaces; "127.0.0.1" for one-node jobs
        int port = 0;           // 0: a free one
        std::string job_id;     // the first table
        std::string secret;     // the job's; empty: none, which is a secret that everybody knows
    };
    // Throws CommError naming host and port when the port is taken.
    static std::unique_ptr<StoreServer> start(const Options& options);
    virtual ~StoreServer() = default;
    virtual int port() const = 0;
    // Adds a table, or drops one with all clients of it. From any thread.
    virtual void open_table(const std::string& job_id) = 0;
    virtual void close_table(const std::string& job_id) = 0;
    virtual bool holds(const std::string& job_id, std::string_view key) const = 0;
    virtual StoreStrangers strangers() const = 0;
    // Returns when no client is connected any more, or after `timeout_ms`.
    virtual void wait_until_left(int64_t timeout_ms) = 0;
};

struct StoreClientOptions {
    std::string host = "127.0.0.1";
    int port = 0;
    std::string job_id;
    std::string secret;
    int64_t connect_timeout_ms = 60'000;  // retried until then; the server may start later than its clients
    int64_t request_timeout_ms = 10'000;  // for an answer to anything but `wait`
};
// Safe from several threads; a long `wait` of one does not hold up the others.
std::unique_ptr<Store> connect_store(const StoreClientOptions& options);

// For tests and a world of one: in this process only.
std::unique_ptr<Store> make_memory_store();

}  // namespace lockstep
