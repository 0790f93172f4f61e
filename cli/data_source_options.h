// The options by which the sub-commands of `data` are told where the samples are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data_loader/source.h"

namespace CLI {
class App;
}

namespace lockstep::cli {

struct SourceChoice {
    std::vector<std::string> paths;
    SourceOptions options;
    bool validation = false;
};

enum class Paths : uint8_t { one, several };
// Positional paths, --source, --labels and so on. `choice` must live until the command has run.
void add_source_options(CLI::App& command, SourceChoice& choice, Paths paths);

// The sources one after another; those after the first use its class names.
std::unique_ptr<Source> open_chosen(const SourceChoice& choice);

int default_threads();  // the cores at hand

}  // namespace lockstep::cli
