// SPDX-License-Identifier: Apache-2.0
//
// Which samples stand for a context length, and their prompts cut to it. Documents are cut at their end and
// texts to be continued at their beginning; tasks that need the whole of their text are taken only where it
// fits.
#pragma once

#include <string>
#include <vector>

#include "eval/samples.h"
#include "longspec/engine.h"

namespace longspec {

struct EvalPrompt {
  const Sample* sample = nullptr;
  std::string prompt = {};             // raw text, or
  std::vector<Message> messages = {};  // chat
  int n_tokens = 0;
};

// Up to `n_prompts` prompts of at most `n_tokens` tokens, and of no less than half as many unless
// `any_length`. Fewer, or none, if the family has no such samples. The choice is a function of the arguments.
std::vector<EvalPrompt> ChoosePrompts(const Engine& engine, const std::vector<Sample>& samples, int n_tokens,
                                      int n_prompts, bool any_length);

}  // namespace longspec
