// What a message costs: the parameters of LogGP (Alexandrov, Ionescu, Schauser, Scheiman, 1995), for one level of the machine.
#pragma once

namespace lockstep {

struct LinkModel {
    double latency_us = 0.0;        // L: on the wire, without both sides' work
    double overhead_us = 0.0;       // o: a processor's work for a message, on each side
    double wire_ns_per_byte = 0.0;  // beta: 8 for 1 Gbit/s
    double sum_ns_per_byte = 0.0;   // gamma: adding one byte's worth of received elements

    double message_us() const { return latency_us + 2.0 * overhead_us; }  // alpha
    bool operator==(const LinkModel&) const = default;
};

}  // namespace lockstep
