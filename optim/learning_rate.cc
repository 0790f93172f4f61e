#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

void require(bool condition, const std::string& message) {
    if (!condition) throw ConfigError(message);
}

bool falls_smoothly(LearningRateOptions::Shape shape) {
    return shape == LearningRateOptions::Shape::cosine || shape == LearningRateOptions::Shape::polynomial;
}

double batch_factor(const LearningRateOptions& options) {
    const double quotient = static_cast<double>(options.batch_global) / static_cast<double>(options.base_batch);
    switch (options.scaling) {
        case LearningRateOptions::Scaling::none:
            return 1.0;
        case LearningRateOptions::Scaling::sqrt:
            return std::sqrt(quotient);
        case LearningRateOptions::Scaling::linear:
            return quotient;
    }
    return 1.0;
}

void check_steps(const LearningRateOptions& options) {
    if (options.shape != LearningRateOptions::Shape::step) return;
    for (const int64_t step : options.step_at) {
        require(step >= options.warmup_steps,
                fmt::format("lr.at: step {} lies inside the warmup of {} steps, where the rate still rises; shorten lr.warmup or "
                            "move the drop",
                            step, options.warmup_steps));
    }
}

}  // namespace

LearningRate::LearningRate(const LearningRateOptions& options) : options_(options) {
    require(std::isfinite(options.base) && options.base > 0.0,
            fmt::format("lr.base: found {}; allowed: a finite number above 0", options.base));
    require(options.base_batch > 0 && options.batch_global > 0,
            fmt::format("lr.base_batch {} and batch.global {}: both must be above 0", options.base_batch, options.batch_global));
    require(options.warmup_steps >= 0, fmt::format("lr.warmup: found {} steps; allowed: 0 and more", options.warmup_steps));
    require(std::isfinite(options.warmup_from),
            fmt::format("lr.warmup_from: found {}; allowed: a finite number", options.warmup_from));
    require(std::isfinite(options.factor) && options.factor > 0.0,
            fmt::format("lr.factor: found {}; allowed: a finite number above 0", options.factor));
    require(std::is_sorted(options.step_at.begin(), options.step_at.end()), "lr.at: the steps must rise; put them in order");
    check_steps(options);
    if (!falls_smoothly(options.shape)) return;
    require(options.total_steps > 0, "lr.schedule: cosine and polynomial need the run's length; set train.duration");
    require(options.power > 0.0, fmt::format("lr.power: found {}; allowed: above 0", options.power));
    require(options.final_rate >= 0.0 && options.final_rate <= peak(),
            fmt::format("lr.final_rate: found {}; allowed: 0 up to the peak rate {}", options.final_rate, peak()));
}

double LearningRate::peak() const { return options_.base * batch_factor(options_); }

double LearningRate::start() const {
    const double wanted = options_.warmup_from < 0.0 ? options_.base : options_.warmup_from;
    return std::min(wanted, peak());
}

double LearningRate::at(int64_t step) const {
    if (step < options_.warmup_steps) {
        return start() + (peak() - start()) * static_cast<double>(step + 1) / static_cast<double>(options_.warmup_steps);
    }
    if (options_.shape == LearningRateOptions::Shape::constant) return peak();
    if (options_.shape == LearningRateOptions::Shape::step) {
        const auto passed = std::upper_bound(options_.step_at.begin(), options_.step_at.end(), step) - options_.step_at.begin();
        return peak() * std::pow(options_.factor, static_cast<double>(passed));
    }
    const auto falling_steps = static_cast<double>(std::max<int64_t>(1, options_.total_steps - options_.warmup_steps));
    const double progress = std::min(1.0, static_cast<double>(step - options_.warmup_steps) / falling_steps);
    const double remaining = options_.shape == LearningRateOptions::Shape::cosine
                                 ? 0.5 * (1.0 + std::cos(std::numbers::pi * progress))
                                 : std::pow(1.0 - progress, options_.power);
    return options_.final_rate + (peak() - options_.final_rate) * remaining;
}

std::string LearningRate::warning() const {
    if (options_.total_steps <= 0 || options_.warmup_steps < options_.total_steps) return {};
    return fmt::format(
        "warmup of {} steps fills the whole run of {} steps: the rate ends at {:.6g}, the peak is {:.6g}; shorten lr.warmup or "
        "lengthen train.duration",
        options_.warmup_steps, options_.total_steps, at(options_.total_steps - 1), peak());
}

}  // namespace lockstep
