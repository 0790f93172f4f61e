// The machine's cores as hwloc sees them. No hwloc type leaves this folder.
#pragma once

#include <memory>
#include <vector>

namespace lockstep {

class Topology {
public:
    static std::unique_ptr<Topology> load();  // DeviceError when hwloc cannot read the machine
    virtual ~Topology() = default;
    virtual int node_cores() const = 0;     // cores the operating system lets jobs of this container or job use
    virtual int allowed_cores() const = 0;  // of these, in this process's affinity mask
    // Binds this process, with all threads it starts from now on, to cores [first, first + count) of its mask. False when the
    // system does not allow it.
    virtual bool bind_process(int first_core, int core_count) = 0;

    enum class Place { memory_node, package, last_cache, core };
    // Of each place that this process's mask touches, the processors inside the mask, as the system numbers them; neighbours stand
    // beside each other. Empty where the machine names no such places.
    virtual std::vector<std::vector<int>> places(Place kind) const = 0;
};

}  // namespace lockstep
