// Decides between the library's convolution and this project's Winograd kernels, and remembers what it decided.
#pragma once

#include <optional>
#include <string>

#include "nn/convolution_table.h"
#include "nn/executor.h"
#include "nn/onednn/kernels/winograd.h"

namespace lockstep::onednn {

// How a ConvolutionTable names one direction of a shape.
std::string convolution_key(ConvolutionPass pass, const WinogradShape& shape);

// The rule of Autotune::heuristic: whether Winograd was the faster one where it was measured (docs/benchmarks/step-resnet50.md). A
// pure function of the shape.
ConvolutionCode usual_code(ConvolutionPass pass, const WinogradShape& shape);

class ConvolutionChooser {
public:
    explicit ConvolutionChooser(const BackendOptions& options);

    void use(const ConvolutionTable& table) { table_ = table; }
    // Of a shape that both codes can compute.
    ConvolutionCode choose(ConvolutionPass pass, const WinogradShape& shape);
    const ConvolutionTable& chosen() const { return chosen_; }

    // A chooser that always decides alike: for measuring.
    static ConvolutionChooser always(ConvolutionCode code);

private:
    ConvolutionCode decide(ConvolutionPass pass, const WinogradShape& shape) const;

    Autotune autotune_;
    bool exact_;
    std::optional<ConvolutionCode> always_;
    ConvolutionTable table_, chosen_;
};

}  // namespace lockstep::onednn
