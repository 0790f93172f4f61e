// GoogLeNet, the first Inception network (arXiv:1409.4842), for 224x224 images, with two auxiliary heads of weight 0.3 that take
// part in training only.
//
// Variant bn is torchvision's: batch norms, 3x3 instead of 5x5 convolutions, its names; 13,004,888 parameters, 6,624,904 without
// the heads (bn_no_aux). Variant lrn is the paper's and Caffe's: biases and local response normalisation; 13,378,280 parameters.
// The heads pool 5x5 windows at stride 3 as in the paper, where torchvision pools adaptively to 4x4.
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_googlenet(const ModelOptions& options);

}  // namespace lockstep
