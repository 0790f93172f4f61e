// Small SVG drawings as text: a frame with axes in data coordinates, and marks in it. Colours come from the page's style classes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string escape_markup(std::string_view text);  // for HTML and SVG, text and attributes

struct Range {
    double low = 0.0, high = 1.0;
};

// "Round" positions within the range: about `wanted` of them.
std::vector<double> nice_ticks(Range range, int wanted);

struct PlotLayout {
    double width = 960, height = 240;  // of the drawing, in its own units; the page scales it
    double left = 64, right = 16, top = 12, bottom = 36;
    Range x, y;
    std::string_view x_title, y_title;  // y_title stands above the axis
    bool y_ticks = true;
};

class Plot {
public:
    explicit Plot(const PlotLayout& layout);

    double x_at(double x) const;  // data -> drawing
    double y_at(double y) const;  // data -> drawing; grows upwards in data

    // Marks in data coordinates on x; rows of a bar chart give top and height in drawing units. `title` is shown on hover.
    void bar(Range x, double top, double height, std::string_view style, std::string_view title);
    void tick(double x, double top, double height, std::string_view style, std::string_view title);
    void polyline(const std::vector<double>& x, const std::vector<double>& y, std::string_view style);
    void band(const std::vector<double>& x, const std::vector<double>& low, const std::vector<double>& high,
              std::string_view style);
    void label(double left, double top, std::string_view text, std::string_view style);  // drawing units

    std::string finish() const;  // <svg>…</svg>

private:
    void draw_axes();

    PlotLayout layout_;
    std::string body_;
};

}  // namespace lockstep
