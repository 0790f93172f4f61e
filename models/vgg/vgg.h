// VGG (arXiv:1409.1556, table 1) for 224x224 images, with torchvision's names: configuration A, 11 layers and 132,863,336
// parameters, and D, 16 layers and 138,357,544. Variant bn has a batch norm after each convolution. The first fully connected layer
// takes the last feature map as it is, 7x7 for that size.
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_vgg(const ModelOptions& options, int layers);  // layers: 11 or 16

}  // namespace lockstep
