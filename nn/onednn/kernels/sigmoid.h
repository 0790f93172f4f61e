// The sigmoid of a tensor on its own, 1 / (1 + e^-x), within 4e-7 + |x| 2^-23 of the result, relatively (elements_targets.h says
// how). Below x = -87 the smallest normal numbers stand for smaller results. NaN stays NaN. Runs in parallel on the caller's OpenMP
// pool; results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "nn/onednn/kernels/elementwise.h"

namespace lockstep::onednn {

// out = sigmoid(a), `count` elements, both f32 or both bf16; `out` may be `a`. Beware of padding: sigmoid(0) is not 0.
void sigmoid(const Operand& out, const Operand& a, int64_t count);

namespace plain {
void sigmoid(const Operand& out, const Operand& a, int64_t begin, int64_t end);  // the slow twin
}

}  // namespace lockstep::onednn
