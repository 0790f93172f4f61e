#include "core/error.h"

#include <cstdio>
#include <cstdlib>

#include "core/text.h"

namespace lockstep {

Error::Error(ExitCode code, const std::string& message) : std::runtime_error(printable(message)), code_(code) {}

void check(bool condition, std::string_view message, const char* file, int line) noexcept {
    if (condition) [[likely]]
        return;
    std::fprintf(stderr, "lockstep: broken invariant: %.*s (%s:%d); this is a bug, please report it\n",
                 static_cast<int>(message.size()), message.data(), file, line);
    std::abort();
}

}  // namespace lockstep
