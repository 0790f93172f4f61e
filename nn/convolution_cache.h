// compute.autotune: measure. What was measured once is kept in a file, so that later runs on such a machine start at once.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "nn/convolution_table.h"
#include "nn/executor.h"

namespace lockstep {

// The faster code of each convolution of a step: from the file of this backend's library, instruction set, threads and precision
// in `folder` where that has them all, else measured and written there. `folder` empty: $XDG_CACHE_HOME/lockstep or
// ~/.cache/lockstep; neither set, or not writable: nothing is kept, with a warning. A damaged file is measured anew, with a
// warning. Overwrites the arena's gradients; before step 0 only.
ConvolutionTable measured_convolutions(Backend& backend, const Graph& graph, int batch, Phase phase, ParameterArena& arena,
                                       const std::string& folder);

// The file's name and content. `fingerprint`: what the times depend on.
std::filesystem::path convolution_file(const std::filesystem::path& folder, std::string_view fingerprint);
void save_convolutions(const std::filesystem::path& file, std::string_view fingerprint, const ConvolutionTable& table);
std::optional<ConvolutionTable> load_convolutions(const std::filesystem::path& file, std::string_view fingerprint);

}  // namespace lockstep
