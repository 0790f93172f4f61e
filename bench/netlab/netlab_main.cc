// The program behind scripts/netlab.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/netlab/lab.h"
#include "core/error.h"
#include "core/log.h"

namespace lockstep::netlab {

namespace {

struct Arguments {
    int nodes = 2;
    int ranks_per_node = 1;
    double delay_ms = 0;
    double rate_mbit = 0;
    double cut_after_s = 0;
    int cut_node = -1;
    double limit_s = 600;
    bool once = false;
    bool self_test = false;
    std::vector<std::string> command;
};

int become(const std::vector<std::string>& command) {
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    throw ConfigError(fmt::format("netlab: cannot start `{}`: {}; check the command after --", command[0], std::strerror(errno)));
}

void start_ranks(Lab& lab, const Arguments& arguments) {
    for (int rank = 0; rank < arguments.nodes * arguments.ranks_per_node; ++rank) {
        const int node = rank / arguments.ranks_per_node;
        lab.start(fmt::format("rank {} on node {}", rank, node), node, [&lab, &arguments, rank] {
            for (const auto& [name, value] : rank_environment(lab.nodes(), arguments.ranks_per_node, rank)) {
                setenv(name.c_str(), value.c_str(), 1);
            }
            return become(arguments.command);
        });
    }
}

// The command runs once, outside the nodes, and is told where they are.
void start_once(Lab& lab, const Arguments& arguments) {
    const std::string directory = lab.directory();
    lab.start("the command", -1, [&directory, &arguments] {
        setenv("LOCKSTEP_NETLAB", directory.c_str(), 1);
        const std::string link = fmt::format("{} ms one way, {} Mbit/s", arguments.delay_ms, arguments.rate_mbit);
        setenv("LOCKSTEP_NETLAB_LINK", link.c_str(), 1);
        return become(arguments.command);
    });
}

int run(const Arguments& arguments) {
    if (arguments.command.empty() && !arguments.self_test) {
        throw ConfigError("netlab: no command; write it behind --, or use --self-test");
    }
    if (arguments.cut_node >= arguments.nodes) {
        throw ConfigError(fmt::format("netlab: --cut-node {}: there are nodes 0 to {}", arguments.cut_node, arguments.nodes - 1));
    }
    const LinkOptions link{.delay_ns = static_cast<int64_t>(arguments.delay_ms * 1e6), .rate_bit_per_s = arguments.rate_mbit * 1e6};
    Lab lab({.node_count = arguments.nodes,
             .link = link,
             .cut_after_s = arguments.cut_after_s,
             .cut_node = arguments.cut_node,
             .limit_s = arguments.limit_s});
    if (arguments.self_test) return self_test(lab, link);
    if (arguments.once) {
        start_once(lab, arguments);
    } else {
        start_ranks(lab, arguments);
    }
    return lab.run();
}

int run_main(int argc, char** argv) {
    CLI::App app("Runs a job on nodes that are network namespaces of this machine, joined by emulated links. Needs root.",
                 "netlab");
    Arguments arguments;
    app.add_option("--nodes", arguments.nodes, "number of nodes")->capture_default_str()->check(CLI::Range(2, 64));
    app.add_option("--per-node", arguments.ranks_per_node, "ranks on each node")->capture_default_str()->check(CLI::Range(1, 64));
    app.add_option("--delay-ms", arguments.delay_ms, "one-way delay; the round trip takes twice as long")
        ->check(CLI::Range(0.0, 10'000.0));
    app.add_option("--rate-mbit", arguments.rate_mbit, "rate of each node's link, each direction; 0: no limit")
        ->check(CLI::Range(0.0, 1e6));
    app.add_option("--cut-after-s", arguments.cut_after_s, "cut a link this long after the start; 0: never")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--cut-node", arguments.cut_node,
                   "whose link is cut, then or on SIGUSR1 (SIGUSR2 mends it); default: the last node")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--limit-s", arguments.limit_s, "end everything after this time")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_flag("--once", arguments.once, "run the command once, outside the nodes; LOCKSTEP_NETLAB tells it where they are");
    app.add_flag("--self-test", arguments.self_test, "measure round trip and rate between the first two nodes");
    app.add_option("command", arguments.command, "started once per rank with the environment of torchrun");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        throw ConfigError(fmt::format("command line: {}; see scripts/netlab --help", error.what()));
    }
    return run(arguments);
}

}  // namespace

}  // namespace lockstep::netlab

int main(int argc, char** argv) {
    try {
        return lockstep::netlab::run_main(argc, argv);
    } catch (const lockstep::Error& error) {
        lockstep::log::write_error(error.what());
        return static_cast<int>(error.exit_code());
    }
}
