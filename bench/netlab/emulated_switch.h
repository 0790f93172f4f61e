// A network as arithmetic: a switch with one full-duplex port per node. A packet leaves its sender's port at the line rate, travels
// for the delay, and enters the receiver's port at the line rate, behind what others send there. Nothing is lost, queues have no
// bound. No clock and no I/O: the caller says what time it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::netlab {

struct LinkOptions {
    int64_t delay_ns = 0;       // one way
    double rate_bit_per_s = 0;  // of each port and direction; 0: as fast as the machine
};

class EmulatedSwitch {
public:
    using Deliver = std::function<void(int destination, std::span<const std::byte> packet)>;
    static constexpr int64_t kNever = INT64_MAX;

    EmulatedSwitch(int node_count, const LinkOptions& options);

    // From node `source` to node `destination`. Times may not go back from call to call. Dropped when either node is cut off.
    void accept(int source, int destination, std::span<const std::byte> packet, int64_t now_ns);
    // Hands out all packets whose time has come, in their order per destination.
    void deliver_due(int64_t now_ns, const Deliver& deliver);
    int64_t next_event_ns() const;  // when deliver_due will next have something to do; kNever when all is quiet

    // A cut node neither sends nor receives; what is on its way to or from it is lost.
    void set_cut(int node, bool is_cut) { cut_[static_cast<size_t>(node)] = is_cut; }

private:
    struct Packet {
        int64_t due_ns = 0;  // at the end of the stage it is in
        int source = 0, destination = 0;
        std::vector<std::byte> bytes;
    };
    struct Port {
        std::deque<Packet> queue;
        int64_t free_at_ns = 0;  // when its last packet has passed
    };

    bool is_lost(const Packet& packet) const {
        return cut_[static_cast<size_t>(packet.source)] || cut_[static_cast<size_t>(packet.destination)];
    }
    int64_t wire_ns(size_t bytes) const;
    Port* first_due(std::vector<Port>& ports, int64_t now_ns);

    LinkOptions options_;
    std::vector<Port> out_, in_;  // by node: from the node into the switch, from the switch into the node
    std::vector<bool> cut_;
};

}  // namespace lockstep::netlab
