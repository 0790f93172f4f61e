// Can the nodes of a job reach each other, how fast, and do their clocks agree?
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Answers every caller that it belongs to this job and what its clock shows, from its own thread, until destroyed. Listens on a
// free port of all interfaces. Throws CommError when it cannot.
class ReachabilityServer {
public:
    static std::unique_ptr<ReachabilityServer> start(std::string_view job_key);
    virtual ~ReachabilityServer() = default;
    virtual int port() const = 0;
};

struct NodePair {
    int from = 0, to = 0;
    std::string endpoint;          // that answered, or the last one that did not
    std::string problem;           // empty: reached
    double round_trip_ms = 0.0;    // the shortest of a few
    double clock_offset_ms = 0.0;  // the other's clock minus ours, read half a round trip ago
};

// Tries the numeric addresses in turn, `timeout_ms` in all. Another program's port, and another job's, is a problem too.
NodePair reach(int from, int to, const std::vector<std::string>& addresses, int port, std::string_view job_key, int64_t timeout_ms);

std::string to_json(const std::vector<NodePair>& pairs);
std::vector<NodePair> pairs_from_json(const std::string& text);  // throws CommError

}  // namespace lockstep
