#include "bench/netlab/lab_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::netlab {

namespace {

constexpr const char* kSubnet = "10.77.0.";
constexpr int kQueueLength = 10'000;  // packets the kernel keeps when this process is late

// 0 or more, or a DeviceError that says what was tried.
int require(int result, const std::string& what) {
    if (result < 0) {
        throw DeviceError(fmt::format("netlab: {}: {}; it needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN) and /dev/net/tun", what,
                                      std::strerror(errno)));
    }
    return result;
}

FileHandle open_or_throw(const char* path) { return FileHandle(require(open(path, O_RDWR | O_CLOEXEC), path)); }
FileHandle own_namespace(const char* path) { return FileHandle(require(open(path, O_RDONLY | O_CLOEXEC), path)); }

class Interface {
public:
    explicit Interface(const char* name) : socket_(require(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "a socket")) {
        std::strncpy(request_.ifr_name, name, IFNAMSIZ - 1);
    }
    void set_mtu(int mtu) {
        request_.ifr_mtu = mtu;
        apply(SIOCSIFMTU, "the packet size");
    }
    void set_queue_length(int packets) {
        request_.ifr_qlen = packets;
        apply(SIOCSIFTXQLEN, "the queue length");
    }
    void set_address(const char* address, const char* mask) {
        apply_address(SIOCSIFADDR, address);
        apply_address(SIOCSIFNETMASK, mask);
    }
    void bring_up() {
        apply(SIOCGIFFLAGS, "reading flags");
        request_.ifr_flags = static_cast<short>(request_.ifr_flags | IFF_UP | IFF_RUNNING);
        apply(SIOCSIFFLAGS, "bringing up");
    }

private:
    void apply(unsigned long order, const char* what) {
        require(ioctl(socket_.get(), order, &request_), fmt::format("{} of {}", what, request_.ifr_name));
    }
    void apply_address(unsigned long order, const char* text) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        inet_pton(AF_INET, text, &address.sin_addr);
        std::memcpy(&request_.ifr_addr, &address, sizeof address);
        apply(order, "the address");
    }

    FileHandle socket_;
    ifreq request_{};
};

// A TUN device belongs to the network namespace in which it is opened.
FileHandle open_tun(const std::string& address) {
    FileHandle tun = open_or_throw("/dev/net/tun");
    ifreq request{};
    std::strncpy(request.ifr_name, kInterface, IFNAMSIZ - 1);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    require(ioctl(tun.get(), TUNSETIFF, &request), "a TUN device");
    require(fcntl(tun.get(), F_SETFL, O_NONBLOCK), "a TUN device without blocking");
    Interface device(kInterface);
    device.set_mtu(kMtu);
    device.set_queue_length(kQueueLength);
    device.set_address(address.c_str(), "255.255.255.0");
    device.bring_up();
    return tun;
}

LabNode make_node(int index) {
    LabNode node{.address = fmt::format("{}{}", kSubnet, index + 1), .hostname = fmt::format("lab-node{}", index)};
    require(unshare(CLONE_NEWNET | CLONE_NEWUTS), "new namespaces");
    node.network = own_namespace("/proc/self/ns/net");
    node.uts = own_namespace("/proc/self/ns/uts");
    require(sethostname(node.hostname.c_str(), node.hostname.size()), "a host name");
    Interface("lo").bring_up();
    node.tun = open_tun(node.address);
    return node;
}

void move_into(const FileHandle& network, const FileHandle& uts) {
    require(setns(network.get(), CLONE_NEWNET), "entering a network namespace");
    require(setns(uts.get(), CLONE_NEWUTS), "entering a namespace of host names");
}

}  // namespace

std::vector<LabNode> make_nodes(int node_count) {
    const FileHandle network = own_namespace("/proc/self/ns/net"), uts = own_namespace("/proc/self/ns/uts");
    std::vector<LabNode> nodes;
    for (int index = 0; index < node_count; ++index) nodes.push_back(make_node(index));
    move_into(network, uts);
    return nodes;
}

void enter(const LabNode& node) { move_into(node.network, node.uts); }

int destination_of(const std::byte* packet, size_t bytes, int node_count) {
    constexpr size_t kHeaderBytes = 20, kAddressAt = 16;
    if (bytes < kHeaderBytes || (std::to_integer<int>(packet[0]) >> 4) != 4) return -1;
    in_addr subnet{};
    inet_pton(AF_INET, fmt::format("{}0", kSubnet).c_str(), &subnet);
    if (std::memcmp(packet + kAddressAt, &subnet, 3) != 0) return -1;
    const int index = std::to_integer<int>(packet[kAddressAt + 3]) - 1;
    return index >= 0 && index < node_count ? index : -1;
}

}  // namespace lockstep::netlab
