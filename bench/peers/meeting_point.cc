#include "bench/peers/meeting_point.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "bench/contestant.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"

namespace lockstep::bench {

namespace {

constexpr int64_t kPatience_ms = 60'000;

int wait_for_port(const fs::path& path) {
    const Deadline deadline = Deadline::after_ms(kPatience_ms);
    while (!fs::exists(path)) {
        if (deadline.expired())
            throw CommError(fmt::format("rank 0 has not written {} for {} s", path.string(), kPatience_ms / 1000));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return std::stoi(read_file(path));
}

}  // namespace

MeetingPoint::MeetingPoint(const ContestantPlan& plan, int rank) : world_(world_of(plan, rank)) {
    const fs::path port_file = fs::path(plan.folder) / "store-port";
    if (world_.is_leader()) {
        server_ = StoreServer::start({.job_id = world_.job_id});
        write_file_atomically(port_file, std::to_string(server_->port()));
    }
    world_.store_port = wait_for_port(port_file);
    store_ = connect_store({.host = world_.store_host, .port = world_.store_port, .job_id = world_.job_id});
}

}  // namespace lockstep::bench
