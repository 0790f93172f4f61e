// What is refused before the first image.
#pragma once

#include "data_loader/pipeline_options.h"

namespace lockstep {

// ConfigError for transforms and sizes that cannot work on any image.
void validate(const PipelineOptions& options);

}  // namespace lockstep
