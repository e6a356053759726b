// SPDX-License-Identifier: Apache-2.0
//
// longspec corpus --ngrams: counts what follows what in texts (draft_text/ngram_counter.h). Reads no weights.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "draft_text/ngram_counter.h"
#include "longspec/options.h"

namespace longspec::cli {

struct NgramFlags {
  bool ngrams = false;  // --ngrams
  std::vector<std::string> shards, merge;
  int weight = 1, order = 3;
  NgramOptions prune;
  bool no_progress = false;
};

void AddNgramOptions(CLI::App& app, NgramFlags* flags);

// The exit status. `texts`: text files, and files of training documents (*.jsonl, *.jsonl.gz).
int CountNgrams(const ModelOptions& model, const std::vector<std::string>& texts, const std::string& output,
                const NgramFlags& flags);

}  // namespace longspec::cli
