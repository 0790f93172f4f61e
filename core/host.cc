#include "core/host.h"

#include <unistd.h>

#include <array>

namespace lockstep {

std::string host_name() {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return host.data();
}

}  // namespace lockstep
