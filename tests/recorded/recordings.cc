// SPDX-License-Identifier: Apache-2.0
#include "recordings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/testing/source_path.h"
#include "formats/ngram_prior.h"
#include "gzip/line_source.h"

namespace longspec::testing {

namespace {

PredictionDraftOptions PredictionOf(const nlohmann::json& line) {
  PredictionDraftOptions prediction;
  if (line.contains("prediction")) prediction.tokens = line["prediction"].get<std::vector<int32_t>>();
  if (!line.contains("beginnings")) return prediction;
  for (const auto& beginning : line["beginnings"])
    prediction.beginnings.push_back({.tokens = beginning["tokens"].get<std::vector<int32_t>>(),
                                     .chance = beginning["chance"].get<float>()});
  return prediction;
}

}  // namespace

std::vector<Recording> ReadRecordings() {
  const char* other = std::getenv("LONGSPEC_RECORDED");
  return other != nullptr ? ReadRecordings(std::filesystem::path(other)) : ReadRecordings("answers.jsonl.gz");
}

std::vector<Recording> ReadRecordings(const char* name) {
  return ReadRecordings(std::filesystem::path(testing::SourcePath(std::string("tests/recorded/") + name)));
}

std::vector<Recording> ReadRecordings(const std::filesystem::path& path) {
  const auto lines = OpenLines(path.string());
  EXPECT_TRUE(lines.ok()) << lines.status().message();
  if (!lines.ok()) return {};
  std::vector<Recording> recordings;
  for (std::string json;;) {
    const auto more = (*lines)->Next(&json);
    EXPECT_TRUE(more.ok()) << more.status().message();
    if (!more.ok() || !*more) break;
    const auto line = nlohmann::json::parse(json);
    for (const auto& answer : line["answers"]) {
      SamplingOptions sampling;
      sampling.temperature = answer["temperature"].get<float>();
      sampling.seed = answer["seed"].get<uint64_t>();
      sampling.top_k = answer["top_k"].get<int>();
      sampling.top_p = answer["top_p"].get<float>();
      sampling.min_p = answer["min_p"].get<float>();
      char name[80];
      std::snprintf(name, sizeof(name), "%s at %d, temperature %.1f%s",
                    line["family"].get<std::string>().c_str(), line["length"].get<int>(),
                    answer["temperature"].get<double>(), sampling.top_k > 0 ? "" : " unfiltered");
      recordings.push_back({.name = name,
                            .prompt = line["prompt"].get<std::vector<int32_t>>(),
                            .answer = answer["tokens"].get<std::vector<int32_t>>(),
                            .sampling = sampling,
                            .prediction = PredictionOf(line)});
    }
  }
  return recordings;
}

// A machine, as a table of costs over those of one row, which are in ms.
CostTable Machine(const std::vector<std::vector<double>>& times_one_row,
                  const std::vector<double>& one_row = {5.7, 7.6, 10.3, 16.0}) {
  CostTable table{.rows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32}, .keys = {512, 2048, 4096, 8192}, .ms = {}};
  for (size_t row = 0; row < table.rows.size(); ++row) {
    for (size_t key = 0; key < table.keys.size(); ++key) {
      const auto& times = times_one_row[std::min(key, times_one_row.size() - 1)];
      table.ms.push_back(one_row[key] * times[row]);
    }
  }
  return table;
}

// Two cores of a Zen 3 with AVX2: docs/measurements/archive/2026-11-22-steps-avx2.md.
CostTable Measured() {
  return Machine({{1, 1.17, 1.30, 1.49, 1.90, 2.08, 2.62, 3.65, 4.77, 9.4},
                  {1, 1.25, 1.42, 1.62, 2.08, 2.30, 2.90, 4.10, 5.40, 10.8},
                  {1, 1.33, 1.66, 1.92, 2.48, 2.68, 3.28, 4.68, 6.10, 12.2},
                  {1, 1.32, 1.66, 1.90, 2.40, 2.62, 3.22, 4.55, 5.90, 11.8}});
}
// Two cores of a Zen 5 with AVX-512: docs/measurements/archive/2026-11-22-steps-avx512.md.
CostTable MeasuredAvx512() {
  return Machine({{1, 1.05, 1.08, 1.11, 1.17, 1.23, 1.35, 1.74, 2.13, 3.98},
                  {1, 1.07, 1.09, 1.11, 1.19, 1.27, 1.42, 1.88, 2.35, 4.46},
                  {1, 1.02, 1.04, 1.06, 1.14, 1.22, 1.38, 1.87, 2.36, 4.80},
                  {1, 1.05, 1.05, 1.05, 1.13, 1.22, 1.39, 1.95, 2.51, 5.30}},
                 {3.49, 4.71, 6.53, 10.25});
}
// The same for Qwen2.5-Coder-1.5B: docs/measurements/speed.md has 1, 2, 4, 8 and 16 rows at 512 keys.
CostTable MeasuredCoder() {
  return Machine({{1, 1.11, 1.34, 1.58, 1.90, 2.21, 2.85, 3.96, 5.08, 9.5}}, {42.5, 44, 48, 56});
}
CostTable CheapRows() { return Machine({{1, 1.02, 1.03, 1.05, 1.08, 1.10, 1.15, 1.25, 1.4, 2.0}}); }
CostTable DearRows() { return Machine({{1, 2, 3, 4, 5, 6, 8, 12, 16, 32}}); }

namespace {

void FindPrior(const char* name, int vocab_size, DraftModels* models) {
  const std::string folder = testing::SourcePath("models/priors");
  const char* other = std::getenv("LONGSPEC_PRIOR");
  const auto tokenizer = NgramPrior::TokenizerOf(other != nullptr ? other : folder + "/" + name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  models->priors().SetSource({.tokenizer = *tokenizer, .vocab_size = vocab_size, .folder = folder});
}

}  // namespace

DraftModels* ShippedPrior() {
  static DraftModels models;
  FindPrior("smollm2.ngrams", 1 << 17, &models);
  return &models;
}

DraftModels* ShippedCoderPrior() {
  static DraftModels models;
  FindPrior("qwen2.ngrams", 151936, &models);
  return &models;
}

}  // namespace longspec::testing
