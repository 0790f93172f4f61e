// The picture of a run: time over size, both axes logarithmic, a line per contestant, a ring where a line of Lockstep crosses one
// of another.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "bench/allreduce_bench.h"
#include "configs/scalars.h"

namespace lockstep::bench {

namespace {

constexpr double kLeft = 80, kTop = 40, kWidth = 640, kHeight = 440, kLegendWidth = 300, kBottom = 60;
constexpr std::array<const char*, 8> kColours = {"#c1272d", "#0000a7", "#008176", "#b3b3b3",
                                                 "#eecc16", "#7b3294", "#e08214", "#333333"};

struct Point {
    double bytes = 0, us = 0;
};

struct Series {
    std::string name;
    bool is_lockstep = false;
    std::vector<Point> points;  // by size
};

// "best forced" is one line, whichever setting was best at each size.
std::vector<Series> series_of(const AllreduceBenchResult& result) {
    std::vector<Series> all;
    for (const AllreduceRow& row : result.rows) {
        if (row.tensors != 1) continue;
        const std::string name = fmt::format("{}, {}", row.name, row.kind == "best" ? "best forced" : row.setting);
        auto series = std::ranges::find(all, name, &Series::name);
        if (series == all.end()) series = all.insert(all.end(), {.name = name, .is_lockstep = row.kind == "lockstep"});
        series->points.push_back({static_cast<double>(row.bytes), row.median_us});
    }
    for (Series& series : all) std::ranges::sort(series.points, {}, &Point::bytes);
    return all;
}

// Where two lines cross, in the logarithms; both have the same sizes unless one has failed somewhere.
std::vector<Point> crossovers(const Series& one, const Series& other) {
    std::vector<Point> found;
    for (size_t index = 1; index < std::min(one.points.size(), other.points.size()); ++index) {
        const Point &a = one.points[index - 1], &b = one.points[index], &c = other.points[index - 1], &d = other.points[index];
        if (a.bytes != c.bytes || b.bytes != d.bytes) break;
        const double before = std::log(a.us / c.us), after = std::log(b.us / d.us);
        if (before * after >= 0) continue;
        const double share = before / (before - after);
        found.push_back({a.bytes * std::pow(b.bytes / a.bytes, share), a.us * std::pow(b.us / a.us, share)});
    }
    return found;
}

class Axes {
public:
    explicit Axes(const std::vector<Series>& all) {
        for (const Series& series : all) {
            for (const Point& point : series.points) {
                low_bytes_ = std::min(low_bytes_, point.bytes);
                high_bytes_ = std::max(high_bytes_, point.bytes);
                low_us_ = std::min(low_us_, point.us);
                high_us_ = std::max(high_us_, point.us);
            }
        }
        low_us_ = std::pow(10.0, std::floor(std::log10(low_us_)));
        high_us_ = std::max(std::pow(10.0, std::ceil(std::log10(high_us_))), 10 * low_us_);
        high_bytes_ = std::max(high_bytes_, 2 * low_bytes_);
    }
    double x(double bytes) const { return kLeft + kWidth * std::log(bytes / low_bytes_) / std::log(high_bytes_ / low_bytes_); }
    double y(double us) const { return kTop + kHeight * (1 - std::log(us / low_us_) / std::log(high_us_ / low_us_)); }

    std::string draw() const {
        std::string text =
            fmt::format("<rect x='{}' y='{}' width='{}' height='{}' fill='none' stroke='#888'/>\n", kLeft, kTop, kWidth, kHeight);
        for (double us = low_us_; us <= 1.001 * high_us_; us *= 10) {
            text += fmt::format(
                "<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#ddd'/><text x='{3}' y='{4:.1f}' "
                "text-anchor='end'>{5}</text>\n",
                kLeft, kLeft + kWidth, y(us), kLeft - 6, y(us) + 4, time_label(us));
        }
        for (double bytes = 4; bytes <= high_bytes_; bytes *= 16) {
            if (bytes < low_bytes_) continue;
            text += fmt::format(
                "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#ddd'/><text x='{0:.1f}' y='{3}' "
                "text-anchor='middle'>{4}</text>\n",
                x(bytes), kTop, kTop + kHeight, kTop + kHeight + 18, format_byte_count(static_cast<int64_t>(bytes)));
        }
        return text;
    }

private:
    static std::string time_label(double us) {
        if (us < 1e3) return fmt::format("{:g} us", us);
        return us < 1e6 ? fmt::format("{:g} ms", us / 1e3) : fmt::format("{:g} s", us / 1e6);
    }

    double low_bytes_ = 1e18, high_bytes_ = 4, low_us_ = 1e18, high_us_ = 1e-3;
};

std::string draw_series(const Series& series, const Axes& axes, size_t number) {
    const char* colour = kColours[number % kColours.size()];
    const char* dashes = series.is_lockstep ? "" : " stroke-dasharray='6 3'";
    std::string corners, dots;
    for (const Point& point : series.points) {
        corners += fmt::format("{:.1f},{:.1f} ", axes.x(point.bytes), axes.y(point.us));
        dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'/>", axes.x(point.bytes), axes.y(point.us), colour);
    }
    const double legend_x = kLeft + kWidth + 20, legend_y = kTop + 10 + 20 * static_cast<double>(number);
    return fmt::format(
        "<polyline points='{0}' fill='none' stroke='{1}' stroke-width='{2}'{3}/>{4}\n<line x1='{5}' x2='{6}' y1='{7}' y2='{7}' "
        "stroke='{1}' "
        "stroke-width='{2}'{3}/><text x='{8}' y='{9}'>{10}</text>\n",
        corners, colour, series.is_lockstep ? 2.5 : 1.5, dashes, dots, legend_x, legend_x + 30, legend_y, legend_x + 36,
        legend_y + 4, series.name);
}

std::string draw_crossovers(const std::vector<Series>& all, const Axes& axes) {
    std::string text;
    for (size_t one = 0; one < all.size(); ++one) {
        for (size_t other = one + 1; other < all.size(); ++other) {
            if (!all[one].is_lockstep && !all[other].is_lockstep) continue;
            for (const Point& point : crossovers(all[one], all[other])) {
                text += fmt::format(
                    "<circle class='crossover' cx='{:.1f}' cy='{:.1f}' r='7' fill='none' stroke='#000'><title>{} and {} cross at "
                    "{} bytes</title></circle>\n",
                    axes.x(point.bytes), axes.y(point.us), all[one].name, all[other].name, std::llround(point.bytes));
            }
        }
    }
    return text;
}

}  // namespace

std::string to_svg(const AllreduceBenchResult& result) {
    const std::vector<Series> all = series_of(result);
    std::string text = fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}' font-family='sans-serif' "
        "font-size='12'>\n"
        "<rect width='100%' height='100%' fill='white'/>\n<text x='{2}' y='24' font-size='15'>Allreduce of fp32, {3} ranks{4}: "
        "median time over size</text>\n",
        kLeft + kWidth + kLegendWidth, kTop + kHeight + kBottom, kLeft, result.options.rank_count,
        result.link.empty() ? "" : ", " + result.link);
    if (!all.empty()) {
        const Axes axes(all);
        text += axes.draw();
        for (size_t number = 0; number < all.size(); ++number) text += draw_series(all[number], axes, number);
        text += draw_crossovers(all, axes);
    }
    return text +
           fmt::format(
               "<text x='{}' y='{}' text-anchor='middle'>bytes; a ring marks where Lockstep and another cross</text>\n</svg>\n",
               kLeft + kWidth / 2, kTop + kHeight + 44);
}

}  // namespace lockstep::bench
