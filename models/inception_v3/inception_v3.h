// Inception v3 (arXiv:1512.00567) for 299x299 images, with torchvision's names: 23,834,568 parameters, and 27,161,264 with the
// auxiliary head (variant aux), which has weight 0.4 and takes part in training only.
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_inception_v3(const ModelOptions& options);

}  // namespace lockstep
