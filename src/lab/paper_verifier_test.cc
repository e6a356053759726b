// SPDX-License-Identifier: Apache-2.0
//
// SpecPV's modes in the real loop, with drafts that are accepted now and then.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decode/batch_decoder.h"
#include "decode/owned_sequence.h"
#include "draft_model/draft_models.h"
#include "draft_model/registry.h"
#include "draft_model/testing/longspec_files.h"
#include "lab/specpv.h"
#include "policy/policy.h"
#include "sampling/sampler.h"

namespace longspec::testing {
namespace {

constexpr RetrievalOptions kSet = {.sink = 16, .budget = 32, .window = 20};
constexpr int kSetSize = 16 + 32 + 20;

std::vector<float> KeysOf(const KvCache& cache, int n_layer) {
  std::vector<float> keys;
  for (int layer = 0; layer < n_layer; ++layer) {
    const KvSpan span = cache.Span(layer);
    for (int p = 0; p < cache.length(); ++p) {
      for (int d = 0; d < span.layout.head_dim; ++d) keys.push_back(span.KeyAt(p, 0, d));
    }
  }
  return keys;
}

// All bytes of a cache.
std::vector<std::byte> Bytes(const KvCache& cache, int n_layer) {
  std::vector<std::byte> bytes;
  const KvSpan span = cache.Span(0);
  const size_t size = static_cast<size_t>(n_layer) * span.layout.layer_bytes();
  for (int chunk = 0; chunk * kKvChunk < cache.length(); ++chunk) {
    bytes.insert(bytes.end(), span.chunks[chunk], span.chunks[chunk] + size);
  }
  return bytes;
}
// Makes them others. No transaction is open, and no one else has them.
void Fill(const KvCache& cache, int n_layer, std::span<const std::byte> bytes) {
  const KvSpan span = cache.Span(0);
  const size_t size = static_cast<size_t>(n_layer) * span.layout.layer_bytes();
  for (size_t chunk = 0; chunk * size < bytes.size(); ++chunk) {
    std::memcpy(const_cast<std::byte*>(span.chunks[chunk]), bytes.data() + chunk * size, size);
  }
}

struct Counts {
  int by_mode[3] = {};
  int64_t accepted = 0;
  int most_buffered = 0;
  std::vector<int32_t> tokens = {};
};

// `n_prompt` tokens and 120 more, with a draft model that has the target's own weights. `hidden`: while a set
// verifies, the whole cache's bytes are no numbers.
Counts Generate(const std::string& tree, float temperature, int n_prompt, int max_rows, bool hidden = false) {
  TinyTarget tiny;
  Folder folder;
  EXPECT_TRUE(WriteTinyModel({}, folder.File("draft.gguf")).ok());
  const std::vector<std::string> vocabulary =
      *(*GgufFile::Open(folder.File("draft.gguf")))->GetStrings("tokenizer.ggml.tokens");
  DraftModels models;
  models.SetVocabulary(&vocabulary);
  SamplingOptions sampling;
  sampling.temperature = temperature;
  sampling.seed = 5;
  const Sampler sampler = *Sampler::Create(sampling, tiny.spec.n_vocab);
  const auto whole = tiny.NewCache(400);
  const auto verifier = MakePaperVerifier(kSet, whole.get(), tiny.target(), &sampler, n_prompt);
  SpeculationOptions options;
  options.type = "lm";
  options.draft_model = folder.File("draft.gguf");
  options.tree = tree;
  options.draft_n_max = 8;
  const auto drafter =
      *MakeDrafter(options, {.target = &tiny.target(), .cache = &verifier->part(), .models = &models});
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < n_prompt; ++i) prompt.push_back(3 + i * i % 97 + i / 40);
  OwnedSequence text(prompt, whole.get(), drafter.get(), MakeFixedPolicy(options), sampler);
  std::vector<int32_t>& tokens = text.tokens;
  Sequence& sequence = text.sequence;
  sequence.reader = verifier.get();
  sequence.Follow();
  BatchDecoder decoder(&tiny.target());
  Counts counts;
  int refreshed_at = -1;
  while (static_cast<int>(tokens.size()) < n_prompt + 120) {
    const int n = static_cast<int>(tokens.size()) - 1;
    const PartialMode mode = n < n_prompt ? PartialMode::kFull : PaperMode(n, kSetSize, refreshed_at);
    EXPECT_TRUE(verifier->Prepare(sequence).ok());
    EXPECT_EQ(sequence.cache == whole.get(), mode != PartialMode::kPartial) << n;
    const std::vector<int32_t> before = tokens;
    const std::vector<float> keys = KeysOf(*whole, tiny.spec.n_layer);
    Turn turn = {.sequence = &sequence, .max_rows = max_rows, .max_tokens = 100};
    verifier->Limit(turn);
    const uint64_t set_bytes = verifier->stats().bytes;
    const std::vector<std::byte> bytes = Bytes(*whole, tiny.spec.n_layer);
    const std::vector<std::byte> nothing(bytes.size(), std::byte{0xFF});
    const bool hides = hidden && mode == PartialMode::kPartial;
    if (hides) Fill(*whole, tiny.spec.n_layer, nothing);
    EXPECT_TRUE(decoder.Run({&turn, 1}).ok());
    if (hides) {
      EXPECT_EQ(Bytes(*whole, tiny.spec.n_layer), nothing);
      Fill(*whole, tiny.spec.n_layer, bytes);
    }
    if (mode == PartialMode::kPartial) {
      EXPECT_EQ(verifier->stats().bytes, set_bytes);
    }
    EXPECT_TRUE(turn.status.ok()) << turn.status.message();
    if (!turn.status.ok()) break;
    // What was accepted stays.
    EXPECT_TRUE(std::equal(before.begin(), before.end(), tokens.begin()));
    if (mode == PartialMode::kPartial) {
      EXPECT_EQ(KeysOf(*whole, tiny.spec.n_layer), keys);  // not read, not written
    } else if (whole->length() + 1 == static_cast<int>(tokens.size())) {
      // All keys are those of the text, to the bit, whoever had verified it.
      const auto fresh = tiny.NewCache(400);
      tiny.Evaluate(std::span(tokens).first(tokens.size() - 1), *fresh);
      EXPECT_EQ(KeysOf(*whole, tiny.spec.n_layer), KeysOf(*fresh, tiny.spec.n_layer));
    }
    if (turn.tokens.empty()) continue;  // only missing tokens were computed
    ++counts.by_mode[static_cast<int>(mode)];
    counts.accepted += static_cast<int64_t>(turn.tokens.size()) - 1;
    if (mode == PartialMode::kRefresh) refreshed_at = n;
    if (refreshed_at >= 0) {
      counts.most_buffered =
          std::max(counts.most_buffered, static_cast<int>(tokens.size()) - 1 - refreshed_at);
    }
  }
  EXPECT_EQ(sequence.draft_failure, "");
  counts.tokens = tokens;
  return counts;
}

TEST(PaperVerifier, KeepsToTheModesWhateverIsAccepted) {
  int64_t accepted = 0;
  for (const char* tree : {"chain", "3,3,2"}) {
    for (const float temperature : {0.0F, 0.7F}) {
      SCOPED_TRACE(std::string(tree) + " " + std::to_string(temperature));
      const Counts counts = Generate(tree, temperature, 100, 128);
      EXPECT_EQ(counts.by_mode[0], 1);  // the first token
      EXPECT_GE(counts.by_mode[2], 4);
      EXPECT_GT(counts.by_mode[1], counts.by_mode[2]);
      EXPECT_LE(counts.most_buffered, kPartialMargin + 9);
      accepted += counts.accepted;
    }
  }
  EXPECT_GT(accepted, 100);
}

// In partial steps no byte of the whole cache is read or written, and the set, which has room for its buffer,
// takes no more. (That the text is the same with an offloaded cache is offload_test's business.)
TEST(PaperVerifier, PartialStepsMoveNothingOfTheWholeCache) {
  for (const float temperature : {0.0F, 0.7F}) {
    const Counts seen = Generate("3,3,2", temperature, 100, 128);
    const Counts hidden = Generate("3,3,2", temperature, 100, 128, /*hidden=*/true);
    EXPECT_GT(hidden.by_mode[1], 10);
    EXPECT_EQ(hidden.tokens, seen.tokens);
  }
}

// A text that fits at first; and passes so small that a refresh takes several.
TEST(PaperVerifier, BeginsWholeAndRefreshesInParts) {
  const Counts grown = Generate("chain", 0.0F, 30, 128);
  EXPECT_GE(grown.by_mode[0], 5);
  EXPECT_GE(grown.by_mode[2], 3);
  const Counts in_parts = Generate("chain", 0.0F, 100, 7);
  EXPECT_GE(in_parts.by_mode[2], 4);
}

}  // namespace
}  // namespace longspec::testing
