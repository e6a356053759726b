// SPDX-License-Identifier: Apache-2.0
//
// data/papers.json, which the build puts into the program: tables as the papers print them, and what of our
// results stands under each heading. An array of objects:
//
//   name, title, note    what --paper calls the table, PAPER-TABLE; its heading; what its cells mean
//   source               where the figures are from
//   cell, digits         what a cell of ours holds, of "length", "rate", "speedup", "rougeL" (against plain
//                        decoding's text, times 100), "draft_ms", "target_ms" and "verify_ms" (of a round);
//                        digits after the point
//   counts_target_token  whether the paper's accepted length has the target's own token in it
//   counts_prompt        whether its times have prompt evaluation in them (absent: no)
//   shows_memory         whether each of our methods has a line of its memory (absent: no)
//   shows_distance       whether an approximate one has a line of how far it is from the exact text (absent:
//                        no)
//   columns              {heading, family, subset, length or above and up_to, paper_cells}: our results of
//                        this family (absent: of all), this subset of it (absent: all of it) at this context
//                        length, or at those beyond `above` and up to `up_to` (absent: at any) stand beside
//                        so many (absent: 1) cells of the paper
//   rows                 {model, method, cells}: as printed
#pragma once

#include <string_view>

namespace longspec {

std::string_view PapersJson();

}  // namespace longspec
