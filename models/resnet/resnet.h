// ResNet-18/34/50/101/152 for ImageNet-sized images (arXiv:1512.03385), with torchvision's parameter names.
//
// Variant v1.5 puts the stride of a bottleneck on its 3x3 convolution, v1 on its first 1x1; the basic blocks of 18 and 34 layers
// have one form only.
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_resnet(const ModelOptions& options, int layers);  // layers: 18, 34, 50, 101 or 152

}  // namespace lockstep
