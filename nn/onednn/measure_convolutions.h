#pragma once

#include "nn/convolution_table.h"
#include "nn/onednn/executor.h"

namespace lockstep::onednn {

// The faster code for each convolution that both executors of one graph compute, one by the library's code and one by own kernels.
// Each distinct shape is timed by itself, both ways in turn, its copies of weights included. Those that `known` names are taken
// from there; when it names all, nothing runs.
ConvolutionTable faster_convolutions(OnednnExecutor& library, OnednnExecutor& own, const Graph& graph,
                                     const ConvolutionTable& known);

}  // namespace lockstep::onednn
