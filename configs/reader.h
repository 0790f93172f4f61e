// What read_experiment does, with the origin of every value kept for `lockstep config show --origin`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/compose.h"
#include "configs/experiment.h"

namespace lockstep {

struct ReadResult {
    Experiment experiment;
    std::map<std::string, Place> origins;  // of the keys that were set; all others have their default
};

ReadResult read_experiment_with_origins(const std::string& path, const std::vector<std::string>& overrides,
                                        const VariableLookup& environment);

// The configuration as YAML that reads back the same.
struct ShowOptions {
    bool defaults = true;   // all keys; false: only those that were set
    bool comments = false;  // beside each key: where its value comes from
};
std::string shown_text(const Experiment& experiment, const std::map<std::string, Place>& origins, const ShowOptions& options);

// Checks between fields that need no data: throws ConfigError with the place, or adds to experiment.warnings.
void check_contract(Experiment& experiment, const std::map<std::string, Place>& origins, const std::string& file);

}  // namespace lockstep
