// The formulas reproduce the published comparison of schedules on two networks, and the predictions agree with the simulator.
#include "collectives/schedule/cost_model.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "collectives/schedule/simulator.h"

namespace lockstep::schedule {
namespace {

constexpr LinkModel kGigabit{.latency_us = 500, .overhead_us = 10, .wire_ns_per_byte = 8, .sum_ns_per_byte = 0.08};
constexpr LinkModel kFast{.latency_us = 20, .overhead_us = 5, .wire_ns_per_byte = 0.35, .sum_ns_per_byte = 0.08};
constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * 1024;

double milliseconds(Algorithm algorithm, int radix, int ranks, int64_t bytes, const LinkModel& link) {
    return closed_form_us(algorithm, radix, ranks, bytes, link) * 1e-3;
}

// Names as in the tables: RD = exchange of radix 2, Xk, HDk, ring, DBT.
double by_name(const std::string& name, int ranks, int64_t bytes, const LinkModel& link) {
    if (name == "RD") return milliseconds(Algorithm::exchange, 2, ranks, bytes, link);
    if (name == "ring") return milliseconds(Algorithm::ring, 0, ranks, bytes, link);
    if (name == "DBT") return milliseconds(Algorithm::double_tree, 0, ranks, bytes, link);
    if (name[0] == 'X') return milliseconds(Algorithm::exchange, std::stoi(name.substr(1)), ranks, bytes, link);
    return milliseconds(Algorithm::halving_doubling, std::stoi(name.substr(2)), ranks, bytes, link);
}

struct Figure {
    int ranks;
    int64_t bytes;
    std::string schedule;
    double ms;
    bool is_best = true;
};

// Best schedule of one size and number of ranks, wide radices up to 16.
double best_ms(int ranks, int64_t bytes, const LinkModel& link) {
    double best = std::numeric_limits<double>::infinity();
    for (const std::string name : {"RD", "X4", "X8", "X16", "HD2", "HD4", "HD8", "HD16", "ring", "DBT"}) {
        if (name.size() > 1 && std::isdigit(name.back()) != 0) {
            const int radix = std::stoi(name.substr(name[0] == 'X' ? 1 : 2));
            if (radix > ranks) continue;
        }
        best = std::min(best, by_name(name, ranks, bytes, link));
    }
    return best;
}

// The tables print two or three digits.
constexpr double kPrinted = 0.045;

void expect_table(const std::vector<Figure>& figures, const LinkModel& link) {
    for (const Figure& figure : figures) {
        const double ms = by_name(figure.schedule, figure.ranks, figure.bytes, link);
        EXPECT_NEAR(ms, figure.ms, kPrinted * figure.ms) << figure.schedule << ", " << figure.ranks << " ranks, " << figure.bytes;
        if (!figure.is_best) continue;
        EXPECT_NEAR(best_ms(figure.ranks, figure.bytes, link), figure.ms, kPrinted * figure.ms)
            << figure.ranks << ' ' << figure.bytes;
    }
}

TEST(ClosedForms, ReproduceTheTableOfTheGigabitNetwork) {
    expect_table({{2, 4, "RD", .52},
                  {2, 4 * kKiB, "RD", .55},
                  {2, 64 * kKiB, "RD", 1.05},
                  {2, kMiB, "RD", 9.0},
                  {2, 25 * kMiB, "ring", 211},
                  {2, 100 * kMiB, "ring", 840},
                  {2, 512 * kMiB, "ring", 4300},
                  {4, 4, "X4", .54},
                  {4, 4, "RD", 1.0, false},
                  {4, 4 * kKiB, "X4", .64},
                  {4, 64 * kKiB, "HD4", 1.9},
                  {4, kMiB, "HD4", 13.7},
                  {4, 25 * kMiB, "HD4", 317},
                  {4, 25 * kMiB, "ring", 317},
                  {4, 100 * kMiB, "ring", 1260},
                  {4, 512 * kMiB, "ring", 6450},
                  {8, 4, "X8", .58},
                  {8, 4, "RD", 1.6, false},
                  {8, 4, "ring", 7.3, false},
                  {8, 4 * kKiB, "X8", .81},
                  {8, 64 * kKiB, "HD8", 2.1},
                  {8, 64 * kKiB, "ring", 8.2, false},
                  {8, kMiB, "HD8", 15.9},
                  {8, kMiB, "ring", 22, false},
                  {8, 25 * kMiB, "HD8", 370},
                  {8, 25 * kMiB, "ring", 374, false},
                  {8, 100 * kMiB, "ring", 1480},
                  {8, 512 * kMiB, "ring", 7520},
                  {256, 4, "X16", 1.3},
                  {256, 4, "RD", 4.2, false},
                  {256, 4, "ring", 265, false},
                  {256, 4 * kKiB, "X16", 2.3},
                  {256, 64 * kKiB, "HD16", 3.7},
                  {256, kMiB, "HD16", 19},
                  {256, kMiB, "DBT", 50, false},
                  {256, kMiB, "ring", 282, false},
                  {256, 25 * kMiB, "HD16", 423},
                  {256, 25 * kMiB, "DBT", 549, false},
                  {256, 25 * kMiB, "ring", 683, false},
                  {256, 100 * kMiB, "HD16", 1680},
                  {256, 100 * kMiB, "ring", 1940, false},
                  {256, 512 * kMiB, "HD16", 8600},
                  {1024, 4, "X16", 2.0},
                  {1024, 4, "RD", 5.2, false},
                  {1024, 4, "ring", 1060, false},
                  {1024, 4 * kKiB, "X4", 3.2},
                  {1024, 64 * kKiB, "HD16", 5.0},
                  {1024, kMiB, "HD16", 21},
                  {1024, kMiB, "DBT", 55, false},
                  {1024, kMiB, "ring", 1080, false},
                  {1024, 25 * kMiB, "HD16", 425},
                  {1024, 25 * kMiB, "ring", 1480, false},
                  {1024, 100 * kMiB, "HD16", 1690},
                  {1024, 100 * kMiB, "ring", 2740, false},
                  {1024, 512 * kMiB, "HD16", 8630},
                  {1024, 512 * kMiB, "DBT", 9210, false}},
                 kGigabit);
}

TEST(ClosedForms, ReproduceTheTableOfTheFastNetwork) {
    expect_table({{2, 4, "RD", .030},
                  {2, 4 * kKiB, "RD", .032},
                  {2, 64 * kKiB, "RD", .058},
                  {2, kMiB, "ring", .43},
                  {2, kMiB, "RD", .48, false},
                  {2, 25 * kMiB, "ring", 9.2},
                  {2, 100 * kMiB, "ring", 36.8},
                  {2, 512 * kMiB, "ring", 188},
                  {4, 4, "X4", .040},
                  {4, 4, "RD", .060, false},
                  {4, 4 * kKiB, "X4", .045},
                  {4, 64 * kKiB, "RD", .116},
                  {4, kMiB, "HD4", .69},
                  {4, 25 * kMiB, "ring", 13.9},
                  {4, 100 * kMiB, "ring", 55},
                  {4, 512 * kMiB, "ring", 282},
                  {8, 4, "X8", .060},
                  {8, 4, "RD", .090, false},
                  {8, 4, "ring", .42, false},
                  {8, 4 * kKiB, "X8", .072},
                  {8, 64 * kKiB, "HD8", .165},
                  {8, kMiB, "HD8", .84},
                  {8, kMiB, "ring", 1.1, false},
                  {8, 25 * kMiB, "ring", 16.5},
                  {8, 100 * kMiB, "ring", 65},
                  {8, 512 * kMiB, "ring", 329},
                  {256, 4, "X4", .16},
                  {256, 4, "ring", 15, false},
                  {256, 4 * kKiB, "X4", .18},
                  {256, 64 * kKiB, "HD4", .37},
                  {256, kMiB, "HD4", 1.1},
                  {256, kMiB, "ring", 16, false},
                  {256, 25 * kMiB, "HD4", 20.7},
                  {256, 25 * kMiB, "DBT", 25.8, false},
                  {256, 25 * kMiB, "ring", 34, false},
                  {256, 100 * kMiB, "HD4", 82},
                  {256, 100 * kMiB, "DBT", 88, false},
                  {256, 100 * kMiB, "ring", 88, false},
                  {256, 512 * kMiB, "ring", 390},
                  {1024, 4, "X4", .20},
                  {1024, 4, "ring", 61, false},
                  {1024, 4 * kKiB, "X4", .23},
                  {1024, 64 * kKiB, "HD4", .45},
                  {1024, kMiB, "HD4", 1.2},
                  {1024, kMiB, "DBT", 3.1, false},
                  {1024, 25 * kMiB, "HD4", 20.8},
                  {1024, 25 * kMiB, "DBT", 26.8, false},
                  {1024, 25 * kMiB, "ring", 80, false},
                  {1024, 100 * kMiB, "HD4", 82},
                  {1024, 100 * kMiB, "DBT", 90, false},
                  {1024, 100 * kMiB, "ring", 135, false},
                  {1024, 512 * kMiB, "DBT", 411}},
                 kFast);
}

TEST(ClosedForms, GiveTheLatencySumsOfResNet50sTensors) {
    constexpr int kTensors = 161;
    EXPECT_NEAR(kTensors * by_name("X8", 8, 1, kGigabit), 93, 1);
    EXPECT_NEAR(kTensors * by_name("ring", 8, 1, kGigabit) * 1e-3, 1.2, 0.05);
}

// Where two formulas cross, by bisection.
double crossover_bytes(const std::string& small, const std::string& large, int ranks, const LinkModel& link) {
    int64_t low = 1;
    int64_t high = int64_t{1} << 40;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (by_name(small, ranks, middle, link) < by_name(large, ranks, middle, link) ? low : high) = middle;
    }
    return static_cast<double>(high);
}

TEST(ClosedForms, CrossWhereTheyShould) {
    const auto expect_crossing = [](const std::string& small, const std::string& large, const LinkModel& link,
                                    const std::vector<std::pair<int, double>>& kilobytes) {
        for (const auto& [ranks, expected] : kilobytes) {
            EXPECT_NEAR(crossover_bytes(small, large, ranks, link) * 1e-3, expected, 0.03 * expected)
                << small << ' ' << large << ' ' << ranks;
        }
    };
    expect_crossing("RD", "HD2", kGigabit, {{4, 254}, {8, 153}, {256, 86}, {1024, 80}});
    expect_crossing("RD", "HD2", kFast, {{4, 218}, {8, 148}, {256, 90}, {1024, 85}});
}

struct Comparison {
    Plan plan;
    double tolerance;
};

// The formulas of predicted_us know nothing of single events; where they are exact, they must be exact.
TEST(Predictions, AgreeWithTheSimulator) {
    const Comparison comparisons[] = {{{.algorithm = Algorithm::exchange, .radix = 2}, 0.02},
                                      {{.algorithm = Algorithm::exchange, .radix = 16}, 0.05},
                                      {{.algorithm = Algorithm::halving_doubling, .radix = 2}, 0.02},
                                      {{.algorithm = Algorithm::halving_doubling, .radix = 4}, 0.05},
                                      {{.algorithm = Algorithm::ring}, 0.02},
                                      {{.algorithm = Algorithm::ring, .chunks = 8}, 0.25},
                                      {{.algorithm = Algorithm::tree}, 0.05},
                                      {{.algorithm = Algorithm::tree, .chunks = 8}, 0.35},
                                      {{.algorithm = Algorithm::double_tree, .chunks = 2}, 0.45},
                                      {{.algorithm = Algorithm::double_tree, .chunks = 16}, 0.45}};
    for (const LinkModel& link : {kGigabit, kFast}) {
        for (const Comparison& comparison : comparisons) {
            for (const int ranks : {2, 4, 16, 32}) {
                for (const int64_t bytes : {64 * kKiB, kMiB, 64 * kMiB}) {
                    const double simulated_us = simulate_flat(comparison.plan, ranks, bytes, {.remote = link}).time_us;
                    EXPECT_NEAR(predicted_us(comparison.plan, ranks, bytes, link), simulated_us,
                                comparison.tolerance * simulated_us)
                        << describe(comparison.plan) << ", " << ranks << " ranks, " << bytes << " bytes, L " << link.latency_us;
                }
            }
        }
    }
}

}  // namespace
}  // namespace lockstep::schedule
