// The job's key/value store: how ranks find each other and agree before step 0. One server (in the launcher, or in rank 0), one
// client per rank. Every wait has a deadline; every error names the key, the peer's address and how long it waited.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

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
};

// Serves in a background thread until destroyed. Clients whose hello carries another job id are refused with a reason.
class StoreServer {
public:
    struct Options {
        std::string bind_host;  // empty: all interfaces; "127.0.0.1" for one-node jobs
        int port = 0;           // 0: a free one
        std::string job_id;
    };
    // Throws CommError naming host and port when the port is taken.
    static std::unique_ptr<StoreServer> start(const Options& options);
    virtual ~StoreServer() = default;
    virtual int port() const = 0;
    // Returns when no client is connected any more, or after `timeout_ms`.
    virtual void wait_until_left(int64_t timeout_ms) = 0;
};

struct StoreClientOptions {
    std::string host = "127.0.0.1";
    int port = 0;
    std::string job_id;
    int64_t connect_timeout_ms = 60'000;  // retried until then; the server may start later than its clients
    int64_t request_timeout_ms = 10'000;  // for an answer to anything but `wait`
};
// Safe from several threads; a long `wait` of one does not hold up the others.
std::unique_ptr<Store> connect_store(const StoreClientOptions& options);

// For tests and a world of one: in this process only.
std::unique_ptr<Store> make_memory_store();

}  // namespace lockstep
