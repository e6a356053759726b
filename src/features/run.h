// SPDX-License-Identifier: Apache-2.0
//
// Making a folder of feature shards from documents. Shards are written one by one, each complete or not
// there; called again on the same folder, the run goes on after the last one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "features/continuations.h"
#include "features/documents.h"
#include "features/extract.h"
#include "longspec/status.h"

namespace longspec {

enum class LearnFrom : uint8_t { kAnswers, kEverything };  // of messages; texts are learned whole

struct FeatureRunOptions {
  std::vector<std::string> inputs;
  std::string output;                      // a folder, made if it is not there
  int length = 1024;                       // tokens of a sequence at most
  int min_length = 32;                     // shorter pieces are left out
  int64_t max_pieces = 0;                  // sequences of one text; 0: all of it
  int64_t max_tokens = 0;                  // in all; 0: no limit
  int64_t shard_tokens = 262144;           // a shard is closed when it holds as many,
  int64_t shard_bytes = int64_t{1} << 30;  // or before it holds more: shards are collected in memory
  int top_k = 0;
  FeatureKeep keep = {};  // as the extractor's and the writer's
  LearnFrom learn_from = LearnFrom::kAnswers;
  // Above 0: documents are beginnings, and the target writes as many tokens at most after each: after a text
  // as it is, of messages in the place of what the assistant says last. Only that is learned, or everything.
  int write = 0;
  // The ends are left to someone else: only beginnings are kept, of which nothing is learned. REQUIRES: write
  // > 0, nothing kept.
  bool write_later = false;
  // Documents whose ends are written before any of them is kept: fewer, if they could take more than a
  // quarter of shard_bytes. The last ones leave places of a pass empty.
  int write_together = 256;
};

// What the run asks of a tokenizer.
struct FeatureTokenizer {
  // `beginning`: with what a sequence begins with, unless the text does. Nothing is put behind it.
  std::function<std::vector<int32_t>(const std::string& text, bool beginning, bool parse_special)> encode;
  // The messages in the model's template, with what makes the assistant speak next if `prompt`.
  std::function<Result<std::string>(const std::vector<TrainingMessage>& messages, bool prompt)>
      apply_template;
  int32_t end_of_text = -1;  // ends a text; -1: nothing does
};

struct FeatureProgress {
  int64_t tokens = 0;  // run through the target by this call
  double share = 0.0;  // of the whole run
};

struct FeatureSummary {
  int64_t tokens = 0, sequences = 0, shards = 0;  // of the folder, earlier calls included
  int64_t cut = 0;  // conversations of this call that were too long: they lost their end, or were left out
};

// Says before a model is loaded what MakeFeatures would say of these options and of the inputs.
Status CheckFeatureOptions(const FeatureRunOptions& options);

// Makes the folder of shards. kIo if that cannot be.
Status CreateFeatureFolder(const FeatureRunOptions& options);

// on_progress returns false to stop: what is complete is kept, and the result is kCancelled. The extractor
// must hold sequences of options.length. `writer` is needed if options.write > 0, and must agree with it.
// `output_failed`: whether an error is that the folder or a shard could not be written.
Result<FeatureSummary> MakeFeatures(const FeatureRunOptions& options, const FeatureTarget& target,
                                    const FeatureTokenizer& tokenizer, FeatureExtractor& extractor,
                                    const std::function<bool(const FeatureProgress&)>& on_progress,
                                    ContinuationWriter* writer = nullptr, bool* output_failed = nullptr);

// A tokenised document: `learn` (1 or 0) says what the draft learns to predict.
struct LabelledTokens {
  std::vector<int32_t> tokens;
  std::vector<int8_t> learn;
};
Result<LabelledTokens> TokenizeDocument(const TrainingDocument& document, LearnFrom learn_from,
                                        const FeatureTokenizer& tokenizer);

// Pieces of `length` tokens that a document of n tokens is cut into, the last one shorter; of a conversation
// the beginning is one. Whether a piece becomes a sequence: it is long enough, and something is learned of
// it.
int64_t CountPieces(int64_t n, bool is_text, const FeatureRunOptions& options);
bool IsPieceKept(std::span<const int8_t> learn, const FeatureRunOptions& options);

// A document up to where the target is to write.
Result<std::vector<int32_t>> TokenizeBeginning(const TrainingDocument& document,
                                               const FeatureTokenizer& tokenizer);
// Leaves room in `length` for what is written after it: a text is cut. False: it is left out.
bool FitBeginning(const TrainingDocument& document, const FeatureRunOptions& options,
                  std::vector<int32_t>* tokens);

}  // namespace longspec
