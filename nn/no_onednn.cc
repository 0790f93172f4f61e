// The twin of nn/onednn for builds without it.
#include "core/error.h"
#include "nn/executor.h"

namespace lockstep {

std::unique_ptr<Backend> make_onednn_backend(const BackendOptions& /*options*/) {
    throw ConfigError("backend 'onednn' is not built: install libdnnl-dev and configure again, or use backend 'reference'");
}

}  // namespace lockstep
