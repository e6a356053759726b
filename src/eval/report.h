// SPDX-License-Identifier: Apache-2.0
//
// What an evaluation found, for people: a Markdown page with tables and three charts beside it, and the same
// as one HTML page. Pure functions, but for WriteReport.
#pragma once

#include <string>
#include <vector>

#include "eval/cell.h"
#include "longspec/status.h"

namespace longspec {

struct ReportOptions {
  std::string title;
  std::string model = {};                // its short name, for rows beside others
  std::vector<std::string> papers = {};  // tables of eval/paper_tables.h to lay the results out as
};

std::string ReportMarkdown(const std::vector<Cell>& cells, const ReportOptions& options);
// The Markdown with the charts in their places: one page that opens in a browser by itself.
std::string ReportHtml(const std::vector<Cell>& cells, const ReportOptions& options);
std::string SpeedupChart(const std::vector<Cell>& cells);
std::string AcceptedLengthChart(const std::vector<Cell>& cells);
std::string TimeSplitChart(const std::vector<Cell>& cells);

// report.md, report.html, speedup.svg, accepted_length.svg and time_split.svg in the folder.
Status WriteReport(const std::vector<Cell>& cells, const ReportOptions& options, const std::string& out);

}  // namespace longspec
