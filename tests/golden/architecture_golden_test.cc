// SPDX-License-Identifier: Apache-2.0
//
// Tiny models of each architecture, random weights, against what transformers computes with the same weights
// (tools/make_architecture_fixture.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/transformer.h"
#include "network/architecture.h"
#include "sampling/testing/values_of.h"

namespace longspec {
namespace {

using Json = nlohmann::json;

std::shared_ptr<const GgufFile> Write(const TinyModelOptions& options) {
  const testing::Folder folder;
  const std::string path = folder.File("tiny.gguf");
  const Status written = WriteTinyModel(options, path);
  EXPECT_TRUE(written.ok()) << written.message();
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? *file : nullptr;
}

// The logits of the last token, with keys and values in f32.
std::vector<float> LastLogits(const TinyModelOptions& options, const std::vector<int32_t>& tokens) {
  const auto file = Write(options);
  if (file == nullptr) return {};
  const auto config = ReadModelSpec(*file, {});
  EXPECT_TRUE(config.ok()) << config.status().message();
  if (!config.ok()) return {};
  ThreadTeam team(1);
  ModelLoadOptions load;
  load.max_rows = static_cast<int>(tokens.size());
  const auto model = *LoadModel(file, *config, {kernels::Available().front(), &team}, load);
  const auto cache = MakeFullCache(config->kv_layout(CacheType::kF32, CacheType::kF32), config->n_layer, 64);
  auto kv = *cache->Begin(load.max_rows);
  const ForwardSegment segment{.tokens = tokens, .parents = {}, .kv = &kv, .logits = LogitsFor::kLastRow};
  const auto output = model->Forward({&segment, 1});
  EXPECT_TRUE(output.ok()) << output.status().message();
  const float* logits = testing::ValuesOf(output->segments[0].logits[0]).data();
  return {logits, logits + output->vocab};
}

TEST(Golden, EveryArchitectureAndYarnComputeWhatTransformersDoes) {
  std::ifstream in(testing::SourcePath("tests/golden/architectures.json"));
  const Json golden = Json::parse(in);
  const auto tokens = golden["tokens"].get<std::vector<int32_t>>();
  std::string seen;
  for (const Json& one : golden["cases"]) {
    TinyModelOptions options;
    options.architecture = one["model"]["arch"].get<std::string>();
    options.head_dim = one["model"]["head-dim"].get<int>();
    options.n_layers = one["model"].value("layers", 2);
    options.rope_freq_base = one["model"].value("rope-base", 1e4F);
    options.tied = false;
    if (const auto yarn = one["model"].find("yarn"); yarn != one["model"].end()) {
      options.rope_scaling = "yarn";
      options.rope_original_context = (*yarn)["original"].get<int>();
      for (const auto& [key, value] : (*yarn)["numbers"].items()) {
        options.rope_scaling_numbers.emplace_back(key, value.get<float>());
      }
    } else {
      seen += (seen.empty() ? "" : ", ") + options.architecture;
    }
    const auto expected = one["logits"].get<std::vector<double>>();
    const std::vector<float> logits = LastLogits(options, tokens);
    ASSERT_EQ(logits.size(), expected.size()) << options.architecture;
    double worst = 0.0;
    for (size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - expected[i]));
    }
    // Both compute in f32, in another order; the logits' deviation is 1, and they are stored to a millionth.
    EXPECT_LT(worst, 2e-5) << one["model"];
  }
  EXPECT_EQ(seen, KnownArchitectures());
}

}  // namespace
}  // namespace longspec
