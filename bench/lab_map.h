// The nodes of scripts/netlab as its --once command sees them. Without a laboratory: one node, this machine.
#pragma once

#include <string>
#include <vector>

namespace lockstep::bench {

struct LabMap {
    struct Node {
        std::string address;
        std::string network_path, uts_path;  // of its namespaces
    };
    std::vector<Node> nodes;  // empty: no laboratory
    std::string link;         // in words

    static LabMap from_environment();  // LOCKSTEP_NETLAB, LOCKSTEP_NETLAB_LINK; ConfigError when they cannot be read
    bool exists() const { return !nodes.empty(); }
    int ranks_per_node(int rank_count) const;
    // Words to put before a command that is to run on node `node`; none without a laboratory.
    std::vector<std::string> enter(int node) const;
    // Writes a script that runs its arguments on the node whose address is the first: what `rsh` would be.
    void write_remote_shell(const std::string& path) const;
};

}  // namespace lockstep::bench
