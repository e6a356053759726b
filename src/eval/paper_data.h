// SPDX-License-Identifier: Apache-2.0
//
// data/papers.json, which the build puts into the program: tables as the papers print them, and what of our
// results stands under each heading. An array of objects:
//
//   name, title, note    what --paper calls the table; its heading; what its cells mean
//   source               where the figures are from
//   cell, digits         what a cell of ours holds, of "length", "rate" and "speedup", and digits after the
//   point counts_target_token  whether the paper's accepted length has the target's own token in it columns
//   {heading, family, length, paper_cells}: our results of this family (absent: of all) at
//                        this context length (absent: at any) stand beside so many (absent: 1) cells of the
//                        paper
//   rows                 {model, method, cells}: as printed
#pragma once

#include <string_view>

namespace longspec {

std::string_view PapersJson();

}  // namespace longspec
