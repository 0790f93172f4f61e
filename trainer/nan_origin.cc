#include "trainer/nan_origin.h"

#include <fmt/format.h>

#include "core/finite.h"

namespace lockstep {

namespace {

// "layer1.0.bn1" of "layer1.0.bn1.running_mean"
std::string layer_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

}  // namespace

std::string describe_origin(const ParameterArena& arena, const OwnHealth& own, bool loss_is_finite) {
    const auto name = [&](int64_t entry) { return arena.entries()[static_cast<size_t>(entry)].spec.name; };
    const bool all_fine = own.first_gradient < 0 && own.first_statistic_of_forward < 0 && loss_is_finite;
    if (all_fine) return {};
    for (auto entry = static_cast<int64_t>(arena.entries().size()) - 2; entry >= 0; --entry) {  // in the order of forward
        if (all_finite(arena.value(static_cast<size_t>(entry)))) continue;
        return fmt::format("the parameter {} was not finite before the step", name(entry));
    }
    if (own.first_statistic_of_forward >= 0)
        return fmt::format("in forward, at the input of {}", layer_of(name(own.first_statistic_of_forward)));
    if (!loss_is_finite) return "in forward, with no batch norm's input before the loss";
    return fmt::format("in backward, at {}", name(own.first_gradient));
}

std::string combine_origins(const std::vector<std::string>& of_rank) {
    std::string text;
    for (size_t rank = 0; rank < of_rank.size(); ++rank) {
        if (of_rank[rank].empty()) continue;
        text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, of_rank[rank]);
    }
    return text.empty() ? "no rank's own numbers: their sum is too large for its type" : text;
}

}  // namespace lockstep
