// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

namespace longspec::cli {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"run", "Generate text from a prompt or a document", SetUpRun},
      {"chat", "Talk with the model", SetUpChat},
      {"batch", "Answer a file of requests, several at a time", SetUpBatch},
      {"serve", "Serve the model over HTTP to clients of OpenAI's API and llama-server", SetUpServe},
      {"info", "Show model, tokenizer, CPU, kernels and memory plan", SetUpInfo},
      {"tokenize", "Show the tokens of a text", SetUpTokenize},
      {"selfcheck", "Compare plain and speculative output, bit by bit", SetUpSelfcheck},
      {"bench", "Measure prefill, decoding and steps with many rows", SetUpBench},
      {"perplexity", "Measure how well the model foretells a text, by position", SetUpPerplexity},
      {"corpus", "Index texts for --spec-type suffix --spec-corpus", SetUpCorpus},
      {"convert", "Turn a draft model into a GGUF file, and back", SetUpConvert},
      {"eval", "Measure speed and quality on task files, by context length", SetUpEval},
      {"features", "Run the model over text, for training", SetUpFeatures},
      {"train", "Train a LongSpec draft model (longspec-train, built on request)", SetUpTrain},
  };
  return commands;
}

}  // namespace longspec::cli
