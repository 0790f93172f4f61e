#include "bench/lab_map.h"

#include <sys/stat.h>

#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"

namespace lockstep::bench {

namespace {

// UCX looks for network devices in /sys, which shows those of the namespace in which it was mounted.
constexpr const char* kWithOwnSys = "mount -t sysfs sysfs /sys && exec \"$@\"";

}  // namespace

LabMap LabMap::from_environment() {
    LabMap map;
    const char* text = std::getenv("LOCKSTEP_NETLAB");
    if (text == nullptr) return map;
    std::istringstream nodes(text);
    for (std::string node_text; std::getline(nodes, node_text, ';');) {
        Node node;
        std::istringstream words(node_text);
        if (!(words >> node.address >> node.network_path >> node.uts_path)) {
            throw ConfigError(
                fmt::format("LOCKSTEP_NETLAB={}: not what scripts/netlab --once sets; start the benchmark under it", text));
        }
        map.nodes.push_back(node);
    }
    const char* link = std::getenv("LOCKSTEP_NETLAB_LINK");
    map.link = link == nullptr ? "" : link;
    return map;
}

int LabMap::ranks_per_node(int rank_count) const {
    if (!exists()) return rank_count;
    const int node_count = static_cast<int>(nodes.size());
    if (rank_count % node_count != 0) {
        throw ConfigError(fmt::format("--ranks {} on {} nodes; use a multiple of {}", rank_count, node_count, node_count));
    }
    return rank_count / node_count;
}

std::vector<std::string> LabMap::enter(int node) const {
    if (!exists()) return {};
    const Node& place = nodes[static_cast<size_t>(node)];
    return {"nsenter", "--net=" + place.network_path, "--uts=" + place.uts_path, "unshare", "--mount", "sh", "-c", kWithOwnSys,
            "sh"};
}

void LabMap::write_remote_shell(const std::string& path) const {
    std::string text =
        "#!/bin/sh\n# HOST COMMAND...: runs the command on the node that has this address\nhost=$1\nshift\ncase $host in\n";
    for (const Node& node : nodes) {
        text += fmt::format("{}) exec nsenter --net={} --uts={} unshare --mount sh -c '{}' sh sh -c \"$*\" ;;\n", node.address,
                            node.network_path, node.uts_path, kWithOwnSys);
    }
    text += "esac\necho \"no node $host\" >&2\nexit 1\n";
    write_file_atomically(path, text);
    if (chmod(path.c_str(), 0755) != 0) throw DeviceError(fmt::format("{} cannot be made executable", path));
}

}  // namespace lockstep::bench
