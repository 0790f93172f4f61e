// A moment that a test and the processes it forks all see: when the fault happened.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>

#include "core/clock.h"

namespace lockstep::testing_support {

class SharedInstant {
public:
    SharedInstant()
        : value_(static_cast<std::atomic<int64_t>*>(
              mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
    SharedInstant(const SharedInstant&) = delete;
    SharedInstant& operator=(const SharedInstant&) = delete;
    ~SharedInstant() { munmap(value_, sizeof *value_); }
    void set_now() { value_->store(now_ns()); }
    double seconds_until(int64_t end_ns) const { return 1e-9 * static_cast<double>(end_ns - value_->load()); }

private:
    std::atomic<int64_t>* value_;
};

}  // namespace lockstep::testing_support
