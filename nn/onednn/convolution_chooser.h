// Decides between the library's convolution and this project's own kernels, and remembers what it decided.
#pragma once

#include <optional>
#include <string>

#include "nn/convolution_table.h"
#include "nn/executor.h"
#include "nn/onednn/kernels/pointwise.h"
#include "nn/onednn/kernels/winograd.h"

namespace lockstep::onednn {

// One direction of a shape that the library and an own kernel can compute.
struct ConvolutionChoice {
    std::string key;  // in a ConvolutionTable
    ConvolutionCode own = ConvolutionCode::winograd;
    // The rule of Autotune::heuristic: whether the own kernel was the faster one where it was measured. By the shape alone.
    bool own_pays = false;
};

// Where Winograd pays: docs/benchmarks/step-resnet50.md. `keeps_weights`: forward with a WinogradKept.
ConvolutionChoice choice_of(ConvolutionPass pass, const WinogradShape& shape, bool keeps_weights);

// Where the kernel for 1x1 convolutions pays: docs/benchmarks/pointwise.md. `has_tail`: forward with an InferenceTail.
ConvolutionChoice choice_of(ConvolutionPass pass, const PointwiseShape& shape, bool has_tail);

class ConvolutionChooser {
public:
    explicit ConvolutionChooser(const BackendOptions& options);

    void use(const ConvolutionTable& table) { table_ = table; }
    ConvolutionCode choose(const ConvolutionChoice& choice);
    const ConvolutionTable& chosen() const { return chosen_; }

    // Choosers that always take the library's code, or always the own one: for measuring.
    static ConvolutionChooser always_library();
    static ConvolutionChooser always_own();

private:
    ConvolutionCode decide(const ConvolutionChoice& choice) const;

    Autotune autotune_;
    bool exact_;
    std::optional<bool> always_own_;
    ConvolutionTable table_, chosen_;
};

}  // namespace lockstep::onednn
