// Nodes that are namespaces of this machine: each has its own network and host name, and one TUN device whose other end this
// process holds. Nothing has a name in the file system, so the kernel takes everything back with the last process that uses it,
// however that ends.
#pragma once

#include <string>
#include <vector>

#include "net/socket.h"

namespace lockstep::netlab {

constexpr const char* kInterface = "lab0";
constexpr int kMtu = 9000;

struct LabNode {
    std::string address;   // 10.77.0.1, 10.77.0.2, ...
    std::string hostname;  // lab-node0, ...
    FileHandle network;    // the namespaces
    FileHandle uts;
    FileHandle tun;  // packets that the node sends are read here, and packets for it written; non-blocking
};

// Throws DeviceError saying which right or device is missing. Not to be called while other threads run.
std::vector<LabNode> make_nodes(int node_count);

// Moves the calling process (one thread) into the node.
void enter(const LabNode& node);

// The node that a packet from a TUN device is for; -1: none (another protocol or address).
int destination_of(const std::byte* packet, size_t bytes, int node_count);

}  // namespace lockstep::netlab
