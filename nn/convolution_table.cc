#include "nn/convolution_table.h"

#include <optional>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr std::string_view kBetween = " = ";

std::optional<ConvolutionCode> code_named(std::string_view name) {
    for (const ConvolutionCode code : {ConvolutionCode::direct, ConvolutionCode::winograd, ConvolutionCode::pointwise}) {
        if (name_of(code) == name) return code;
    }
    return std::nullopt;
}

}  // namespace

std::string_view name_of(ConvolutionPass pass) {
    return pass == ConvolutionPass::forward           ? "forward"
           : pass == ConvolutionPass::source_gradient ? "source gradient"
                                                      : "weight gradient";
}

std::string_view name_of(ConvolutionCode code) {
    return code == ConvolutionCode::direct ? "direct" : code == ConvolutionCode::winograd ? "winograd" : "pointwise";
}

std::string ConvolutionTable::to_text() const {
    std::string text;
    for (const auto& [shape, code] : codes) text += fmt::format("{}{}{}\n", shape, kBetween, name_of(code));
    return text;
}

ConvolutionTable ConvolutionTable::from_text(std::string_view text) {
    ConvolutionTable table;
    while (!text.empty()) {
        const size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        const size_t between = line.rfind(kBetween);
        const auto code = between == std::string_view::npos ? std::nullopt : code_named(line.substr(between + kBetween.size()));
        if (end == std::string_view::npos || !code) {
            throw DataError(fmt::format("table of convolutions: `{}` is no line of it; all ranks must run the same version",
                                        line.substr(0, 80)));
        }
        table.codes.emplace(line.substr(0, between), *code);
        text.remove_prefix(end + 1);
    }
    return table;
}

}  // namespace lockstep
