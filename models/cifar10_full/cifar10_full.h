// The network of Caffe's cifar10_full_sigmoid_train_test_bn.prototxt: three 5x5 convolutions with normalisation only (no scale or
// shift), sigmoid and overlapping pools of Caffe's ceil rule; 89,450 learned weights for ten classes of 32x32 images. The usual
// yardstick of CPU training. Meant for pixels of 0 to 255 less their mean.
#pragma once

#include "models/models.h"

namespace lockstep {

Graph build_cifar10_full_sigmoid_bn(const ModelOptions& options);

}  // namespace lockstep
