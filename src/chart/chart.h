// SPDX-License-Identifier: Apache-2.0
//
// Small SVG charts: lines over a logarithmic axis, and stacked bars. Pure functions of their data.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace longspec {

struct LineSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x > 0
  bool dashed = false;
};

struct LineChart {
  std::string title, x_label, y_label;
  std::vector<LineSeries> series;
  double baseline = 0;      // drawn as a thin line if it is not 0
  bool doubling_y = false;  // y is logarithmic too; all y > 0, or it is not
};

struct BarChart {
  std::string title, y_label;
  std::vector<std::string> parts;                                 // names, bottom first
  std::vector<std::pair<std::string, std::vector<double>>> bars;  // label, values by part
};

std::string RenderLines(const LineChart& chart);
std::string RenderBars(const BarChart& chart);

}  // namespace longspec
