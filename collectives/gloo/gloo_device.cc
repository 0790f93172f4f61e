#include "collectives/gloo/gloo_device.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "core/error.h"
#include "net/socket.h"

namespace lockstep {

namespace {

struct InterfaceAddress {
    std::string interface;
    std::string address;
    bool is_loopback = false;
    bool is_ipv4 = false;
};

std::vector<InterfaceAddress> interface_addresses() {
    std::vector<InterfaceAddress> found;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return found;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
        const int family = entry->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        char text[NI_MAXHOST];
        if (getnameinfo(entry->ifa_addr, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
        found.push_back({entry->ifa_name, text, (entry->ifa_flags & IFF_LOOPBACK) != 0, family == AF_INET});
    }
    freeifaddrs(list);
    // IPv4 first: link-local IPv6 addresses are rarely what is meant.
    std::stable_partition(found.begin(), found.end(), [](const InterfaceAddress& each) { return each.is_ipv4; });
    return found;
}

// Gloo asks for keys that its peers set; all of a communicator's keys lie under one prefix.
class StoreForGloo final : public ::gloo::rendezvous::Store {
public:
    StoreForGloo(lockstep::Store& store, std::string prefix, int64_t timeout_ms)
        : store_(store), prefix_(std::move(prefix)), timeout_ms_(timeout_ms) {}

    void set(const std::string& key, const std::vector<char>& data) override {
        store_.set(prefix_ + key, {data.data(), data.size()});
    }
    std::vector<char> get(const std::string& key) override {
        const std::string value = store_.wait(prefix_ + key, timeout_ms_);
        return {value.begin(), value.end()};
    }
    void wait(const std::vector<std::string>& keys) override {
        for (const std::string& key : keys) store_.wait(prefix_ + key, timeout_ms_);
    }
    void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

private:
    lockstep::Store& store_;
    const std::string prefix_;
    const int64_t timeout_ms_;
};

std::shared_ptr<gloo::transport::Device> make_device(const std::string& local_address) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = local_address;
    // The device's thread inherits a mask that blocks all signals: a peer that is gone must not raise SIGPIPE.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        auto device = gloo::transport::tcp::CreateDevice(attributes);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return device;
    } catch (const std::exception& error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw CommError(fmt::format("Gloo cannot use the local address {}: {}; choose another with comm.interface", local_address,
                                    error.what()));
    }
}

}  // namespace

std::string choose_local_address(const World& world, const std::string& interface) {
    const std::vector<InterfaceAddress> known = interface_addresses();
    if (!interface.empty()) {
        for (const InterfaceAddress& each : known) {
            if (each.interface == interface) return each.address;
        }
        std::vector<std::string> names;
        for (const InterfaceAddress& each : known) {
            if (std::find(names.begin(), names.end(), each.interface) == names.end()) names.push_back(each.interface);
        }
        throw ConfigError(fmt::format("comm.interface `{}` does not exist here or has no address; there are: {}", interface,
                                      fmt::join(names, ", ")));
    }
    const std::string towards_store = local_address_towards(world.store_host, world.store_port);
    const bool is_loopback = towards_store.starts_with("127.") || towards_store == "::1";
    if (!towards_store.empty() && (world.node_count == 1 || !is_loopback)) return towards_store;
    if (world.node_count == 1) return "127.0.0.1";
    // Rank 0 reaches its own store over loopback, where the other nodes cannot come.
    for (const InterfaceAddress& each : known) {
        if (!each.is_loopback) return each.address;
    }
    throw ConfigError(fmt::format("no network interface of this node reaches the other {} nodes; name one with comm.interface",
                                  world.node_count - 1));
}

std::shared_ptr<gloo::rendezvous::Context> connect_mesh(const World& world, Store& store, const std::string& prefix,
                                                        const CommunicatorOptions& options) {
    const std::string local_address = choose_local_address(world, options.interface);
    StoreForGloo gloo_store(store, prefix + "/gloo/", options.connect_timeout_ms);
    std::shared_ptr<gloo::transport::Device> device = make_device(local_address);
    auto context = std::make_shared<gloo::rendezvous::Context>(world.rank, world.size);
    // Gloo waits five times as long for a connection.
    context->setTimeout(std::chrono::milliseconds(std::max<int64_t>(options.connect_timeout_ms / 5, 1)));
    try {
        context->connectFullMesh(gloo_store, device);
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        throw CommError(
            fmt::format("rank {} at {} cannot connect to all other ranks: {}; check firewalls, or choose the network with "
                        "comm.interface",
                        world.rank, local_address, error.what()));
    }
    return context;
}

}  // namespace lockstep
