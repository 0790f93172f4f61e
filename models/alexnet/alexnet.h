// AlexNet (Krizhevsky, Sutskever and Hinton, 2012) for 224x224 images; `grouped` also for Caffe's 227.
//
// Variant one_tower is torchvision's (arXiv:1404.5997, figure 2, without groups and normalisation; 61,100,840 parameters, its
// names), grouped is Caffe's bvlc_alexnet: local response normalisation and convolutions in two groups (60,965,224 parameters). The
// first fully connected layer takes the last feature map as it is, 6x6 for those sizes.
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_alexnet(const ModelOptions& options);

}  // namespace lockstep
