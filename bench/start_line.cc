#include "bench/start_line.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "net/socket.h"

namespace lockstep::bench {

namespace {
constexpr int64_t kPatience_ms = 60'000;
constexpr int kPollsPerLook = 1024;      // at the clock
constexpr int64_t kHeadStartNs = 1'000;  // more than a message takes between any two cores
}  // namespace

StartLine::StartLine(const std::string& path, int rank_count, bool yields)
    : rank_count_(static_cast<uint64_t>(rank_count)), yields_(yields) {
    const FileHandle file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    void* memory = MAP_FAILED;
    if (file.is_open() && ftruncate(file.get(), sizeof(Shared)) == 0) {
        memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    }
    if (memory == MAP_FAILED) {
        throw DeviceError(
            fmt::format("the start line {} cannot be mapped: {}; check the temporary folder", path, std::strerror(errno)));
    }
    shared_ = static_cast<Shared*>(memory);
}

StartLine::~StartLine() { munmap(shared_, sizeof(Shared)); }

void StartLine::wait() {
    const uint64_t goal = ++rounds_ * rank_count_;
    const int64_t last_start_ns = start_ns_;
    if (shared_->arrivals.fetch_add(1) + 1 == goal) shared_->start_ns.store(now_ns() + kHeadStartNs, std::memory_order_release);
    const Deadline deadline = Deadline::after_ms(kPatience_ms);
    for (int polls = 1; (start_ns_ = shared_->start_ns.load(std::memory_order_acquire)) == last_start_ns; ++polls) {
        if (yields_) sched_yield();
        if (polls % kPollsPerLook == 0 && deadline.expired()) {
            throw CommError(fmt::format("a rank did not come to the start line for {} s", kPatience_ms / 1000));
        }
    }
    while (!yields_ && now_ns() < start_ns_) continue;
}

}  // namespace lockstep::bench
