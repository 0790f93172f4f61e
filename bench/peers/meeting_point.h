// Where the ranks of a contestant that has no launcher of its own find each other: rank 0 serves a store and writes its port into
// the contestant's folder, which all ranks share because all nodes are on this machine.
#pragma once

#include <memory>

#include "bench/turn.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep::bench {

class MeetingPoint {
public:
    // CommError when rank 0 does not appear within a minute.
    MeetingPoint(const ContestantPlan& plan, int rank);
    const World& world() const { return world_; }
    Store& store() { return *store_; }

private:
    World world_;
    std::unique_ptr<StoreServer> server_;  // rank 0's
    std::unique_ptr<Store> store_;
};

}  // namespace lockstep::bench
