// SPDX-License-Identifier: Apache-2.0
//
// A report's Markdown as one HTML page that needs nothing else: its charts are part of it. Understands what
// ReportMarkdown writes: headings, paragraphs, tables and images, each in lines of their own. Pure function.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace longspec {

// `images`: SVG documents by the name the Markdown has for them. The page is well-formed XML too.
std::string MarkdownToHtml(std::string_view markdown, const std::map<std::string, std::string>& images);

}  // namespace longspec
