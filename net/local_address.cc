#include "net/local_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string address_of_interface(const std::string& interface) {
    std::vector<std::string> names;
    for (const InterfaceAddress& each : interface_addresses()) {
        if (each.interface == interface) return each.address;
        if (std::find(names.begin(), names.end(), each.interface) == names.end()) names.push_back(each.interface);
    }
    throw ConfigError(
        fmt::format("comm.interface `{}` does not exist here or has no address; there are: {}", interface, fmt::join(names, ", ")));
}

}  // namespace

std::vector<std::string> local_addresses(const World& world, const std::string& interface) {
    if (!interface.empty()) return {address_of_interface(interface)};
    const std::string towards_store = local_address_towards(world.store_host, world.store_port);
    if (world.node_count == 1) return {towards_store.empty() ? "127.0.0.1" : towards_store};
    // Rank 0 reaches its own store over loopback, where the other nodes cannot come.
    std::vector<std::string> addresses;
    if (!towards_store.empty() && !is_loopback_name(towards_store)) addresses.push_back(towards_store);
    for (const InterfaceAddress& each : interface_addresses()) {
        // A link-local address means something else on every node.
        if (each.is_loopback || each.address.starts_with("fe80:") || each.address == towards_store) continue;
        addresses.push_back(each.address);
    }
    // A machine without a network that plays several nodes.
    if (addresses.empty() && is_loopback_name(world.store_host)) return {"127.0.0.1"};
    if (addresses.empty()) {
        throw ConfigError(fmt::format("no network interface of this node reaches the other {} nodes; name one with comm.interface",
                                      world.node_count - 1));
    }
    return addresses;
}

bool is_loopback_name(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

bool is_own_address(const std::string& host) {
    try {
        listen_on(host, 0);
        return true;
    } catch (const CommError&) {
        return false;
    }
}

}  // namespace lockstep
