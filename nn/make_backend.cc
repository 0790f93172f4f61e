// The one place that knows all backends by name.
#include <fmt/format.h>

#include "core/error.h"
#include "nn/executor.h"

namespace lockstep {

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
    if (name == "reference") return make_reference_backend(options);
    if (name == "onednn") return make_onednn_backend(options);
    throw ConfigError(fmt::format("unknown backend '{}'; use reference or onednn", name));
}

}  // namespace lockstep
