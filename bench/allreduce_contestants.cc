#include "bench/allreduce_contestants.h"

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/files.h"

namespace lockstep::bench {

namespace {

std::vector<std::string> mca(const Pairs& parameters) {
    std::vector<std::string> words;
    for (const auto& [name, value] : parameters) words.insert(words.end(), {"--mca", name, value});
    return words;
}

Contestant openmpi_algorithm(int number, const std::string& words, int segment_bytes) {
    Pairs parameters{{"coll_tuned_use_dynamic_rules", "1"}, {"coll_tuned_allreduce_algorithm", std::to_string(number)}};
    if (segment_bytes > 0) parameters.push_back({"coll_tuned_allreduce_algorithm_segmentsize", std::to_string(segment_bytes)});
    return {.name = "openmpi",
            .setting = fmt::format("algorithm {} ({})", number, words),
            .kind = "sweep",
            .launcher = "openmpi",
            .launcher_options = mca(parameters)};
}

std::vector<Contestant> openmpi_contestants() {
    return {{.name = "openmpi", .setting = "default", .kind = "default", .launcher = "openmpi"},
            openmpi_algorithm(2, "reduce + broadcast", 0),
            openmpi_algorithm(3, "recursive doubling", 0),
            openmpi_algorithm(4, "ring", 0),
            openmpi_algorithm(5, "ring in segments of 64 KiB", 64 << 10),
            openmpi_algorithm(5, "ring in segments of 256 KiB", 256 << 10),
            openmpi_algorithm(5, "ring in segments of 1 MiB", 1 << 20),
            openmpi_algorithm(6, "halving-doubling", 0),
            {.name = "openmpi",
             .setting = "coll sm",
             .kind = "sweep",
             .launcher = "openmpi",
             .launcher_options = mca({{"coll_sm_priority", "100"}})}};
}

Contestant mpich_algorithm(const std::string& words, const Pairs& environment) {
    return {.name = "mpich", .setting = words, .kind = "sweep", .launcher = "mpich", .environment = environment};
}

std::vector<Contestant> mpich_contestants() {
    const std::string local = "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM", general = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM";
    return {{.name = "mpich", .setting = "default", .kind = "default", .launcher = "mpich"},
            mpich_algorithm("release-gather", {{local, "release_gather"}}),
            mpich_algorithm("no release-gather", {{local, "mpir"}}),
            mpich_algorithm("recursive doubling", {{local, "mpir"}, {general, "recursive_doubling"}}),
            mpich_algorithm("halving-doubling", {{local, "mpir"}, {general, "reduce_scatter_allgather"}})};
}

Contestant gloo_algorithm(const std::string& algorithm, const std::string& words, const std::string& kind) {
    return {.name = "gloo", .setting = words, .kind = kind, .settings = {{"algorithm", algorithm}}};
}

std::vector<Contestant> gloo_contestants() {
    return {gloo_algorithm("ring", "default", "default"), gloo_algorithm("bcube", "bcube", "sweep"),
            gloo_algorithm("ring_chunked", "ring_chunked", "sweep"),
            gloo_algorithm("halving_doubling", "halving_doubling", "sweep")};
}

// Gradients in the pool and in ordinary memory; backends without memory of their own have no difference to show. MPI as a backend
// is shown once for each MPI.
std::vector<Contestant> lockstep_contestants(const std::string& backend, const std::string& algorithm) {
    const auto row = [&](const std::string& words, const std::string& memory, const std::string& launcher = "") {
        std::string setting = words;
        if (backend != "auto") setting = fmt::format("{}{}, {}", backend, launcher.empty() ? "" : " over " + launcher, setting);
        if (algorithm != "auto") setting += ", " + algorithm;
        return Contestant{.name = "lockstep",
                          .setting = setting,
                          .kind = "lockstep",
                          .launcher = launcher,
                          .settings = {{"backend", backend}, {"memory", memory}, {"algorithm", algorithm}}};
    };
    if (backend == "auto" || backend == "native") return {row("zero-copy", "segment"), row("private memory", "private")};
    if (backend == "mpi") return {row("private memory", "private", "openmpi"), row("private memory", "private", "mpich")};
    return {row("private memory", "private")};
}

std::string program_of(const std::string& name, const std::string& folder) { return folder + "/lockstep_peer_" + name; }

std::string hosts(const LabMap& lab, int ranks_per_node) {
    std::vector<std::string> words;
    for (const LabMap::Node& node : lab.nodes) words.push_back(fmt::format("{}:{}", node.address, ranks_per_node));
    return fmt::format("{}", fmt::join(words, ","));
}

// On one node nothing may look for a remote shell. Between nodes: TCP over the emulated link, shared memory inside a node, and no
// spinning that would starve whoever carries the packets.
std::vector<std::string> openmpi_launcher(const ContestantPlan& plan, const LabMap& lab) {
    std::vector<std::string> words{
        "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(plan.rank_count)};
    const std::vector<std::string> options = lab.exists() ? mca({{"plm_rsh_agent", plan.folder + "/remote-shell"},
                                                                 {"plm_rsh_no_tree_spawn", "1"},
                                                                 {"oob_tcp_if_include", plan.interface},
                                                                 {"btl_tcp_if_include", plan.interface},
                                                                 {"pml", "ob1"},
                                                                 {"btl", "tcp,vader,self"},
                                                                 {"mpi_yield_when_idle", "1"}})
                                                          : mca({{"plm", "isolated"}});
    words.insert(words.end(), options.begin(), options.end());
    if (lab.exists()) words.insert(words.end(), {"--host", hosts(lab, plan.ranks_per_node)});
    return words;
}

std::vector<std::string> mpich_launcher(const ContestantPlan& plan, const LabMap& lab) {
    std::vector<std::string> words{"mpiexec.mpich", "-n", std::to_string(plan.rank_count)};
    if (!lab.exists()) return words;
    words.insert(words.end(), {"-hosts", hosts(lab, plan.ranks_per_node), "-launcher", "rsh", "-launcher-exec",
                               plan.folder + "/remote-shell", "-iface", plan.interface});
    return words;
}

Command launcher_command(const Contestant& contestant, const ContestantPlan& plan, const LabMap& lab, const std::string& program) {
    Command command{.words = lab.enter(0), .environment = contestant.environment};
    const bool is_openmpi = contestant.launcher == "openmpi";
    for (const std::string& word : is_openmpi ? openmpi_launcher(plan, lab) : mpich_launcher(plan, lab))
        command.words.push_back(word);
    command.words.insert(command.words.end(), contestant.launcher_options.begin(), contestant.launcher_options.end());
    command.words.insert(command.words.end(), {program, plan.to_json()});
    if (!is_openmpi && lab.exists()) {
        command.environment.push_back({"UCX_NET_DEVICES", plan.interface});
        // Not `sm`: UCX knows nodes by the machine they run on, and would pass the link by. MPICH has shared memory of its own.
        command.environment.push_back({"UCX_TLS", "tcp,self"});
    }
    return command;
}

}  // namespace

std::string Contestant::how() const {
    std::vector<std::string> words = launcher_options;
    for (const Pairs* pairs : {&environment, &settings}) {
        for (const auto& [key, value] : *pairs) words.push_back(key + "=" + value);
    }
    return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> peer_names() { return {"openmpi", "mpich", "gloo"}; }

std::vector<Contestant> contestants_for(const AllreduceBenchOptions& options) {
    std::vector<Contestant> all;
    const auto add = [&](const std::vector<Contestant>& some) {
        for (const Contestant& contestant : some) {
            if (contestant.kind != "sweep" || options.sweep) all.push_back(contestant);
        }
    };
    for (const std::string& backend : options.lockstep_backends) {
        for (const std::string& algorithm : options.lockstep_algorithms) add(lockstep_contestants(backend, algorithm));
    }
    for (const std::string& peer : options.peers) {
        add(peer == "openmpi" ? openmpi_contestants() : peer == "mpich" ? mpich_contestants() : gloo_contestants());
    }
    return all;
}

std::vector<Command> commands_for(const Contestant& contestant, const ContestantPlan& plan, const LabMap& lab,
                                  const std::string& program_folder) {
    const std::string program = program_of(contestant.name, program_folder);
    if (lab.exists()) lab.write_remote_shell(plan.folder + "/remote-shell");
    if (!contestant.launcher.empty()) return {launcher_command(contestant, plan, lab, program)};
    std::vector<Command> commands;
    for (int rank = 0; rank < plan.rank_count; ++rank) {
        ContestantPlan own = plan;
        own.rank = rank;
        Command command{.words = lab.enter(rank / plan.ranks_per_node), .environment = contestant.environment};
        command.words.insert(command.words.end(), {program, own.to_json()});
        commands.push_back(command);
    }
    return commands;
}

std::string why_missing(const std::string& name, const std::string& program_folder) {
    const std::string program = program_of(name, program_folder);
    if (access(program.c_str(), X_OK) == 0) return {};
    const std::string package = name == "openmpi" ? "libopenmpi-dev" : name == "mpich" ? "libmpich-dev and mpich" : "libgloo-dev";
    return fmt::format("there is no {}; install {}, configure and build again", program, package);
}

}  // namespace lockstep::bench
