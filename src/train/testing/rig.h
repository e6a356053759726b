// SPDX-License-Identifier: Apache-2.0
//
// For tests of training: a tiny target and features of some sequences, in a folder of their own.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "draft_model/testing/longspec_files.h"
#include "features/run.h"
#include "network/describe_target.h"
#include "train/trainer.h"

namespace longspec::train::testing {

using longspec::testing::Folder;
using longspec::testing::ReadText;
using longspec::testing::TinyTarget;

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Sets all bytes of a tensor in those of a safetensors file to this value, again and again.
template <typename Value>
void Fill(const std::string& name, Value value, std::string* bytes) {
  uint64_t header = 0;
  std::memcpy(&header, bytes->data(), 8);
  const auto ends = nlohmann::json::parse(bytes->substr(8, header)).at(name).at("data_offsets");
  for (size_t at = ends[0].get<size_t>(); at < ends[1].get<size_t>(); at += sizeof(value)) {
    std::memcpy(bytes->data() + 8 + header + at, &value, sizeof(value));
  }
}

inline constexpr int kLength = 48, kSequences = 12, kTopK = 5;

inline std::vector<int32_t> SequenceTokens(int i, int length = kLength) {
  std::vector<int32_t> tokens;
  // Much is repeated, so that there is something to learn.
  for (int t = 0; t < length; ++t) tokens.push_back(5 + (t * (1 + i % 3)) % 7 * 11);
  return tokens;
}

// As many as training needs; sequence i has lengths[i % n].
inline std::vector<std::vector<int32_t>> MakeSequences(const std::vector<int>& lengths) {
  std::vector<std::vector<int32_t>> sequences;
  for (int i = 0; i < kSequences; ++i)
    sequences.push_back(SequenceTokens(i, lengths[static_cast<size_t>(i) % lengths.size()]));
  return sequences;
}

// All that shards can hold of a tiny model of two layers.
inline FeatureKeep KeepAll() {
  return {.kv = true, .final_hidden = true, .hidden_layers = {0, 1}, .type = DType::kBF16};
}

// A tiny model, and features of some sequences.
struct Rig {
  // `change` sees the header and each sequence's loss before they are written; sequence i has lengths[i % n].
  // With top_k the target's distribution comes from that many probabilities, not from hidden states.
  explicit Rig(const std::function<void(FeatureHeader&, std::vector<int8_t>&)>& change = {},
               const std::vector<int>& lengths = {kLength}, const TinyModelOptions& model = {},
               const FeatureKeep& keep = {}, int top_k = kTopK)
      : Rig(MakeSequences(lengths), change, model, keep, top_k) {}

  // Of these tokens.
  explicit Rig(const std::vector<std::vector<int32_t>>& sequences,
               const std::function<void(FeatureHeader&, std::vector<int8_t>&)>& change = {},
               const TinyModelOptions& model = {}, const FeatureKeep& keep = {}, int top_k = kTopK)
      : tiny(InContext(model)) {
    const TinyModelOptions tiny_options = InContext(model);
    EXPECT_TRUE(WriteTinyModel(tiny_options, folder.File("tiny.gguf")).ok());
    const auto file = GgufFile::Open(folder.File("tiny.gguf"));
    FeatureHeader header;
    header.target = DescribeTarget(*tiny.parts().sizes, **file);
    header.top_k = top_k;
    header.keep = keep;
    FeatureExtractor extractor(&tiny.target(), tiny.NewCache(512, CacheType::kF16), 64, top_k, keep);
    FeatureShardWriter writer;
    for (const std::vector<int32_t>& tokens : sequences) {
      const auto f = extractor.Extract(tokens, [](int) { return true; });
      EXPECT_TRUE(f.ok());
      std::vector<int8_t> loss(tokens.size(), 1);
      if (change) change(header, loss);
      FeatureTensors<std::span<const uint16_t>> kept = {
          .keys = f->kept.keys, .values = f->kept.values, .final_hidden = f->kept.final_hidden, .hidden = {}};
      for (const auto& hidden : f->kept.hidden) kept.hidden.emplace_back(hidden);
      writer.Add(header, {tokens, f->positions, loss, kept, f->top_ids, f->top_log_probs});
    }
    std::filesystem::create_directories(folder.File("features"));
    EXPECT_TRUE(writer.Write(header, FeatureShardPath(folder.File("features"), 0)).ok());
    options.features = {folder.File("features")};
    options.model = folder.File("tiny.gguf");
    options.output = folder.File("draft");
    options.batch = 4;
    options.draft.n_ff = 32;
    options.learning_rate = 5e-3;
    options.steps = 12;
    options.checkpoint_every = 3;
    options.threads = 1;
  }

  static TinyModelOptions InContext(TinyModelOptions model) {
    model.context_length = 512;
    return model;
  }

  // Stops after so many forward passes.
  Result<TrainSummary> Run(int passes = 1 << 30) {
    return Train(options, [&](const TrainProgress& p) {
      last = p;
      if (p.end_of_step) losses.push_back(p.loss);
      return --passes > 0;
    });
  }
  std::string Error() { return Run().status().message(); }
  std::string Weights() const { return ReadText(options.output + "/model.safetensors"); }

  Folder folder;
  TinyTarget tiny;
  TrainOptions options;
  TrainProgress last;
  std::vector<double> losses;
};

// With all that shards can hold, for a draft as `draft` says.
struct KindRig : Rig {
  explicit KindRig(const TraineeOptions& draft, const std::vector<int>& lengths = {kLength})
      : Rig({}, lengths, {}, KeepAll(), 0) {
    options.draft = draft;
  }
};

}  // namespace longspec::train::testing
