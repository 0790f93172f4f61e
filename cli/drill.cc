#include "cli/drill.h"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"

namespace lockstep::cli {

namespace {

class Spoiler final : public StepObserver {
public:
    Spoiler(bool flips, int64_t step) : flips_(flips), step_(step) {}

    void after_step(int64_t step, Replica& replica) override {
        if (step + 1 != step_) return;
        const size_t first_of_forward = replica.arena().entries().size() - 2;  // in front of the control entry
        float& value = replica.arena().value(first_of_forward).front();
        value =
            flips_ ? std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 0x0040'0000U) : std::numeric_limits<float>::quiet_NaN();
        log::warn_here("drill: the first number of {} was spoilt before step {}",
                       replica.arena().entries()[first_of_forward].spec.name, step_);
    }
    void after_evaluation(int64_t, const EvaluationResult&) override {}

private:
    const bool flips_;
    const int64_t step_;
};

std::optional<int64_t> number(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
    return value;
}

}  // namespace

std::unique_ptr<StepObserver> drill_from_environment(const World& world) {
    const char* const variable = std::getenv("LOCKSTEP_DRILL");
    if (variable == nullptr || *variable == '\0') return nullptr;
    const std::string_view text = variable;
    const size_t first = text.find(':');
    const size_t second = first == std::string_view::npos ? first : text.find(':', first + 1);
    const std::string_view kind = text.substr(0, first);
    const auto part = [&](size_t begin, size_t end) {
        return begin == std::string_view::npos ? std::nullopt : number(text.substr(begin + 1, end));
    };
    const std::optional<int64_t> rank = part(first, second - first - 1);
    const std::optional<int64_t> step = part(second, std::string_view::npos);
    if ((kind != "nan" && kind != "flip") || !rank || !step) {
        throw ConfigError(fmt::format("LOCKSTEP_DRILL: found \"{}\"; allowed: nan:RANK:STEP or flip:RANK:STEP", text));
    }
    if (*rank != world.rank) return nullptr;
    return std::make_unique<Spoiler>(kind == "flip", *step);
}

}  // namespace lockstep::cli
