// SPDX-License-Identifier: Apache-2.0
//
// Whole answers, end to end: several sequences through the scheduler, each a prompt cut from a real text and
// an answer of a fixed length. What prompts and what answers take is measured apart, unrelated prompts beside
// one document with a question of each, with and without speculation.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

struct AnswersMeasurement {
  int sequences = 1, depth = 0;  // prompt tokens of each
  bool one_document = false;     // all prompts are the same but for their last tokens
  std::string speculation;       // SpeculationOptions::type
  // Medians over the repetitions.
  double prompt_ms = 0;            // all prompts, from nothing
  double ms = 0;                   // then all answers
  int64_t tokens = 0;              // of all answers
  int64_t prompt_tokens = 0;       // of all prompts
  int64_t prompt_tokens_read = 0;  // of them, those evaluated; the others share their keys
  double mean_acceptance_length = 0;

  double tokens_per_second() const { return 1e3 * static_cast<double>(tokens) / ms; }
  double with_prompts() const { return 1e3 * static_cast<double>(tokens) / (ms + prompt_ms); }
};

struct AnswersBenchOptions {
  ModelOptions model;
  std::string text;  // prompts are its tokens, from places of their own, round and round
  std::vector<int> depths = {512, 4096};
  std::vector<int> sequences = {1, 4, 8, 16, 32};
  int answer = 128;  // tokens of each answer
  // Each beside the others; the output of all is compared.
  std::vector<SpeculationOptions> speculation;
  bool unrelated = true, one_document = true;  // which prompts
  int repetitions = 3;
};

// kInvalidArgument for what cannot be measured; kResourceExhausted for what does not fit.
Status MeasureAnswers(const AnswersBenchOptions& options,
                      const std::function<void(const AnswersMeasurement&)>& on_measurement);

}  // namespace longspec
