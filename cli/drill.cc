#include "cli/drill.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "core/clock.h"
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

struct Drill {
    std::string_view kind;    // nan | flip | clock
    int64_t rank = 0;         // of nan and flip
    int64_t step = 0;         // of nan and flip
    double clock_skew_s = 0;  // of clock
};

template <typename Number>
bool read_number(std::string_view text, Number& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

bool read_drill(std::string_view text, Drill& drill) {
    const size_t first = text.find(':');
    if (first == std::string_view::npos) return false;
    drill.kind = text.substr(0, first);
    const std::string_view rest = text.substr(first + 1);
    if (drill.kind == "clock") return read_number(rest, drill.clock_skew_s) && std::abs(drill.clock_skew_s) <= 1e9;
    if (drill.kind != "nan" && drill.kind != "flip") return false;
    const size_t second = rest.find(':');
    return second != std::string_view::npos && read_number(rest.substr(0, second), drill.rank) &&
           read_number(rest.substr(second + 1), drill.step) && drill.rank >= 0 && drill.step >= 1;
}

// None: nothing is asked for.
std::optional<Drill> drill_of_environment() {
    const char* const variable = std::getenv("LOCKSTEP_DRILL");
    if (variable == nullptr || *variable == '\0') return std::nullopt;
    Drill drill;
    if (read_drill(variable, drill)) return drill;
    throw ConfigError(fmt::format(
        "LOCKSTEP_DRILL: found \"{}\"; allowed: nan:RANK:STEP, flip:RANK:STEP with steps from 1, or clock:SECONDS up to 1e9",
        variable));
}

}  // namespace

void skew_clock_from_environment() {
    const std::optional<Drill> drill = drill_of_environment();
    if (drill && drill->kind == "clock") skew_wall_clock(drill->clock_skew_s);
}

std::unique_ptr<StepObserver> drill_from_environment(const World& world) {
    const std::optional<Drill> drill = drill_of_environment();
    if (!drill || drill->kind == "clock") return nullptr;
    if (drill->rank >= world.size)
        throw ConfigError(fmt::format("LOCKSTEP_DRILL: found rank {}; allowed: 0 to {}", drill->rank, world.size - 1));
    if (drill->rank != world.rank) return nullptr;
    return std::make_unique<Spoiler>(drill->kind == "flip", drill->step);
}

}  // namespace lockstep::cli
