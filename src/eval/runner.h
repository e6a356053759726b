// SPDX-License-Identifier: Apache-2.0
//
// Runs an evaluation: families x context lengths x temperatures x methods. All methods and plain decoding
// continue a prompt together, a few tokens each in turn, so that a machine that slows down slows all of them.
// Finished cells are lines of OUT/cells.jsonl and are not run again; prompts and answers are kept beside them
// (eval/transcript.h). One engine, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/cell.h"
#include "longspec/engine.h"

namespace longspec {

struct EvalOptions {
  std::string data, out;                                 // folders
  std::vector<std::string> families = {};                // empty: all of the data
  std::vector<std::string> methods = {"ngram", "auto"};  // eval/method.h
  std::vector<int> lengths = {512, 2048, 4096,
                              8192};  // prompt, answer and room for drafts; at most the context
  std::vector<double> temperatures = {0.0, 0.7};
  int n_prompts = 1;
  int n_predict = 96;
  int runs = 1;  // generations per prompt and method; of each turn the median counts
  bool ignore_eos = false;
  uint64_t seed = 1;
  SamplingOptions sampling = {};        // less temperature and seed
  SpeculationOptions speculation = {};  // less type and policy
  // For checks: GenerationRequest::on_proposal of each method's answers.
  std::function<void(const std::string& method, double temperature, size_t n_text,
                     std::span<const ProposedToken>)>
      on_proposal = {};
};

struct EvalProgress {
  int done = 0, total = 0;  // cells, those finished earlier included
  double eta_ms = -1;       // negative: unknown
  std::string doing;        // "gov_report at 4096"
};
// Called between steps and during prefill; false cancels.
using OnEvalProgress = std::function<bool(const EvalProgress&)>;

// Says before a model is loaded what RunEvaluation would say of these options and of the folders.
Status CheckEvaluation(const EvalOptions& options);

// Makes the folder of results. kIo if that cannot be.
Status CreateFolder(const EvalOptions& options);

// What the engine is to plan memory for, beside the model: the draft model and the largest part of the cache
// that a method asks for.
Result<SpeculationOptions> PlannedSpeculation(const EvalOptions& options);
Result<PartialVerificationOptions> PlannedPart(const EvalOptions& options);

// Every method and plain decoding continue the prompt side by side, each with keys and values of its own
// answer: whether all of them fit. kResourceExhausted with the numbers if not.
Status CheckEvaluationMemory(const EvalOptions& options, const MemoryPlan& plan);

// kCancelled keeps the finished cells. kInvalidArgument if `out` holds cells of other settings.
// Prompts are read once for all methods, and by each method's draft; prompt_ms are of whole ones if the
// engine keeps nothing of earlier ones (cache_prompt). `output_failed`: whether an error is that results
// could not be written.
Status RunEvaluation(Engine& engine, const EvalOptions& options, const OnEvalProgress& on_progress,
                     bool* output_failed = nullptr);

// The cells of a folder, in the order they were finished; lines cut short are skipped.
Result<std::vector<Cell>> ReadCells(const std::string& out);

}  // namespace longspec
