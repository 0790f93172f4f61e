// By which code each convolution of a network is computed, where more than one can. Decided before step 0, the same on all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep {

// direct: the library's choice. winograd: this project's own kernel for 3x3 and 5x5 convolutions of stride 1, in fp32; about twice
// as fast and rounded otherwise. pointwise: this project's own kernel for 1x1 convolutions, in fp32; plain arithmetic.
enum class ConvolutionCode : uint8_t { direct, winograd, pointwise };
enum class ConvolutionPass : uint8_t { forward, source_gradient, weight_gradient };

struct ConvolutionTable {
    // "forward 64x56x56 to 64 kernel 3 pad 1 batch 32" -> code.
    std::map<std::string, ConvolutionCode, std::less<>> codes;

    std::string to_text() const;                               // a line for each
    static ConvolutionTable from_text(std::string_view text);  // throws DataError

    bool operator==(const ConvolutionTable&) const = default;
};

std::string_view name_of(ConvolutionPass pass);
std::string_view name_of(ConvolutionCode code);

}  // namespace lockstep
