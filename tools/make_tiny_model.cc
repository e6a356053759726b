// SPDX-License-Identifier: Apache-2.0
//
// make_tiny_model --out PATH [options]: writes a random-weight model for tests and experiments, or one
// of a known model's shape, to see what such a model costs. The file is put together in memory.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "formats/tiny_model.h"
#include "tensor/dtype.h"

namespace {

CLI::Option* AddTypeOption(CLI::App* app, const std::string& name, const std::string& description,
                           std::function<void(longspec::DType)> set) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, set](const std::string& text) {
            const auto dtype = longspec::FindDType(text);
            if (!dtype) throw CLI::ValidationError(name, "unknown type " + text);
            set(*dtype);
          },
          description)
      ->type_name("TYPE");
}

struct Shape {
  const char* name;
  int n_layers, n_embd, n_heads, n_kv_heads, n_ff;
  bool tied;
};
// Llama 3.2 1B and 3B, and Llama 3.1 8B.
constexpr Shape kShapes[] = {{"1b", 16, 2048, 32, 8, 8192, true},
                             {"3b", 28, 3072, 24, 8, 8192, true},
                             {"8b", 32, 4096, 32, 8, 14336, false}};

void SetShape(const std::string& name, longspec::TinyModelOptions* options) {
  for (const Shape& shape : kShapes) {
    if (name != shape.name) continue;
    options->n_layers = shape.n_layers;
    options->n_embd = shape.n_embd;
    options->n_heads = shape.n_heads;
    options->n_kv_heads = shape.n_kv_heads;
    options->n_ff = shape.n_ff;
    options->tied = shape.tied;
    options->n_vocab = 128256;
    options->context_length = 131072;
    options->rope_freq_base = 500000.0F;
    options->dtype = longspec::DType::kQ4_0;
    options->name = "random weights in the shape of " + name;
    return;
  }
  throw CLI::ValidationError("--shape", "unknown shape " + name + "; known are 1b, 3b, 8b");
}

void AddScalingNumber(const std::string& text, longspec::TinyModelOptions* options) {
  const size_t sign = text.find('=');
  float value = 0.0F;
  if (sign == std::string::npos || !CLI::detail::lexical_cast(text.substr(sign + 1), value)) {
    throw CLI::ValidationError("--rope-scaling-number", text + ": must be KEY=VALUE");
  }
  options->rope_scaling_numbers.emplace_back(text.substr(0, sign), value);
}

}  // namespace

int main(int argc, char** argv) {
  longspec::TinyModelOptions options;
  std::string out;
  CLI::App app{"Writes a small Llama model with random weights and a byte-level tokenizer."};
  app.option_defaults()->always_capture_default();
  app.add_option("--out", out, "file to write")->required();
  // First, so that other options change single numbers of it.
  app.add_option_function<std::string>(
         "--shape", [&](const std::string& name) { SetShape(name, &options); },
         "1b, 3b or 8b: the shape of that Llama 3 model in Q4_0")
      ->trigger_on_parse();
  app.add_option("--arch", options.architecture, "llama, qwen2, qwen3 or gemma3");
  app.add_option("--seed", options.seed, "the weights are a function of it");
  app.add_option("--layers", options.n_layers, "transformer blocks");
  app.add_option("--embd", options.n_embd, "width of the residual stream");
  app.add_option("--heads", options.n_heads, "attention heads");
  app.add_option("--kv-heads", options.n_kv_heads, "key and value heads");
  app.add_option("--head-dim", options.head_dim, "values of a head; 0: embd / heads");
  app.add_option("--ff", options.n_ff, "width of the feed-forward layer");
  app.add_option("--vocab", options.n_vocab, "tokens, at least 259");
  app.add_option("--ctx", options.context_length, "context length");
  app.add_option("--window", options.window, "positions that a row of gemma3 sees in most layers");
  app.add_option("--rope-freq-base", options.rope_freq_base, "RoPE base");
  app.add_option("--rope-scaling", options.rope_scaling, "rope.scaling.type: none, linear, yarn");
  app.add_option("--rope-original-context", options.rope_original_context,
                 "rope.scaling.original_context_length");
  app.add_option_function<std::vector<std::string>>(
      "--rope-scaling-number",
      [&](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) AddScalingNumber(text, &options);
      },
      "KEY=VALUE: another key under rope.scaling.; may be repeated");
  app.add_flag("--fim", options.fills_holes, "the vocabulary has the tokens of code with a hole in it");
  app.add_option("--name", options.name, "general.name");
  AddTypeOption(&app, "--type", "one of " + longspec::WeightTypeNames(256) + " (default f32)",
                [&](longspec::DType dtype) { options.dtype = dtype; });
  AddTypeOption(&app, "--embd-type", "type of the embedding and output matrices (default: as --type)",
                [&](longspec::DType dtype) { options.embedding_dtype = dtype; });
  app.add_flag("--tied,!--untied", options.tied,
               "whether the output matrix is the embedding (default: tied)");
  CLI11_PARSE(app, argc, argv);

  const longspec::Status status = longspec::WriteTinyModel(options, out);
  if (status.ok()) return 0;
  std::fprintf(stderr, "make_tiny_model: %s\n", status.message().c_str());
  return 1;
}
