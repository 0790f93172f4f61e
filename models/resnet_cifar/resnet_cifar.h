// ResNet-20/32/44/56/110 for small images (arXiv:1512.03385, section 4.2): three stages of 16, 32 and 64 channels, 6n+2 layers,
// shortcuts without parameters (option A).
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_resnet_cifar(const ModelOptions& options, int layers);  // layers: 6n + 2

}  // namespace lockstep
