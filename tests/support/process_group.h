// Runs a function in real processes that pretend nothing: one per rank, forked before this process has any thread, with a store
// that this process serves. A watchdog kills what is left when the time is over.
//
// Under an mpirun (LOCKSTEP_TEST_MPI, set by tests/unit/collectives/mpi_test.cc) this process is one of the ranks: it runs the
// body itself, and the outcomes of all ranks are handed to each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/world.h"
#include "net/store.h"

namespace lockstep::testing_support {

struct RankOutcome {
    std::string text;        // what the body returned, or the message of the Error it threw
    bool threw = false;      // the body ended with an exception
    int signal = 0;          // that ended the process; 0: it ended by itself
    int64_t end_ns = 0;      // now_ns when the body ended; 0 when it did not
    bool timed_out = false;  // killed by the watchdog
};

// openmpi or mpich where this process is a rank of an mpirun, else empty; and how many ranks there are.
std::string surrounding_mpi();
int surrounding_mpi_size();

struct ProcessGroup {
    int size = 2;
    double limit_s = 30.0;
    std::string job_id = "test";

    // Returns one outcome per rank. Processes that are stopped are killed once the others have ended.
    std::vector<RankOutcome> run(const std::function<std::string(const World&, Store&)>& body) const;
};

}  // namespace lockstep::testing_support
