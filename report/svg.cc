#include "report/svg.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace lockstep {

std::string escape_markup(std::string_view text) {
    std::string escaped;
    for (const char symbol : text) {
        switch (symbol) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            case '\'':
                escaped += "&#39;";
                break;
            default:
                escaped += static_cast<unsigned char>(symbol) < 0x20 ? ' ' : symbol;
        }
    }
    return escaped;
}

std::vector<double> nice_ticks(Range range, int wanted) {
    const double span = range.high - range.low;
    if (!(span > 0.0) || !std::isfinite(span)) return {range.low};
    const double rough = span / wanted;
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    double step = power;
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
        step = factor * power;
        if (step >= rough * 0.999) break;
    }
    std::vector<double> ticks;
    const double first = std::ceil(range.low / step - 1e-9);
    for (int index = 0; index <= 2 * wanted && (first + index) * step <= range.high + 1e-9 * span; ++index) {
        const double tick = (first + index) * step;
        ticks.push_back(tick == 0.0 ? 0.0 : tick);  // no "-0"
    }
    return ticks;
}

Plot::Plot(const PlotLayout& layout) : layout_(layout) {
    if (!layout_.y_title.empty()) layout_.top += 14;
    if (!(layout_.x.high > layout_.x.low)) layout_.x.high = layout_.x.low + 1.0;
    if (!(layout_.y.high > layout_.y.low)) layout_.y.high = layout_.y.low + 1.0;
    draw_axes();
}

double Plot::x_at(double x) const {
    const double share = std::clamp((x - layout_.x.low) / (layout_.x.high - layout_.x.low), 0.0, 1.0);
    return layout_.left + share * (layout_.width - layout_.left - layout_.right);
}

double Plot::y_at(double y) const {
    const double share = std::clamp((y - layout_.y.low) / (layout_.y.high - layout_.y.low), 0.0, 1.0);
    return layout_.height - layout_.bottom - share * (layout_.height - layout_.top - layout_.bottom);
}

void Plot::draw_axes() {
    auto out = std::back_inserter(body_);
    const double floor = layout_.height - layout_.bottom;
    for (const double tick : nice_ticks(layout_.x, 8)) {
        fmt::format_to(out, R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>)", x_at(tick), layout_.top,
                       floor);
        label(x_at(tick), floor + 15, fmt::format("{:.6g}", tick), "axis mid");
    }
    if (layout_.y_ticks) {
        for (const double tick : nice_ticks(layout_.y, 5)) {
            fmt::format_to(out, R"(<line class="grid" x1="{0:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{2:.1f}"/>)", layout_.left,
                           layout_.width - layout_.right, y_at(tick));
            label(layout_.left - 8, y_at(tick) + 4, fmt::format("{:.6g}", tick), "axis end");
        }
    }
    label((layout_.left + layout_.width - layout_.right) / 2, layout_.height - 4, layout_.x_title, "axis mid");
    if (!layout_.y_title.empty()) label(layout_.left - 8, layout_.top - 8, layout_.y_title, "axis");
}

void Plot::bar(Range x, double top, double height, std::string_view style, std::string_view title) {
    const double left = x_at(x.low), width = x_at(x.high) - left;
    if (width <= 0.0) return;
    fmt::format_to(std::back_inserter(body_),
                   R"(<rect class="{}" x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}"><title>{}</title></rect>)", style, left,
                   top, width, height, escape_markup(title));
}

void Plot::tick(double x, double top, double height, std::string_view style, std::string_view title) {
    fmt::format_to(std::back_inserter(body_),
                   R"(<line class="{0}" x1="{1:.2f}" x2="{1:.2f}" y1="{2:.1f}" y2="{3:.1f}"><title>{4}</title></line>)", style,
                   x_at(x), top, top + height, escape_markup(title));
}

void Plot::polyline(const std::vector<double>& x, const std::vector<double>& y, std::string_view style) {
    auto out = std::back_inserter(body_);
    fmt::format_to(out, R"(<polyline class="{}" points=")", style);
    for (size_t point = 0; point < x.size(); ++point) fmt::format_to(out, "{:.1f},{:.1f} ", x_at(x[point]), y_at(y[point]));
    body_ += "\"/>";
}

void Plot::band(const std::vector<double>& x, const std::vector<double>& low, const std::vector<double>& high,
                std::string_view style) {
    auto out = std::back_inserter(body_);
    fmt::format_to(out, R"(<polygon class="{}" points=")", style);
    for (size_t point = 0; point < x.size(); ++point) fmt::format_to(out, "{:.1f},{:.1f} ", x_at(x[point]), y_at(high[point]));
    for (size_t point = x.size(); point-- > 0;) fmt::format_to(out, "{:.1f},{:.1f} ", x_at(x[point]), y_at(low[point]));
    body_ += "\"/>";
}

void Plot::label(double left, double top, std::string_view text, std::string_view style) {
    fmt::format_to(std::back_inserter(body_), R"(<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>)", style, left, top,
                   escape_markup(text));
}

std::string Plot::finish() const {
    return fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img">{}</svg>)", layout_.width, layout_.height, body_);
}

}  // namespace lockstep
