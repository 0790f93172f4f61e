#include "launch/run_arguments.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "launch/hwloc/topology.h"

namespace lockstep {

namespace {

constexpr int kMasterPort = 29'500, kRendezvousPort = 29'400;  // torchrun's
constexpr int kMostNodes = 65'536;

[[noreturn]] void refuse(std::string_view option, std::string_view value, std::string_view allowed) {
    throw ConfigError(fmt::format("{} {}: allowed: {}", option, value, allowed));
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= text.size() && !text.empty();) {
        const size_t end = std::min(text.find(separator, begin), text.size());
        parts.emplace_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

void read_nodes(const RunArguments& arguments, AgentOptions& options) {
    const std::vector<std::string> parts = split(arguments.nnodes, ':');
    const std::string none;
    const auto least = number_in<int>(parts.empty() ? none : parts.front());
    const auto most = number_in<int>(parts.empty() ? none : parts.back());
    if (parts.size() > 2 || !least || !most || *least < 1 || *most < *least || *most > kMostNodes)
        refuse("--nnodes", arguments.nnodes, "N or MIN:MAX, from 1 on");
    options.min_nodes = *least;
    options.max_nodes = *most;
}

int read_ranks(const std::string& text, const ProcessorCounts& here) {
    if (text == "cpu") return here.cores;
    if (text == "auto") return here.gpus > 0 ? here.gpus : here.cores;
    if (text == "gpu") {
        if (here.gpus > 0) return here.gpus;
        throw ConfigError("--nproc-per-node gpu: this node shows no NVIDIA GPU; give a number, cpu or auto");
    }
    const auto count = number_in<int>(text);
    if (!count || *count < 1 || *count > 4096) refuse("--nproc-per-node", text, "1 to 4096, cpu, gpu or auto");
    return *count;
}

struct Endpoint {
    std::string host;
    int port = 0;
};

// A name or an address. One with a port behind it and without brackets looks like an IPv6 address, but is none.
void require_host(const std::string& option, const std::string& text, const std::string& host) {
    const bool printable = std::ranges::all_of(host, [](unsigned char letter) { return letter > ' ' && letter != 0x7F; });
    if (host.empty() || !printable) refuse(option, text, "a host's name or address, without spaces");
    in6_addr ignored{};
    if (host.find(':') == std::string::npos || inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &ignored) == 1) return;
    refuse(option, text, "an IPv6 address in brackets before a port, [fe80::1]:29400");
}

// "host", "host:29400", "10.0.0.1:29400", "[fe80::1]:29400", "fe80::1"
Endpoint read_endpoint(const std::string& text, int default_port) {
    Endpoint endpoint{text, default_port};
    const size_t bracket = text.find(']');
    const bool bare_ipv6 = bracket == std::string::npos && std::ranges::count(text, ':') > 1;
    const size_t colon = bare_ipv6 ? std::string::npos : text.find(':', bracket == std::string::npos ? 0 : bracket);
    if (colon != std::string::npos) {
        const auto port = number_in<int>(std::string_view(text).substr(colon + 1));
        if (!port || *port < 0 || *port > 65'535) refuse("--rdzv-endpoint", text, "HOST[:PORT], ports 0 to 65535");
        endpoint = {text.substr(0, colon), *port};
    }
    if (endpoint.host.starts_with("[")) endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
    require_host("--rdzv-endpoint", text, endpoint.host);
    return endpoint;
}

void read_one_node(const RunArguments& arguments, AgentOptions& options) {
    options.endpoint_port = arguments.standalone ? 0 : arguments.master_port;
    options.port_option = fmt::format("--master-port {}: without it a free one is taken; ", options.endpoint_port);
    options.hosting = Hosting::always;
}

void read_static(const RunArguments& arguments, AgentOptions& options) {
    Endpoint endpoint{arguments.master_addr, arguments.master_port > 0 ? arguments.master_port : kMasterPort};
    if (endpoint.host.empty() && !arguments.rdzv_endpoint.empty()) endpoint = read_endpoint(arguments.rdzv_endpoint, kMasterPort);
    if (endpoint.host.empty()) {
        throw ConfigError(
            fmt::format("--nnodes {} needs --rdzv-endpoint HOST[:{}], or --master-addr and --node-rank: an address of "
                        "one of the nodes, the same on all of them",
                        arguments.nnodes, kRendezvousPort));
    }
    require_host("--master-addr", endpoint.host, endpoint.host);
    options.endpoint_host = endpoint.host;
    options.endpoint_port = endpoint.port;
    options.port_option = fmt::format("--master-port {}: ", endpoint.port);
    if (options.node_rank < 0) options.node_rank = 0;
    options.hosting = options.node_rank == 0 ? Hosting::always : Hosting::never;
}

void read_endpoint_of_all(const RunArguments& arguments, AgentOptions& options) {
    const Endpoint endpoint = read_endpoint(arguments.rdzv_endpoint, kRendezvousPort);
    options.endpoint_host = endpoint.host;
    options.endpoint_port = endpoint.port;
    options.port_option = fmt::format("--rdzv-endpoint {}: ", arguments.rdzv_endpoint);
    options.hosting = endpoint.port == 0 ? Hosting::always : Hosting::where_possible;
    if (endpoint.port == 0 && options.max_nodes > 1)
        refuse("--rdzv-endpoint", arguments.rdzv_endpoint, "with several nodes a port that all of them know");
}

void read_meeting(const RunArguments& arguments, AgentOptions& options) {
    constexpr std::array<std::string_view, 4> kBackends{"", "static", "tcp", "c10d"};
    if (std::ranges::find(kBackends, arguments.rdzv_backend) == kBackends.end())
        refuse("--rdzv-backend", arguments.rdzv_backend, "static, tcp, or c10d as another name of tcp");
    options.node_rank = arguments.node_rank;
    options.run_id = arguments.standalone ? "" : arguments.rdzv_id;
    if (arguments.standalone && options.max_nodes > 1) refuse("--standalone with --nnodes", arguments.nnodes, "1");
    const bool has_endpoint = !arguments.rdzv_endpoint.empty();
    if (arguments.standalone || (options.max_nodes == 1 && !has_endpoint)) return read_one_node(arguments, options);
    if (has_endpoint && arguments.rdzv_backend != "static") return read_endpoint_of_all(arguments, options);
    if (arguments.rdzv_backend == "tcp" || arguments.rdzv_backend == "c10d")
        throw ConfigError(
            fmt::format("--rdzv-backend {} needs --rdzv-endpoint HOST[:{}]", arguments.rdzv_backend, kRendezvousPort));
    read_static(arguments, options);
}

void read_conf(const std::string& text, AgentOptions& options) {
    for (const std::string& pair : split(text, ',')) {
        const size_t equals = std::min(pair.find('='), pair.size());
        const std::string key = pair.substr(0, equals);
        const std::string value = equals < pair.size() ? pair.substr(equals + 1) : "";
        const std::string option = fmt::format("--rdzv-conf {}", key);
        if (key == "is_host") {
            if (value != "true" && value != "false" && value != "1" && value != "0") refuse(option, value, "true or false");
            options.hosting = value == "true" || value == "1" ? Hosting::always : Hosting::never;
            continue;
        }
        const auto seconds = number_in<double>(value);
        if (!seconds || *seconds < 0 || *seconds > 1e6) refuse(option, value, "KEY=SECONDS, such as join_timeout=600");
        if (key == "join_timeout" || key == "timeout") {
            options.join_timeout_s = *seconds;
        } else if (key == "last_call_timeout") {
            options.last_call_s = *seconds;
        } else if (key == "close_timeout") {
            options.close_timeout_s = *seconds;
        } else if (key == "keep_alive_interval" && *seconds >= 0.01) {
            options.keep_alive_s = *seconds;
        } else if (key == "keep_alive_max_attempt" && *seconds >= 1) {
            options.keep_alive_misses = static_cast<int>(*seconds);
        } else {
            refuse(option, value,
                   "the keys are join_timeout, last_call_timeout, close_timeout, keep_alive_interval (from 0.01), "
                   "keep_alive_max_attempt (from 1) and is_host");
        }
    }
}

// Per local rank the sum of 1 (output) and 2 (errors).
std::vector<int> read_streams(std::string_view option, const std::string& text, int ranks) {
    constexpr std::string_view kAllowed = "0, 1 (output), 2 (errors), 3 (both), or LOCAL_RANK:VALUE,...";
    std::vector<int> streams(static_cast<size_t>(ranks), 0);
    const auto value_of = [&](std::string_view digits) {
        const auto value = number_in<int>(digits);
        if (!value || *value < 0 || *value > 3) refuse(option, text, kAllowed);
        return *value;
    };
    if (text.find(':') == std::string::npos) return std::vector<int>(static_cast<size_t>(ranks), value_of(text));
    for (const std::string& pair : split(text, ',')) {
        const size_t colon = std::min(pair.find(':'), pair.size() - 1);
        const auto rank = number_in<int>(std::string_view(pair).substr(0, colon));
        if (!rank || *rank < 0 || *rank >= ranks)
            refuse(option, text, fmt::format("{}; local ranks are 0 to {}", kAllowed, ranks - 1));
        streams[static_cast<size_t>(*rank)] = value_of(std::string_view(pair).substr(colon + 1));
    }
    return streams;
}

// A stream goes to the screen unless it is redirected and not teed, or the filter leaves its rank out.
void read_output(const RunArguments& arguments, AgentOptions& options) {
    const int ranks = options.nproc_per_node;
    const std::vector<int> redirects = read_streams("--redirects", arguments.redirects, ranks);
    const std::vector<int> tee = read_streams("--tee", arguments.tee, ranks);
    std::set<int> wanted;
    for (const std::string& text : split(arguments.local_ranks_filter, ',')) {
        const auto rank = number_in<int>(text);
        if (!rank || *rank < 0 || *rank >= ranks)
            refuse("--local-ranks-filter", arguments.local_ranks_filter, fmt::format("LOCAL_RANK,... of 0 to {}", ranks - 1));
        wanted.insert(*rank);
    }
    bool needs_files = false;
    for (int rank = 0; rank < ranks; ++rank) {
        const auto index = static_cast<size_t>(rank);
        const int hidden = redirects[index] & ~tee[index];
        const bool listed = wanted.empty() || wanted.contains(rank);
        options.shown.push_back({.output = listed && (hidden & 1) == 0, .error = listed && (hidden & 2) == 0});
        needs_files = needs_files || redirects[index] != 0 || tee[index] != 0;
    }
    options.log_dir = arguments.log_dir.empty() && needs_files ? "logs" : arguments.log_dir;
}

void read_signals(const std::string& text, AgentOptions& options) {
    if (text.empty()) return;
    options.signals.clear();
    for (std::string name : split(text, ',')) {
        if (name.starts_with("SIG")) name = name.substr(3);
        const auto known = AgentOptions::default_signals();
        const auto found = std::ranges::find_if(known, [&](int signal) { return name == sigabbrev_np(signal); });
        if (found == known.end()) refuse("--signals-to-handle", text, "SIGTERM, SIGINT, SIGHUP and SIGQUIT, with commas between");
        options.signals.push_back(*found);
    }
}

// As torchrun does it: a script is run by Python.
void read_command(const RunArguments& arguments, AgentOptions& options) {
    options.command = arguments.command;
    if (arguments.no_python && arguments.module) throw ConfigError("--no-python and --module exclude each other; keep one of them");
    if (options.command.empty() || arguments.no_python) return;
    if (arguments.module) {
        options.command.insert(options.command.begin(), {"python3", "-u", "-m"});
    } else if (options.command.front().ends_with(".py")) {
        options.command.insert(options.command.begin(), {"python3", "-u"});
    }
}

int count_gpus() {
    int count = 0;
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
        // CUDA takes those before the first that is none, such as -1.
        for (const std::string& device : split(visible, ',')) {
            if (device.empty() || device.starts_with("-") || device == "NoDevFiles") break;
            ++count;
        }
        return count;
    }
    std::error_code none;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) ++count;
    return count;
}

}  // namespace

ProcessorCounts count_processors() { return {.cores = Topology::load()->allowed_cores(), .gpus = count_gpus()}; }

AgentOptions read_run_arguments(const RunArguments& arguments, const ProcessorCounts& here) {
    AgentOptions options;
    read_nodes(arguments, options);
    options.nproc_per_node = read_ranks(arguments.nproc_per_node, here);
    read_meeting(arguments, options);
    read_conf(arguments.rdzv_conf, options);
    read_output(arguments, options);
    read_signals(arguments.signals_to_handle, options);
    read_command(arguments, options);
    if (arguments.max_restarts < 0) refuse("--max-restarts", std::to_string(arguments.max_restarts), "0 and above");
    if (arguments.monitor_interval_s <= 0 || arguments.monitor_interval_s > 3600)
        refuse("--monitor-interval", fmt::format("{}", arguments.monitor_interval_s), "above 0, up to 3600 s");
    options.max_restarts = arguments.max_restarts;
    options.monitor_interval_s = arguments.monitor_interval_s;
    options.role = arguments.role;
    options.local_addr = arguments.local_addr;
    options.grace_s = arguments.grace_s;
    if (!arguments.numa_binding.empty()) {
        const auto binding = core_binding_named(arguments.numa_binding);
        if (!binding) refuse("--numa-binding", arguments.numa_binding, "node, socket, core-complex or exclusive");
        options.binding = *binding;
    }
    return options;
}

}  // namespace lockstep
