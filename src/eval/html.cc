// SPDX-License-Identifier: Apache-2.0
#include "eval/html.h"

#include <vector>

#include "chart/markup.h"

namespace longspec {
namespace {

constexpr std::string_view kStyle =
    "body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; "
    "color: #222; background: #fff }\n"
    "div { overflow-x: auto }\n"
    "table { border-collapse: collapse; margin: 1rem 0; font-size: 0.875rem }\n"
    "th, td { border: 1px solid #ccc; padding: 0.25rem 0.6rem; text-align: left }\n"
    "th { background: #f2f2f2 }\n"
    "td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }\n"
    "svg { max-width: 100%; height: auto }\n";

std::string Element(const std::string& name, std::string_view text, const std::string& attributes = "") {
  return "<" + name + attributes + ">" + EscapeMarkup(text) + "</" + name + ">";
}

std::string_view NextLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view Trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// The cells of "| a | b |".
std::vector<std::string_view> CellsOf(std::string_view line) {
  std::vector<std::string_view> cells;
  if (!line.starts_with('|')) return cells;
  line.remove_prefix(1);
  for (size_t end = line.find('|'); end != std::string_view::npos; end = line.find('|')) {
    cells.push_back(Trim(line.substr(0, end)));
    line.remove_prefix(end + 1);
  }
  return cells;
}

std::string RowOf(std::string_view line, const std::string& element, const std::vector<bool>& is_number) {
  std::string row = "<tr>";
  const auto cells = CellsOf(line);
  for (size_t i = 0; i < cells.size(); ++i) {
    row += Element(element, cells[i], i < is_number.size() && is_number[i] ? " class=\"number\"" : "");
  }
  return row + "</tr>\n";
}

// A line of headings, one of alignments, and the rows after them.
std::string TableOf(std::string_view headings, std::string_view& text) {
  std::vector<bool> is_number;
  for (const std::string_view rule : CellsOf(NextLine(text))) is_number.push_back(rule.ends_with(':'));
  std::string table = "<div><table>\n<thead>" + RowOf(headings, "th", is_number) + "</thead>\n<tbody>\n";
  while (text.starts_with('|')) table += RowOf(NextLine(text), "td", is_number);
  return table + "</tbody>\n</table></div>\n";
}

// "![what it shows](name)"; an image that is not there is named.
std::string ImageOf(std::string_view line, const std::map<std::string, std::string>& images) {
  const size_t open = line.rfind('('), close = line.rfind(')');
  const bool is_named = open != std::string_view::npos && close != std::string_view::npos && open < close;
  const std::string name(is_named ? line.substr(open + 1, close - open - 1) : line);
  const auto image = images.find(name);
  return image == images.end() ? Element("p", name) + "\n" : "<figure>" + image->second + "</figure>\n";
}

}  // namespace

std::string MarkdownToHtml(std::string_view markdown, const std::map<std::string, std::string>& images) {
  std::string title, body, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) body += Element("p", paragraph) + "\n";
    paragraph.clear();
  };
  while (!markdown.empty()) {
    const std::string_view line = NextLine(markdown);
    const bool is_text = !line.empty() && line[0] != '#' && line[0] != '|' && !line.starts_with("![");
    if (is_text) {
      paragraph += (paragraph.empty() ? "" : "\n") + std::string(line);
      continue;
    }
    end_paragraph();
    if (line.starts_with("## ")) {
      body += Element("h2", line.substr(3)) + "\n";
    } else if (line.starts_with("# ")) {
      if (title.empty()) title = line.substr(2);
      body += Element("h1", line.substr(2)) + "\n";
    } else if (line.starts_with("|")) {
      body += TableOf(line, markdown);
    } else if (line.starts_with("![")) {
      body += ImageOf(line, images);
    }
  }
  end_paragraph();
  return "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
         "<meta charset=\"utf-8\"/>\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n" +
         Element("title", title) + "\n<style>\n" + std::string(kStyle) + "</style>\n</head>\n<body>\n" +
         body + "</body>\n</html>\n";
}

}  // namespace longspec
