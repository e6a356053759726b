// SPDX-License-Identifier: Apache-2.0
#include "chart/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <string_view>

#include "base/print.h"
#include "base/to_int.h"
#include "chart/markup.h"

namespace longspec {
namespace {

// Distinct for colour-blind readers too (Okabe and Ito).
constexpr std::array<const char*, 7> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                 "#E69F00", "#56B4E9", "#000000"};
constexpr double kWidth = 720, kHeight = 420, kLeft = 64, kRight = 190, kTop = 44, kBottom = 56;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;

const char* Colour(size_t i) { return kColours[i % kColours.size()]; }

std::string Text(double x, double y, std::string_view text, const char* anchor = "middle", int size = 12,
                 const char* more = "") {
  return Print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\"%s>", x, y, anchor, size,
               more) +
         EscapeMarkup(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2, const char* stroke, const char* more = "") {
  return Print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n", x1, y1, x2, y2,
               stroke, more);
}

// A step of 1, 2 or 5 times a power of ten that makes some five ticks up to `most`.
double Step(double most) {
  const double power = std::pow(10.0, std::floor(std::log10(most / 4)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (most / (power * factor) <= 6) return power * factor;
  }
  return power * 10;
}

// From 0 to a little more than the largest value, or by doublings.
class YAxis {
 public:
  explicit YAxis(double most) {
    const double step = Step(std::max(most, 1e-3));
    const int n = ToInt(std::ceil(most / step + 1e-9), 1, 20);
    for (int i = 0; i <= n; ++i) ticks_.push_back(i * step);
  }
  // Both values above 0.
  static YAxis Doubling(double least, double most) {
    YAxis axis;
    const int first = ToInt(std::floor(std::log2(least)), -1000, 1000);
    const int last = ToInt(std::ceil(std::log2(most)), first + 1, first + 60);
    for (int i = first; i <= last; ++i) axis.ticks_.push_back(std::exp2(i));
    axis.logarithmic_ = true;
    return axis;
  }

  double At(double value) const {
    const double low = Scaled(ticks_.front()), high = Scaled(ticks_.back());
    return kTop + kPlotHeight * (1 - (Scaled(value) - low) / (high - low));
  }
  std::string Render(const std::string& label) const {
    std::string svg;
    for (const double tick : ticks_) {
      svg += Line(kLeft, At(tick), kLeft + kPlotWidth, At(tick), "#ddd");
      svg += Text(kLeft - 8, At(tick) + 4, Print("%g", tick), "end");
    }
    svg += Line(kLeft, kTop, kLeft, kTop + kPlotHeight, "#333");
    return svg + Text(18, kTop + kPlotHeight / 2, label, "middle", 12,
                      Print(" transform=\"rotate(-90 18 %.1f)\"", kTop + kPlotHeight / 2).c_str());
  }

 private:
  YAxis() = default;
  double Scaled(double value) const { return logarithmic_ ? std::log2(value) : value; }

  std::vector<double> ticks_;
  bool logarithmic_ = false;
};

std::string Open(const std::string& title) {
  return Print(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
             "%.0f\" "
             "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
             kWidth, kHeight, kWidth, kHeight) +
         Text(kLeft, 24, title, "start", 15, " font-weight=\"bold\"");
}

std::string LegendText(size_t i, const std::string& name) {
  return Text(kLeft + kPlotWidth + 46, kTop + 16 + 20 * static_cast<double>(i), name, "start", 11);
}

}  // namespace

std::string RenderLines(const LineChart& chart) {
  std::set<double> ticks;
  double most = chart.baseline, least = HUGE_VAL;
  for (const LineSeries& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      ticks.insert(x);
      most = std::max(most, y);
      least = std::min(least, y);
    }
  }
  const double low = ticks.empty() ? 1 : std::log(*ticks.begin()),
               high = ticks.empty() ? 2 : std::log(*ticks.rbegin());
  const auto x_at = [&](double x) {
    const double share = high > low ? (std::log(x) - low) / (high - low) : 0.5;
    return kLeft + 20 + share * (kPlotWidth - 40);
  };
  const YAxis y_axis =
      chart.doubling_y && least > 0 && least <= most ? YAxis::Doubling(least, most) : YAxis(most);
  std::string svg = Open(chart.title) + y_axis.Render(chart.y_label);
  svg += Line(kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight, "#333");
  for (const double x : ticks) svg += Text(x_at(x), kTop + kPlotHeight + 18, Print("%g", x));
  svg += Text(kLeft + kPlotWidth / 2, kHeight - 14, chart.x_label);
  if (chart.baseline != 0) {
    const double y = y_axis.At(chart.baseline);
    svg += Line(kLeft, y, kLeft + kPlotWidth, y, "#333", " stroke-dasharray=\"2 3\"");
  }
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const LineSeries& series = chart.series[i];
    const char* dash = series.dashed ? " stroke-dasharray=\"6 4\" stroke-width=\"2\"" : " stroke-width=\"2\"";
    for (size_t k = 0; k < series.points.size(); ++k) {
      const double x = x_at(series.points[k].first), y = y_axis.At(series.points[k].second);
      if (k > 0) {
        svg += Line(x_at(series.points[k - 1].first), y_axis.At(series.points[k - 1].second), x, y, Colour(i),
                    dash);
      }
      svg += Print("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y, Colour(i));
    }
    const double y = kTop + 12 + 20 * static_cast<double>(i);
    svg += Line(kLeft + kPlotWidth + 16, y, kLeft + kPlotWidth + 40, y, Colour(i), dash);
    svg += LegendText(i, series.name);
  }
  return svg + "</svg>\n";
}

std::string RenderBars(const BarChart& chart) {
  double most = 0;
  for (const auto& [label, values] : chart.bars) {
    double sum = 0;
    for (const double value : values) sum += value;
    most = std::max(most, sum);
  }
  const YAxis y_axis(most);
  std::string svg = Open(chart.title) + y_axis.Render(chart.y_label);
  const double slot = kPlotWidth / std::max<double>(1, static_cast<double>(chart.bars.size()));
  const double width = std::min(44.0, 0.7 * slot);
  for (size_t b = 0; b < chart.bars.size(); ++b) {
    const auto& [label, values] = chart.bars[b];
    const double x = kLeft + slot * (static_cast<double>(b) + 0.5);
    double sum = 0;
    for (size_t part = 0; part < values.size(); ++part) {
      const double top = y_axis.At(sum + values[part]), bottom = y_axis.At(sum);
      sum += values[part];
      svg += Print("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
                   x - width / 2, top, width, bottom - top, Colour(part));
    }
    const double y = kTop + kPlotHeight + 14;
    svg += Text(x, y, label, "end", 10, Print(" transform=\"rotate(-25 %.1f %.1f)\"", x, y).c_str());
  }
  svg += Line(kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight, "#333");
  for (size_t part = 0; part < chart.parts.size(); ++part) {
    svg += Print("<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>\n",
                 kLeft + kPlotWidth + 22, kTop + 5 + 20 * static_cast<double>(part), Colour(part));
    svg += LegendText(part, chart.parts[part]);
  }
  return svg + "</svg>\n";
}

}  // namespace longspec
