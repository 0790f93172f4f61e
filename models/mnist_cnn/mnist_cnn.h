// A small convolutional network for handwritten digits: two convolutions, each with a pool, and two fully connected layers. Its
// dropout is part of it.
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_mnist_cnn(const ModelOptions& options);

}  // namespace lockstep
