#include "tests/support/process_group.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "net/socket.h"

namespace lockstep::testing_support {

namespace {

using Body = std::function<std::string(const World&, Store&)>;

struct Child {
    pid_t pid = -1;
    FileHandle port_writer;
    FileHandle result_reader;
    bool ended = false;
    bool stopped = false;
};

std::pair<FileHandle, FileHandle> make_pipe() {
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    return {FileHandle(ends[0]), FileHandle(ends[1])};
}

void write_all(int descriptor, const std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t written = write(descriptor, bytes.data() + done, bytes.size() - done);
        if (written <= 0) return;
        done += static_cast<size_t>(written);
    }
}

[[noreturn]] void run_child(World world, const std::string& job_id, int port_reader, int result_writer, const Body& body) {
    int32_t port = 0;
    check(read(port_reader, &port, sizeof port) == sizeof port, "the parent tells the store's port");
    world.store_port = port;
    std::string text;
    char kind = 'r';
    try {
        const auto store = connect_store({.host = "127.0.0.1", .port = port, .job_id = job_id, .connect_timeout_ms = 10'000});
        text = body(world, *store);
    } catch (const std::exception& error) {
        kind = 'e';
        text = error.what();
    }
    const int64_t end_ns = now_ns();
    std::string message(1 + sizeof end_ns, kind);
    std::memcpy(message.data() + 1, &end_ns, sizeof end_ns);
    write_all(result_writer, message + text);
    _exit(0);
}

Child start_child(const World& world, const std::string& job_id, const Body& body) {
    auto [port_reader, port_writer] = make_pipe();
    auto [result_reader, result_writer] = make_pipe();
    Child child;
    child.pid = fork();
    check(child.pid >= 0, "fork");
    if (child.pid == 0) run_child(world, job_id, port_reader.get(), result_writer.get(), body);
    child.port_writer = std::move(port_writer);
    child.result_reader = std::move(result_reader);
    return child;
}

// Reads results until all have ended: a large result must not block its writer.
void collect(std::vector<Child>& children, std::vector<RankOutcome>& outcomes, double limit_s) {
    const Deadline deadline = Deadline::after_ms(static_cast<int64_t>(1000 * limit_s));
    std::vector<std::string> messages(children.size());
    const auto unfinished = [&](bool count_stopped) {
        return std::any_of(children.begin(), children.end(),
                           [&](const Child& each) { return !each.ended && (count_stopped || !each.stopped); });
    };
    while (unfinished(true)) {
        const bool late = deadline.expired();
        const bool only_stopped = !unfinished(false);
        for (size_t rank = 0; rank < children.size(); ++rank) {
            Child& child = children[rank];
            if (child.ended) continue;
            if (late || only_stopped) {
                kill(child.pid, SIGKILL);
                outcomes[rank].timed_out = late;
            }
            pollfd entry{child.result_reader.get(), POLLIN, 0};
            while (poll(&entry, 1, 0) > 0 && (entry.revents & POLLIN) != 0) {
                char piece[65536];
                const ssize_t received = read(child.result_reader.get(), piece, sizeof piece);
                if (received <= 0) break;
                messages[rank].append(piece, static_cast<size_t>(received));
            }
            int status = 0;
            if (waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.pid) continue;
            child.stopped = WIFSTOPPED(status);
            child.ended = WIFEXITED(status) || WIFSIGNALED(status);
            if (child.ended && WIFSIGNALED(status)) outcomes[rank].signal = WTERMSIG(status);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (size_t rank = 0; rank < children.size(); ++rank) {
        char piece[65536];
        for (pollfd entry{children[rank].result_reader.get(), POLLIN, 0}; poll(&entry, 1, 0) > 0;) {
            const ssize_t received = read(children[rank].result_reader.get(), piece, sizeof piece);
            if (received <= 0) break;
            messages[rank].append(piece, static_cast<size_t>(received));
        }
        if (messages[rank].size() < 1 + sizeof(int64_t)) continue;
        outcomes[rank].threw = messages[rank][0] == 'e';
        std::memcpy(&outcomes[rank].end_ns, messages[rank].data() + 1, sizeof(int64_t));
        outcomes[rank].text = messages[rank].substr(1 + sizeof(int64_t));
    }
}

int number_of(const char* variable) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? 0 : std::atoi(text);
}

RankOutcome outcome_of(const World& world, Store& store, const Body& body) {
    RankOutcome outcome;
    try {
        outcome.text = body(world, store);
    } catch (const std::exception& error) {
        outcome.threw = true;
        outcome.text = error.what();
    }
    outcome.end_ns = now_ns();
    return outcome;
}

// This process as one rank: all ranks call it in the same order, with the same body.
std::vector<RankOutcome> run_as_rank(World world, const std::string& job_id, double limit_s, const Body& body) {
    static int run_count = 0;
    const auto key = [number = ++run_count](int rank) { return fmt::format("outcome/{}/{}", number, rank); };
    world.store_port = number_of("LOCKSTEP_TEST_STORE_PORT");
    const auto store =
        connect_store({.host = "127.0.0.1", .port = world.store_port, .job_id = job_id, .connect_timeout_ms = 10'000});
    const RankOutcome mine = outcome_of(world, *store, body);
    store->set(key(world.rank), fmt::format("{}{} {}", mine.threw ? 'e' : 'r', mine.end_ns, mine.text));
    std::vector<RankOutcome> outcomes(static_cast<size_t>(world.size));
    for (int rank = 0; rank < world.size; ++rank) {
        RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
        try {
            const std::string text = store->wait(key(rank), static_cast<int64_t>(1000 * limit_s));
            outcome.threw = text[0] == 'e';
            outcome.end_ns = std::stoll(text.substr(1));
            outcome.text = text.substr(text.find(' ') + 1);
        } catch (const CommError&) {
            outcome.timed_out = true;
        }
    }
    return outcomes;
}

}  // namespace

std::string surrounding_mpi() {
    const char* const flavour = std::getenv("LOCKSTEP_TEST_MPI");
    return flavour == nullptr ? "" : flavour;
}

int surrounding_mpi_size() { return number_of(surrounding_mpi() == "openmpi" ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE"); }

std::vector<RankOutcome> ProcessGroup::run(const Body& body) const {
    if (!surrounding_mpi().empty()) {
        const int rank = number_of(surrounding_mpi() == "openmpi" ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK");
        check(size == surrounding_mpi_size(), "the test has as many ranks as the mpirun");
        return run_as_rank({.rank = rank, .size = size, .local_rank = rank, .local_size = size, .job_id = job_id}, job_id, limit_s,
                           body);
    }
    std::vector<Child> children;
    for (int rank = 0; rank < size; ++rank) {
        World world{.rank = rank, .size = size, .local_rank = rank, .local_size = size};
        world.job_id = job_id;
        children.push_back(start_child(world, job_id, body));
    }
    // Only now: a process with threads must not fork.
    const auto server = StoreServer::start({.bind_host = "127.0.0.1", .port = 0, .job_id = job_id});
    const int32_t port = server->port();
    for (Child& child : children) {
        check(write(child.port_writer.get(), &port, sizeof port) == sizeof port, "the child listens");
        child.port_writer = FileHandle();
    }
    std::vector<RankOutcome> outcomes(children.size());
    collect(children, outcomes, limit_s);
    return outcomes;
}

}  // namespace lockstep::testing_support
