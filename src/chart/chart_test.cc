// SPDX-License-Identifier: Apache-2.0
//
// Charts are well-formed SVG with what they were given, whatever the values and names are.
#include "chart/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "chart/markup.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int Count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Chart, LinesHaveAxesPointsAndALegend) {
  const std::string svg =
      RenderLines({.title = "A < B & \"C\"",
                   .x_label = "length",
                   .y_label = "speedup",
                   .series = {{.name = "one", .points = {{512, 1.5}, {4096, 2.5}}},
                              {.name = "two", .points = {{512, 1}, {8192, 0.5}}, .dashed = true}},
                   .baseline = 1});
  EXPECT_THAT(svg, HasSubstr("A &lt; B &amp; &quot;C&quot;"));
  for (const char* part :
       {">512<", ">4096<", ">8192<", ">length<", ">speedup<", ">one<", ">two<", ">0.5<", ">2.5<"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_EQ(Count(svg, "<circle"), 4);
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  const std::string one = RenderLines({.title = "t", .series = {{.name = "s", .points = {{512, 0}}}}});
  EXPECT_THAT(one, Not(HasSubstr("nan")));
  EXPECT_THAT(RenderLines({}), Not(HasSubstr("nan")));
}

TEST(Chart, DoublingsAreEquallyFarApart) {
  LineChart chart{
      .title = "cost", .series = {{.name = "s", .points = {{1, 1}, {2, 3}, {4, 30}}}}, .doubling_y = true};
  const std::string svg = RenderLines(chart);
  for (const char* tick : {">1<", ">2<", ">4<", ">8<", ">16<", ">32<"}) EXPECT_THAT(svg, HasSubstr(tick));
  EXPECT_THAT(svg, Not(HasSubstr(">0<")));
  chart.series[0].points[0].second = 0;  // has no logarithm
  EXPECT_THAT(RenderLines(chart), HasSubstr(">0<"));
}

// Rates of no time at all: a chart of them means nothing, and is one all the same.
TEST(Chart, ValuesThatAreNotFiniteAreMet) {
  for (const double y : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300, 5e-324}) {
    LineChart lines;
    lines.series = {{.name = "a", .points = {{1, y}, {2, 3}}}};
    for (const bool doubling : {false, true}) {
      lines.doubling_y = doubling;
      EXPECT_THAT(RenderLines(lines), HasSubstr("</svg>")) << y;
    }
    BarChart bars;
    bars.bars = {{"a", {y, 1}}};
    EXPECT_THAT(RenderBars(bars), HasSubstr("</svg>")) << y;
  }
}

// A rectangle for each part of each bar, one for each entry of the legend, and one behind all.
TEST(Chart, BarsStack) {
  const std::string svg = RenderBars({.title = "t",
                                      .y_label = "ms",
                                      .parts = {"target", "draft"},
                                      .bars = {{"m 512", {3, 1}}, {"m 1024", {4, 0}}}});
  EXPECT_EQ(Count(svg, "<rect"), 1 + 4 + 2);
  for (const char* part : {">target<", ">draft<", ">m 512<", ">ms<"}) EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(RenderBars({}), Not(HasSubstr("nan")));
}

TEST(Markup, NothingEndsAnElementOrAnAttribute) {
  EXPECT_EQ(EscapeMarkup("a<b> & \"c\"\n\t"), "a&lt;b&gt; &amp; &quot;c&quot;\n\t");
  EXPECT_EQ(EscapeMarkup(std::string_view("\x00\x1b[0m\r", 6)), "  [0m ");
  EXPECT_EQ(EscapeMarkup("\u00e9"), "\u00e9");
}

}  // namespace
}  // namespace longspec
