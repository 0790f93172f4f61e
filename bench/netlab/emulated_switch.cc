#include "bench/netlab/emulated_switch.h"

#include <algorithm>
#include <utility>

namespace lockstep::netlab {

EmulatedSwitch::EmulatedSwitch(int node_count, const LinkOptions& options)
    : options_(options), out_(static_cast<size_t>(node_count)), in_(out_.size()), cut_(out_.size(), false) {}

int64_t EmulatedSwitch::wire_ns(size_t bytes) const {
    return options_.rate_bit_per_s > 0 ? static_cast<int64_t>(8e9 * static_cast<double>(bytes) / options_.rate_bit_per_s) : 0;
}

void EmulatedSwitch::accept(int source, int destination, std::span<const std::byte> bytes, int64_t now_ns) {
    Port& port = out_[static_cast<size_t>(source)];
    Packet packet{.source = source, .destination = destination};
    if (is_lost(packet)) return;
    port.free_at_ns = std::max(now_ns, port.free_at_ns) + wire_ns(bytes.size());
    packet.due_ns = port.free_at_ns + options_.delay_ns;
    packet.bytes.assign(bytes.begin(), bytes.end());
    port.queue.push_back(std::move(packet));
}

// The port whose first packet is due, and due before those of the others: packets enter the next stage in the order of their times.
EmulatedSwitch::Port* EmulatedSwitch::first_due(std::vector<Port>& ports, int64_t now_ns) {
    Port* first = nullptr;
    for (Port& port : ports) {
        if (port.queue.empty() || port.queue.front().due_ns > now_ns) continue;
        if (first == nullptr || port.queue.front().due_ns < first->queue.front().due_ns) first = &port;
    }
    return first;
}

void EmulatedSwitch::deliver_due(int64_t now_ns, const Deliver& deliver) {
    while (Port* from = first_due(out_, now_ns)) {
        Packet packet = std::move(from->queue.front());
        from->queue.pop_front();
        // It came in bit by bit while it left the sender, so a free receiver's port holds it up no longer.
        Port& port = in_[static_cast<size_t>(packet.destination)];
        port.free_at_ns = std::max(packet.due_ns, port.free_at_ns + wire_ns(packet.bytes.size()));
        packet.due_ns = port.free_at_ns;
        port.queue.push_back(std::move(packet));
    }
    while (Port* port = first_due(in_, now_ns)) {
        const Packet packet = std::move(port->queue.front());
        port->queue.pop_front();
        if (!is_lost(packet)) deliver(packet.destination, packet.bytes);
    }
}

int64_t EmulatedSwitch::next_event_ns() const {
    int64_t next = kNever;
    for (const std::vector<Port>* ports : {&out_, &in_}) {
        for (const Port& port : *ports) {
            if (!port.queue.empty()) next = std::min(next, port.queue.front().due_ns);
        }
    }
    return next;
}

}  // namespace lockstep::netlab
