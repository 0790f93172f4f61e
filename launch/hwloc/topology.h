// The machine's cores as hwloc sees them. No hwloc type leaves this folder.
#pragma once

#include <memory>

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
};

}  // namespace lockstep
