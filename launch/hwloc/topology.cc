#include "launch/hwloc/topology.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include <hwloc.h>

#include "core/error.h"

namespace lockstep {

namespace {

class CpuSet {
public:
    CpuSet() : set_(hwloc_bitmap_alloc()) {}
    CpuSet(const CpuSet&) = delete;
    CpuSet& operator=(const CpuSet&) = delete;
    ~CpuSet() { hwloc_bitmap_free(set_); }
    hwloc_bitmap_t get() const { return set_; }

private:
    hwloc_bitmap_t set_;
};

class HwlocTopology final : public Topology {
public:
    HwlocTopology() {
        if (hwloc_topology_init(&topology_) != 0 || hwloc_topology_load(topology_) != 0) {
            throw DeviceError("hwloc cannot read the machine's topology; check that /sys is mounted");
        }
        // Without a mask of its own a process may use all that the topology allows.
        if (hwloc_get_cpubind(topology_, mask_.get(), HWLOC_CPUBIND_PROCESS) != 0) {
            hwloc_bitmap_copy(mask_.get(), hwloc_topology_get_allowed_cpuset(topology_));
        }
        const int depth = hwloc_get_type_or_below_depth(topology_, HWLOC_OBJ_CORE);
        const auto count = static_cast<unsigned>(hwloc_get_nbobjs_by_depth(topology_, depth));
        for (unsigned index = 0; index < count; ++index) {
            const hwloc_obj_t core = hwloc_get_obj_by_depth(topology_, depth, index);
            ++node_cores_;
            if (hwloc_bitmap_intersects(core->cpuset, mask_.get()) != 0) allowed_.push_back(core);
        }
    }
    ~HwlocTopology() override { hwloc_topology_destroy(topology_); }

    int node_cores() const override { return std::max(node_cores_, 1); }
    int allowed_cores() const override { return std::max(static_cast<int>(allowed_.size()), 1); }

    bool bind_process(int first_core, int core_count) override {
        const CpuSet share;
        for (int core = first_core; core < first_core + core_count && core < static_cast<int>(allowed_.size()); ++core) {
            hwloc_bitmap_or(share.get(), share.get(), allowed_[static_cast<size_t>(core)]->cpuset);
        }
        hwloc_bitmap_and(share.get(), share.get(), mask_.get());
        if (hwloc_bitmap_iszero(share.get()) != 0) return false;
        return hwloc_set_cpubind(topology_, share.get(), HWLOC_CPUBIND_PROCESS) == 0;
    }

    std::vector<std::vector<int>> places(Place kind) const override {
        std::vector<std::vector<int>> found;
        hwloc_obj_t place = nullptr;
        while ((place = hwloc_get_next_obj_by_type(topology_, type_of(kind), place)) != nullptr) {
            const CpuSet inside;
            hwloc_bitmap_and(inside.get(), place->cpuset, mask_.get());
            std::vector<int> processors;
            for (int processor = hwloc_bitmap_first(inside.get()); processor >= 0;
                 processor = hwloc_bitmap_next(inside.get(), processor)) {
                processors.push_back(processor);
            }
            if (!processors.empty()) found.push_back(std::move(processors));
        }
        return found;
    }

private:
    static hwloc_obj_type_t type_of(Place kind) {
        switch (kind) {
            case Place::memory_node:
                return HWLOC_OBJ_NUMANODE;
            case Place::package:
                return HWLOC_OBJ_PACKAGE;
            case Place::last_cache:
                return HWLOC_OBJ_L3CACHE;
            case Place::core:
                break;
        }
        return HWLOC_OBJ_CORE;
    }

    hwloc_topology_t topology_ = nullptr;
    CpuSet mask_;
    std::vector<hwloc_obj_t> allowed_;  // cores with at least one hardware thread in the mask, in logical (neighbour) order
    int node_cores_ = 0;
};

}  // namespace

std::unique_ptr<Topology> Topology::load() { return std::make_unique<HwlocTopology>(); }

}  // namespace lockstep
