#include "collectives/tcp/address_book.h"

#include <algorithm>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "net/local_address.h"
#include "net/message.h"
#include "net/secrets.h"

namespace lockstep::tcp {

namespace {

constexpr char kFailed = '!';
constexpr char kListens = '+';
constexpr int64_t kGraceMs = 2000;  // the others wait this much longer than rank 0, which knows who is missing
constexpr uint32_t kMaxEndpoints = 64;

std::string without_frame(MessageWriter& message) { return message.take_frame().substr(kFrameHeaderBytes); }

std::string entry_of(const std::vector<std::string>& hosts, int port) {
    MessageWriter entry;
    entry.put_u8(static_cast<uint8_t>(kListens));
    const size_t count = std::min<size_t>(hosts.size(), kMaxEndpoints);
    entry.put_u32(static_cast<uint32_t>(count));
    entry.put_u32(static_cast<uint32_t>(port));
    for (size_t index = 0; index < count; ++index) entry.put_text(hosts[index]);
    return without_frame(entry);
}

std::vector<Endpoint> endpoints_of(std::string_view entry) {
    MessageReader reader(entry);
    std::vector<Endpoint> endpoints;
    reader.get_u8();
    const uint32_t count = reader.get_u32();
    const auto port = static_cast<int>(reader.get_u32());
    for (uint32_t index = 0; index < std::min(count, kMaxEndpoints); ++index) {
        endpoints.push_back({std::string(reader.get_text()), port});
    }
    return reader.at_end() ? endpoints : std::vector<Endpoint>();
}

// Rank 0: everybody's entry in one, or the first failure.
std::string collect(const World& world, Store& store, const std::string& prefix, const TcpOptions& options) {
    MessageWriter book;
    book.put_u8(static_cast<uint8_t>(kListens));
    // The environment's secret is not told, only that there is one.
    book.put_u8(options.secret.empty() ? 0 : 1);
    book.put_text(options.secret.empty() ? random_bytes(kProofBytes) : std::string());
    const Deadline deadline = Deadline::after_ms(options.connect_timeout_ms);
    for (int rank = 0; rank < world.size; ++rank) {
        const std::string entry = store.wait(fmt::format("{}/tcp/{}", prefix, rank), deadline.remaining_ms());
        if (entry.starts_with(kFailed)) return fmt::format("{}rank {}: {}", kFailed, rank, entry.substr(1));
        book.put_text(entry);
    }
    return without_frame(book);
}

AddressBook parse(const World& world, std::string_view text, const TcpOptions& options) {
    if (text.starts_with(kFailed)) throw CommError(fmt::format("the ranks cannot connect: {}", text.substr(1)));
    MessageReader reader(text);
    reader.get_u8();
    const bool from_environment = reader.get_u8() != 0;
    AddressBook book;
    book.secret = reader.get_text();
    if (from_environment != !options.secret.empty()) {
        throw ConfigError(
            fmt::format("the job's secret is set for rank {} and not for rank {}; set LOCKSTEP_JOB_SECRET alike on all "
                        "nodes, or nowhere",
                        from_environment ? 0 : world.rank, from_environment ? world.rank : 0));
    }
    if (from_environment) book.secret = options.secret;
    for (int rank = 0; rank < world.size; ++rank) {
        book.endpoints.push_back(endpoints_of(reader.get_text()));
        if (book.endpoints.back().empty()) throw CommError(fmt::format("the store's address of rank {} is damaged", rank));
    }
    return book;
}

}  // namespace

AddressBook exchange_addresses(const World& world, Store& store, const std::string& prefix, const TcpOptions& options,
                               const std::function<int(const std::string& host)>& listen) {
    const std::string own_key = fmt::format("{}/tcp/{}", prefix, world.rank);
    const std::string book_key = prefix + "/tcp/all";
    try {
        const std::vector<std::string> hosts = local_addresses(world, options.interface);
        const int port = listen(hosts.size() == 1 ? hosts.front() : std::string());
        store.set(own_key, entry_of(hosts, port));
    } catch (const Error& error) {
        const std::string told = kFailed + std::string(error.what());
        store.set(own_key, told);
        if (world.rank == 0) store.set(book_key, fmt::format("{}rank 0: {}", kFailed, error.what()));
        throw;
    }
    if (world.rank == 0) {
        try {
            store.set(book_key, collect(world, store, prefix, options));
        } catch (const Error& error) {
            store.set(book_key, kFailed + std::string(error.what()));
            throw;
        }
    }
    return parse(world, store.wait(book_key, options.connect_timeout_ms + kGraceMs), options);
}

std::vector<int> peers_of(const World& world, const TcpOptions& options) {
    std::vector<int> peers = options.peers;
    if (peers.empty()) {
        for (int rank = 0; rank < world.size; ++rank) {
            if (rank != world.rank) peers.push_back(rank);
        }
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    for (const int peer : peers) {
        if (peer < 0 || peer >= world.size || peer == world.rank) {
            throw ConfigError(
                fmt::format("rank {} cannot connect to rank {} in a world of {} ranks", world.rank, peer, world.size));
        }
    }
    return peers;
}

std::string available_congestion_controls() {
    std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
    std::string line;
    std::getline(file, line);
    return line.empty() ? "unknown" : line;
}

}  // namespace lockstep::tcp
