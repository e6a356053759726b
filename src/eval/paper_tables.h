// SPDX-License-Identifier: Apache-2.0
//
// Results in the form of the papers' tables, with what the papers print beside them. Other models on other
// machines: the rows say which, and only their pattern can be compared.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/cell.h"

namespace longspec {

std::vector<std::string> PaperTableNames();
// Names that stand for all tables of a paper: "specextend" for "specextend-table2" and others.
std::vector<std::string> PaperNames();

// kInvalidArgument lists the known names.
Status CheckPaperTable(std::string_view name);

// Markdown: the paper's rows, then one for plain decoding and one for each method of `cells`, with the number
// of prompts in each cell, and how many of their texts loop. Columns for which there are no cells show "-".
// `model` names what the cells were measured with. Of a paper's name: all its tables. REQUIRES: a known name.
std::string PaperTableMarkdown(std::string_view name, const std::vector<Cell>& cells,
                               const std::string& model);

}  // namespace longspec
