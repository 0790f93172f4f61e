// Networks of a few thousand parameters for tests and smoke runs, for images of 8 pixels and more.
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_tiny_cnn(const ModelOptions& options);  // two convolutions with biases, no batch norm
Graph build_tiny_bn(const ModelOptions& options);   // two convolutions with batch norm and one residual sum

}  // namespace lockstep
