// SPDX-License-Identifier: Apache-2.0
//
// A text with a hole in it, for models that were trained to fill one in. Plain values; needs no library.
#pragma once

#include <string>
#include <vector>

namespace longspec {

// Something that helps to fill the hole: a part of another file, say.
struct InfillChunk {
  std::string filename = "tmp";
  std::string text = {};
};

struct InfillText {
  std::string prefix = {}, suffix = {};  // before and behind the hole; either may be empty
  // Goes on with the prefix: what an editor's user has just written. Names of control tokens are tokens here,
  // and text everywhere else.
  std::string prompt = {};
  std::vector<InfillChunk> chunks = {};
};

// How it becomes tokens. Nothing of it depends on what a model was asked before.
struct InfillLayout {
  bool repository = true;  // chunks are files of a repository; false: there is the text with its hole alone
  bool suffix_first = false;
  // Tokens of the text around the hole: of the prefix the last three quarters of so many, of the suffix the
  // first of what is left but for two and for the prompt. 0: all.
  int window = 0;
  // The window before the hole begins at a line that its content chooses, so that it begins there after a key
  // more, too: it has between half and all of its tokens.
  bool anchored = false;
  int suffix = -1;     // most tokens of the suffix; -1: what the window leaves
  int context = 0;     // what it has to fit into beside the window, chunks from the last on; 0: all of them
  int n_predict = -1;  // those of an answer, twice as many of which the chunks leave room for; -1 is -1
};

}  // namespace longspec
