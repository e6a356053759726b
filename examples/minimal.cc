// SPDX-License-Identifier: Apache-2.0
//
// Loads a model and continues a text:  minimal models/SmolLM2-135M-Instruct.Q4_1.gguf
#include <iostream>

#include "longspec/engine.h"

int main(int argc, char** argv) {
  auto engine = longspec::Engine::Load({.path = argc > 1 ? argv[1] : "model.gguf"});
  if (!engine.ok()) return std::cerr << engine.status().message() << "\n", 1;
  auto session = (*engine)->NewSession();
  if (!session.ok()) return std::cerr << session.status().message() << "\n", 1;
  auto result = (*engine)->Generate(**session, {.prompt = "The capital of France is", .n_predict = 32});
  if (!result.ok()) return std::cerr << result.status().message() << "\n", 1;
  std::cout << result->text << "\n" << result->speculative.mean_acceptance_length << " tokens per step\n";
}
