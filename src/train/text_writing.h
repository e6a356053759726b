// SPDX-License-Identifier: Apache-2.0
//
// The target writes on after the beginnings that `longspec features --write N --write-later` keeps, many at
// once. What comes out is a folder of shards of tokens alone, one for each batch of texts, complete or not
// there; called again on the same folder, the run goes on after the last one. The texts are a pure function
// of options and beginnings (on one kind of device), wherever a run was stopped. Free of LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec::train {

struct TextOptions {
  std::vector<std::string> beginnings;       // folders of feature shards in which nothing is to be learned
  std::string model;                         // GGUF file they were made with
  std::string output;                        // folder for the shards, made if it is not there
  int max_tokens = 256;                      // written after a beginning at most
  std::vector<float> temperatures = {0.7F};  // in turn; 0: greedy
  uint64_t seed = 1;
  int at_once = 512;  // texts of a batch; memory grows with them
  // Which beginnings, of those that leave room in the model's context: so many left out, so many taken (0:
  // all).
  int64_t first = 0, most = 0;
  std::string device = "cuda";  // or "cuda:1", "cpu"
};

struct TextProgress {
  int64_t texts = 0, all = 0;  // that are in the folder, of
  int64_t tokens = 0;          // of theirs, written by this call
};

struct TextSummary {
  int64_t tokens = 0, texts = 0, shards = 0;  // of the folder, earlier calls included
  int64_t left_out = 0;                       // beginnings that leave no room for max_tokens
};

// on_progress, called after each token of a batch and after each shard, returns false to stop: what is
// complete is kept, and the result is kCancelled. Of a folder that is finished nothing is computed.
// Everything in a text is to be learned. kInvalidArgument names the option or the folder that cannot be.
Result<TextSummary> WriteTexts(const TextOptions& options,
                               const std::function<bool(const TextProgress&)>& on_progress);

}  // namespace longspec::train
