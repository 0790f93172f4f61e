// One document from a file, the files it includes, `key=value` overrides and the variables in it. No schema types yet: only text.
//
// include: [a.yaml, b.yaml]   relative to the including file; later wins, the including file wins over all
// ${env:NAME:-default}        an environment variable; without a default it must be set
// ${run.name}                 the text of another key, after overrides
// $$                          a dollar sign
// Keys of the top level that begin with `x-` hold anchors for `<<` and are dropped.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "configs/document.h"

namespace lockstep {

using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Place::file of nodes that come from overrides.
inline constexpr const char* kCommandLine = "command line";

// Throws ConfigError with the place. A mapping at the top, possibly empty.
Node compose_document(const std::string& path, const std::vector<std::string>& overrides, const VariableLookup& environment);

}  // namespace lockstep
