// MPI as this process has it. MPI can be begun once and ended once per process, so there is one of these, made at the first use; it
// is the project's one piece of global state, because MPI is.
//
// A thread of its own begins MPI, sleeps, and ends it when the program returns from main or calls exit(): MPI wants both from one
// thread, and neither has a time limit, so whoever waits for them waits for that thread with a deadline. When a collective has
// failed MPI is not ended: that could wait for ever for a lost peer. Leaving without it makes mpirun end the whole job, which is
// what a lost rank calls for; the program's own exit code stands.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/mpi/mpi_module.h"

namespace lockstep {

class MpiRuntime {
public:
    // The process's runtime. The first call begins MPI, collectively over all processes of the launcher; later calls return the
    // same. `flavour`: openmpi or mpich. ConfigError when a second flavour is asked for or the module cannot be loaded, CommError
    // when MPI refuses or its ranks do not come within the time.
    static MpiRuntime& start(const std::string& flavour, int64_t timeout_ms);

    const MpiModule& module() const { return *module_; }
    const std::string& flavour() const { return flavour_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    int last_tag() const { return last_tag_; }

    // Held around every call of the module but initialise and finalise: one call at a time, in the whole process.
    std::mutex& mutex() { return mutex_; }

    void give_up() noexcept;  // something is lost: the process will end without ending MPI. Any thread

private:
    enum class State : uint8_t { idle, beginning, running, refused, ending, ended };

    void begin(const std::string& flavour, int64_t timeout_ms);
    void serve();                 // the thread
    void end_at_exit() noexcept;  // in exit(), after main

    const MpiModule* module_ = nullptr;
    std::string flavour_;
    int rank_ = -1;
    int size_ = 0;
    int last_tag_ = 0;
    std::mutex mutex_;

    std::mutex state_mutex_;
    std::condition_variable state_changed_;
    // Guarded by state_mutex_.
    State state_ = State::idle;
    bool given_up_ = false;
    int64_t end_timeout_ms_ = 0;
    std::string refusal_;
    std::thread thread_;
};

}  // namespace lockstep
