// SPDX-License-Identifier: Apache-2.0
//
// A language model as a draft: its trees, the part of the text it sees, and which models fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/clock.h"
#include "decode/testing/one_sequence.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_files.h"
#include "draft_model/draft_models.h"
#include "draft_model/lm_file.h"
#include "draft_model/registry.h"
#include "draft_model/spec_extend.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/tree_search.h"
#include "draft_model/trained_range.h"
#include "formats/draft_names.h"
#include "formats/feature_shard.h"
#include "formats/gguf_writer.h"
#include "policy/policy.h"
#include "sampling/sampler.h"
#include "sampling/testing/values_of.h"

namespace longspec::testing {
namespace {

using ::testing::HasSubstr;

class LmDrafterTest : public ::testing::Test {
 protected:
  LmDrafterTest() { models_.SetVocabulary(&tokens_); }

  static std::vector<std::string> TokensOf(const TinyModelOptions& options) {
    const auto bytes = TinyModelBytes(options);
    return *(*GgufFile::Parse(*bytes, "tiny"))->GetStrings("tokenizer.ggml.tokens");
  }

  // The target's own weights: a draft that is always right at temperature 0.
  std::string Perfect() { return Write({}); }
  std::string Write(const TinyModelOptions& options) {
    EXPECT_TRUE(WriteTinyModel(options, folder_.File("draft.gguf")).ok());
    return folder_.File("draft.gguf");
  }

  // The target's own layers, with its embedding and a head of these tokens.
  std::string OfTarget(const std::vector<int32_t>& vocab, DType type, const std::string& of = "") {
    const auto file = GgufFile::Open(Perfect());
    GgufWriter writer;
    for (const auto& [key, value] : (*file)->metadata()) {
      if (!key.starts_with("tokenizer.")) writer.SetValue(key, value);
    }
    writer.SetString(kLmTargetKey, of.empty() ? TargetFingerprint(**file) : of);
    for (const TensorView& t : (*file)->tensors()) {
      if (t.name == "token_embd.weight" || t.name == "output.weight") continue;
      writer.AddTensor(t.name, t.dtype, {t.shape, t.shape + t.n_dims}, {t.data, t.n_bytes});
    }
    if (!vocab.empty()) {
      writer.AddTensor(kDraftVocabTensor, DType::kI32, {std::ssize(vocab)}, std::as_bytes(std::span(vocab)));
    }
    EXPECT_TRUE(writer.Write(folder_.File("part.gguf")).ok());
    const auto part = GgufFile::Open(folder_.File("part.gguf"));
    EXPECT_TRUE(WriteLmGguf(**part, type, folder_.File("of_target.gguf")).ok());
    return folder_.File("of_target.gguf");
  }

  SpeculationOptions Options(const std::string& path, const std::string& tree, int n_max) const {
    SpeculationOptions options;
    options.type = "lm";
    options.draft_model = path;
    options.tree = tree;
    options.draft_n_max = n_max;
    return options;
  }

  Result<std::unique_ptr<Drafter>> Make(const SpeculationOptions& options, const KvCache& cache) {
    return MakeDrafter(options, {.target = &tiny_.target(), .cache = &cache, .models = &models_});
  }

  std::vector<int32_t> Generate(const SpeculationOptions& options, float temperature, int n_predict,
                                DecodeStats* stats = nullptr, std::string* notice = nullptr) {
    SamplingOptions sampling;
    sampling.temperature = temperature;
    sampling.seed = 5;
    sampling.top_k = 4;
    const auto sampler = Sampler::Create(sampling, tiny_.spec.n_vocab);
    const auto cache = tiny_.NewCache(300, CacheType::kF16);
    auto drafter = Make(options, *cache);
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 70; ++i) prompt.push_back(i * 3 + 10);
    const size_t n_prompt = prompt.size();
    OneSequence decoder(&tiny_.target(), prompt, cache.get(), drafter->get(), MakeFixedPolicy(options),
                        *sampler, 64);
    const std::vector<int32_t>& committed = decoder.tokens();
    EXPECT_TRUE(decoder.Prefill().ok());
    while (committed.size() < n_prompt + static_cast<size_t>(n_predict)) {
      const auto step =
          decoder.Step(static_cast<int>(n_prompt) + n_predict - static_cast<int>(committed.size()));
      EXPECT_TRUE(step.ok()) << step.status().message();
      if (!step.ok()) break;
    }
    if (stats != nullptr) *stats = decoder.stats();
    if (notice != nullptr) *notice = (*drafter)->notice();
    return committed;
  }

  Folder folder_;
  TinyTarget tiny_;
  std::vector<std::string> tokens_ = TokensOf({});
  DraftModels models_;
};

TEST_F(LmDrafterTest, ThePerfectDraftIsAcceptedWhole) {
  const std::vector<int32_t> plain = Generate({.type = "none"}, 0.0F, 60);
  DecodeStats stats;
  EXPECT_EQ(Generate(Options(Perfect(), "", 5), 0.0F, 60, &stats), plain);
  EXPECT_EQ(stats.steps, 10);
  EXPECT_EQ(stats.accepted, 50);
  EXPECT_EQ(Generate(Options(Perfect(), "3,6,6", 15), 0.0F, 60, &stats), plain);
  EXPECT_GE(stats.accepted, 40);  // the likeliest path need not be the one of likeliest tokens
}

// The same vocabulary, padded otherwise: what the draft has beyond the target's is never proposed, what the
// target has beyond the draft's never asked about.
TEST_F(LmDrafterTest, PaddingMayDiffer) {
  for (const int n_vocab : {384 - 100, 384 + 128}) {
    models_ = {};
    models_.SetVocabulary(&tokens_);
    const SpeculationOptions options = Options(Write({.n_vocab = n_vocab}), "8", 16);
    for (const float temperature : {0.0F, 1.0F}) {
      DecodeStats stats;
      EXPECT_EQ(Generate(options, temperature, 40, &stats), Generate({.type = "none"}, temperature, 40));
      EXPECT_GT(stats.drafted, 40);
    }
    // Tokens of both paddings in a text, and as its last one. Of the largest trees no token is foreign.
    const auto cache = tiny_.NewCache(300);
    const auto drafter = Make(options, *cache);
    ASSERT_TRUE(drafter.ok()) << drafter.status().message();
    std::vector<int32_t> text = {5, 383, 7, 300, 9};
    for (const int32_t last : {20, 383}) {
      text.push_back(last);
      cache->Truncate(0);
      tiny_.Evaluate(BeforeLast(text), *cache);
      ASSERT_TRUE((*drafter)->Follow(text).ok());
      TokenTree tree(last);
      const Status proposed = (*drafter)->Propose({.max_nodes = 200, .max_depth = 3}, text, tree);
      ASSERT_TRUE(proposed.ok()) << proposed.message();
      EXPECT_EQ(tree.size() > 1, last < n_vocab);
      for (const TreeNode& node : tree.nodes()) EXPECT_LT(node.token, 384);
    }
  }
  for (const int n_vocab : {384 - 129, 384 + 129}) {
    models_ = {};
    models_.SetVocabulary(&tokens_);
    if (n_vocab < kTinyModelMinVocab) continue;
    const auto cache = tiny_.NewCache(300);
    EXPECT_THAT(Make(Options(Write({.n_vocab = n_vocab}), "", 4), *cache).status().message(),
                HasSubstr("and a difference of 128 is allowed for padding"));
  }
}

// One that leaves out what its target has: as right as the whole one where it has all tokens, and where it
// has those that the target writes.
TEST_F(LmDrafterTest, TheEmbeddingAndTheHeadAreTheTargets) {
  const std::vector<int32_t> plain = Generate({.type = "none"}, 0.0F, 60);
  std::vector<int32_t> written(plain.begin() + 70, plain.end());
  std::ranges::sort(written);
  written.erase(std::unique(written.begin(), written.end()), written.end());
  ASSERT_LT(written.size(), 60U);
  for (const std::vector<int32_t>& vocab : {std::vector<int32_t>(), written}) {
    DecodeStats stats;
    const std::string path = OfTarget(vocab, DType::kF32);
    models_ = DraftModels();
    models_.SetVocabulary(&tokens_);
    EXPECT_EQ(Generate(Options(path, "", 5), 0.0F, 60, &stats), plain);
    EXPECT_EQ(stats.accepted, 50) << vocab.size();
  }
  // A token that is left out is never drafted; in few bits, and by chance, the text is the same too.
  const std::vector<int32_t> some(written.begin(), written.end() - 1);
  models_ = DraftModels();
  models_.SetVocabulary(&tokens_);
  DecodeStats stats;
  EXPECT_EQ(Generate(Options(OfTarget(some, DType::kQ4_1), "best:4", 16), 0.7F, 40, &stats),
            Generate({.type = "none"}, 0.7F, 40));
  EXPECT_GT(stats.accepted, 0);
}

std::vector<int32_t> TokensIn(std::vector<int32_t> text) {
  std::ranges::sort(text);
  text.erase(std::unique(text.begin(), text.end()), text.end());
  return text;
}

// A model as it is with a head of some tokens: as right as with all of them, if they are what is written.
TEST_F(LmDrafterTest, TheHeadMayBeOfSomeTokens) {
  const std::vector<int32_t> plain = Generate({.type = "none"}, 0.0F, 60);
  const std::vector<int32_t> written = TokensIn({plain.begin() + 70, plain.end()});
  for (const bool tied : {true, false}) {
    models_ = DraftModels();
    models_.SetVocabulary(&tokens_);
    const auto model = GgufFile::Open(Write({.tied = tied}));
    const std::string path = folder_.File("head.gguf");
    ASSERT_TRUE(WriteLmPart(**model, {.layers = {}, .vocab = written}, path).ok());
    DecodeStats stats;
    EXPECT_EQ(Generate(Options(path, "", 5), 0.0F, 60, &stats), plain);
    if (tied) {
      EXPECT_EQ(stats.accepted, 50);
    }
    EXPECT_EQ(Generate(Options(path, "best:4", 16), 0.7F, 40), Generate({.type = "none"}, 0.7F, 40));
    // It is no model any more, and is not reduced twice.
    const auto draft = GgufFile::Open(path);
    EXPECT_EQ(CheckStandsAlone(**draft).code(), StatusCode::kUnsupported);
    EXPECT_EQ(WriteLmPart(**draft, {.layers = {}, .vocab = written}, folder_.File("again.gguf")).code(),
              StatusCode::kInvalidArgument);
  }
  const auto model = GgufFile::Open(Perfect());
  EXPECT_EQ(WriteLmPart(**model, {.layers = {}, .vocab = {1, 384}}, folder_.File("head.gguf")).code(),
            StatusCode::kInvalidArgument);
}

// Some layers: what they are called is counted anew, their bytes are the model's; of all it is the model.
TEST_F(LmDrafterTest, LayersMayBeLeftOut) {
  const auto model = GgufFile::Open(Write({.n_layers = 4, .dtype = DType::kQ8_0}));
  const std::string path = folder_.File("part.gguf");
  ASSERT_TRUE(WriteLmPart(**model, {.layers = {0, 2, 3}, .vocab = {}}, path).ok());
  const auto part = GgufFile::Open(path);
  ASSERT_TRUE(part.ok()) << part.status().message();
  EXPECT_EQ(*(*part)->GetUint("llama.block_count"), 3U);
  for (const TensorView& tensor : (*part)->tensors()) {
    std::string from(tensor.name);
    if (from.starts_with("blk.2.")) from[4] = '3';
    if (from.starts_with("blk.1.")) from[4] = '2';
    const TensorView* const whole = (*model)->FindTensor(from);
    ASSERT_NE(whole, nullptr) << tensor.name;
    ASSERT_EQ(whole->n_bytes, tensor.n_bytes);
    EXPECT_EQ(std::memcmp(whole->data, tensor.data, tensor.n_bytes), 0) << tensor.name;
  }
  EXPECT_EQ((*part)->FindTensor("blk.3.attn_q.weight"), nullptr);
  EXPECT_EQ(Generate(Options(path, "", 5), 0.7F, 40), Generate({.type = "none"}, 0.7F, 40));
  // With a smaller head and in another type at once.
  const std::vector<int32_t> some = {3, 20, 57};
  ASSERT_TRUE(WriteLmPart(**model, {.layers = {0, 1}, .vocab = some, .type = DType::kQ4_0}, path).ok());
  const auto small = GgufFile::Open(path);
  EXPECT_EQ((*small)->FindTensor(kDraftHeadTensor)->dtype, DType::kQ4_0);
  EXPECT_EQ((*small)->FindTensor("blk.1.ffn_down.weight")->dtype, DType::kQ4_0);
  models_ = DraftModels();
  models_.SetVocabulary(&tokens_);
  EXPECT_EQ(Generate(Options(path, "", 5), 0.7F, 40), Generate({.type = "none"}, 0.7F, 40));
  for (const std::vector<int>& layers : {std::vector<int>{2, 1}, {1, 1}, {3, 4}, {-1, 2}}) {
    EXPECT_THAT(WriteLmPart(**model, {.layers = layers, .vocab = {}}, path).message(),
                HasSubstr("has layers 0 to 3"));
  }
  const auto gemma = GgufFile::Open(Write({.architecture = "gemma3", .n_layers = 4}));
  EXPECT_EQ(WriteLmPart(**gemma, {.layers = {0, 2}, .vocab = {}}, path).code(), StatusCode::kUnsupported);
}

// Rows of its own for these tokens; for every other the first row stands in.
struct OwnRows {
  std::vector<int32_t> vocab, stand_ins;
  std::string of;
};
OwnRows RowsFor(const std::vector<int32_t>& vocab, const GgufFile& target) {
  OwnRows rows = {.vocab = vocab, .stand_ins = std::vector<int32_t>(384), .of = TargetFingerprint(target)};
  for (size_t i = 0; i < vocab.size(); ++i)
    rows.stand_ins[static_cast<size_t>(vocab[i])] = static_cast<int>(i);
  return rows;
}
std::string WriteOwnRows(const GgufFile& model, const OwnRows& rows, const std::string& path) {
  GgufWriter writer;
  for (const auto& [key, value] : model.metadata()) {
    if (!key.starts_with("tokenizer.")) writer.SetValue(key, value);
  }
  writer.SetString(kLmTargetKey, rows.of);
  const auto list = [&](const char* name, const std::vector<int32_t>& values) {
    writer.AddTensor(name, DType::kI32, {std::ssize(values)}, std::as_bytes(std::span(values)));
  };
  list(kDraftVocabTensor, rows.vocab);
  list(kDraftStandInTensor, rows.stand_ins);
  std::vector<std::byte> bytes;
  for (const TensorView& t : model.tensors()) {
    if (t.name != "token_embd.weight") {
      writer.AddTensor(t.name, t.dtype, {t.shape, t.shape + t.n_dims}, {t.data, t.n_bytes});
      continue;
    }
    const size_t row_bytes = t.n_bytes / static_cast<size_t>(t.n_rows());
    for (const int32_t token : rows.vocab) bytes.insert(bytes.end(), t.row(token), t.row(token) + row_bytes);
    writer.AddTensor(t.name, t.dtype, {t.shape[0], std::ssize(rows.vocab)}, bytes);
  }
  EXPECT_TRUE(writer.Write(path).ok());
  return path;
}

// A draft with rows of its own for some tokens reads others as one of these.
TEST_F(LmDrafterTest, TheEmbeddingMayBeOfSomeTokens) {
  const std::vector<int32_t> plain = Generate({.type = "none"}, 0.0F, 60);
  const auto model = GgufFile::Open(Perfect());
  const std::string path = folder_.File("own.gguf");
  const OwnRows all = RowsFor(TokensIn(plain), **model);
  ASSERT_LT(all.vocab.size(), 384U);
  DecodeStats stats;
  EXPECT_EQ(Generate(Options(WriteOwnRows(**model, all, path), "", 5), 0.0F, 60, &stats), plain);
  EXPECT_EQ(stats.accepted, 50);
  // Half of the prompt's tokens are unknown.
  std::vector<int32_t> some;
  for (size_t i = 0; i < all.vocab.size(); i += 2) some.push_back(all.vocab[i]);
  for (const float temperature : {0.0F, 0.7F}) {
    models_ = DraftModels();
    models_.SetVocabulary(&tokens_);
    WriteOwnRows(**model, RowsFor(some, **model), path);
    EXPECT_EQ(Generate(Options(path, "best:4", 16), temperature, 40),
              Generate({.type = "none"}, temperature, 40));
  }
  const auto error = [&](const OwnRows& rows) {
    models_ = DraftModels();
    models_.SetVocabulary(&tokens_);
    const auto cache = tiny_.NewCache(300);
    return Make(Options(WriteOwnRows(**model, rows, path), "", 4), *cache).status().message();
  };
  OwnRows wrong = all;
  wrong.stand_ins.pop_back();
  EXPECT_THAT(error(wrong), HasSubstr("has 383 entries: the draft model does not fit the target"));
  wrong = all;
  wrong.stand_ins[5] = static_cast<int32_t>(all.vocab.size());
  EXPECT_THAT(error(wrong), HasSubstr("must name rows of the draft's embedding"));
}

TEST_F(LmDrafterTest, SameTokensForEveryShapeAndTemperature) {
  const std::string perfect = Perfect();
  TinyModelOptions other;
  other.seed = 9;
  other.n_layers = 1;
  ASSERT_TRUE(WriteTinyModel(other, folder_.File("other.gguf")).ok());
  int64_t accepted = 0;
  for (const float temperature : {0.0F, 0.7F, 1.0F}) {
    const std::vector<int32_t> plain = Generate({.type = "none"}, temperature, 20);
    for (const std::string& path : {perfect, folder_.File("other.gguf")}) {
      for (const char* tree : {"chain", "beam", "2,1,1,3", "best:4", "opt:0.2:4", "eagle2:4:3:20"}) {
        for (const int n_max : {4, 24}) {
          SCOPED_TRACE(path + " " + tree + " " + std::to_string(n_max));
          DecodeStats stats;
          EXPECT_EQ(Generate(Options(path, tree, n_max), temperature, 20, &stats), plain);
          accepted += stats.accepted;
        }
      }
    }
  }
  EXPECT_GT(accepted, 200);
}

// A conversation that was cleared: its session is saved, or goes on with another text.
TEST_F(LmDrafterTest, ItFollowsNothing) {
  const auto cache = tiny_.NewCache(300, CacheType::kF16);
  for (const int window : {0, 32}) {
    SpeculationOptions options = Options(Perfect(), "chain", 4);
    options.lm.window = window;
    const auto drafter = std::move(*Make(options, *cache));
    const std::vector<int32_t> text(90, 7), other = {5, 6, 7, 8, 9};
    TokenTree tree(text.back()), again(other.back()), expected(other.back());
    ASSERT_TRUE(drafter->Follow(text).ok());
    ASSERT_TRUE(drafter->Propose({.max_nodes = 4, .max_depth = 4}, text, tree).ok());
    ASSERT_TRUE(drafter->Follow({}).ok());
    ASSERT_TRUE(drafter->Follow(other).ok());
    ASSERT_TRUE(drafter->Propose({.max_nodes = 4, .max_depth = 4}, other, again).ok());
    const auto fresh = std::move(*Make(options, *cache));
    ASSERT_TRUE(fresh->Propose({.max_nodes = 4, .max_depth = 4}, other, expected).ok());
    ASSERT_EQ(again.size(), 5);
    for (int i = 0; i < again.size(); ++i) EXPECT_EQ(again.node(i).token, expected.node(i).token);
  }
}

// SpecExtend: with room for everything the draft sees what it would see; with less it sees less, and the text
// is the same all the while.
TEST_F(LmDrafterTest, ExtendedItSeesWhatTheTargetLooksAt) {
  const std::string perfect = Perfect();
  for (const float temperature : {0.0F, 0.7F}) {
    const std::vector<int32_t> plain = Generate({.type = "none"}, temperature, 60);
    for (const char* tree : {"chain", "beam", "2,1,1,3", "opt:0.2:4"}) {
      for (const int chunks : {1, 2, 100}) {
        for (const int every : {1, 4}) {
          SCOPED_TRACE(std::string(tree) + " " + std::to_string(chunks) + " " + std::to_string(every));
          SpeculationOptions options = Options(perfect, tree, 5);
          options.spec_extend.chunks = chunks;
          options.spec_extend.every = every;
          DecodeStats stats;
          EXPECT_EQ(Generate(options, temperature, 60, &stats), plain);
          if (chunks == 100 && temperature == 0.0F && std::string_view(tree) == "chain") {
            EXPECT_EQ(stats.accepted, 50);
          }
        }
      }
    }
  }
}

TEST_F(LmDrafterTest, ExtendedItIsAskedForQueriesEveryFewRounds) {
  const auto cache = tiny_.NewCache(300, CacheType::kF16);
  SpeculationOptions options = Options(Perfect(), "", 4);
  EXPECT_EQ((*Make(options, *cache))->taps().query_rows, 0);
  options.spec_extend.chunks = 2;
  EXPECT_GT((*Make(options, *cache))->taps().query_rows, 0);
  options.lm.window = 10;
  EXPECT_THAT(Make(options, *cache).status().message(), HasSubstr("--spec-extend: not with"));
  options.spec_extend.chunks = 0;
  options.spec_extend.enabled = true;
  EXPECT_THAT(Make(options, *cache).status().message(), HasSubstr("--spec-extend: not with"));
}

// Below the gate proposals are those without SpecExtend, to the bit; from it on those of a gate that was
// never closed.
TEST_F(LmDrafterTest, BelowTheGateItSeesAll) {
  TinyModelOptions longer;
  longer.context_length = 2000;
  const std::string path = Write(longer);
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 1500; ++i) text.push_back(i * 7 % 300 + 10);
  const auto cache = tiny_.NewCache(1700, CacheType::kF16);
  const auto propose = [&](int chunks, int from) {
    SpeculationOptions options = Options(path, "2,2,2", 6);
    options.spec_extend.chunks = chunks;
    options.spec_extend.from = from;
    auto drafter = Make(options, *cache);
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    EXPECT_TRUE((*drafter)->Follow(text).ok());
    TokenTree tree(text.back());
    EXPECT_TRUE((*drafter)->Propose({.max_nodes = 6, .max_depth = 3}, text, tree).ok());
    std::vector<std::pair<int32_t, float>> nodes;
    for (int i = 1; i < tree.size(); ++i) nodes.emplace_back(tree.node(i).token, tree.node(i).score);
    EXPECT_EQ(nodes.size(), 6U);
    return nodes;
  };
  const auto without = propose(0, 0), with = propose(2, 1);
  EXPECT_NE(with, without);  // of the prompt a window was seen
  EXPECT_EQ(propose(2, 1501), without);
  EXPECT_EQ(propose(2, 1500), with);
  EXPECT_EQ(propose(2, 0), with);      // 64: what the chunks hold
  EXPECT_EQ(propose(47, 0), without);  // 1504
}

TEST_F(LmDrafterTest, TheTextIsTheSameAcrossTheGate) {
  const std::string perfect = Perfect();
  for (const float temperature : {0.0F, 0.7F}) {
    const std::vector<int32_t> plain = Generate({.type = "none"}, temperature, 60);
    for (const char* tree : {"chain", "2,1,1,3"}) {
      for (const int every : {1, 3}) {
        SpeculationOptions options = Options(perfect, tree, 5);
        options.spec_extend.chunks = 1;
        options.spec_extend.every = every;
        std::vector<int64_t> accepted;
        for (const int from : {1, 100, 1000}) {
          options.spec_extend.from = from;
          DecodeStats stats;
          EXPECT_EQ(Generate(options, temperature, 60, &stats), plain) << tree << every << from;
          accepted.push_back(stats.accepted);
        }
        if (temperature == 0.0F && std::string_view(tree) == "chain") {
          // A perfect draft is so as long as it sees what the target sees.
          EXPECT_LT(accepted[0], accepted[1]);
          EXPECT_LT(accepted[1], accepted[2]);
          EXPECT_EQ(accepted[2], 50);
        }
      }
    }
  }
}

// A text of a small target with a draft that sees one chunk and the newest.
class ExtendedScene {
 public:
  ExtendedScene(TinyTarget* tiny, Drafter* drafter, KvCache* cache, const Sampler* sampler)
      : tiny_(*tiny), drafter_(*drafter), cache_(*cache), sampler_(*sampler) {}

  // Evaluates a text, and makes so many rounds.
  void Decode(const std::vector<int32_t>& prompt, int n_rounds, const SpeculationOptions& options,
              int prefill_chunk = 64) {
    cache_.Truncate(0);
    EXPECT_TRUE(drafter_.Follow(prompt).ok());
    OneSequence decoder(&tiny_.target(), prompt, &cache_, &drafter_, MakeFixedPolicy(options), sampler_,
                        prefill_chunk);
    EXPECT_TRUE(decoder.Prefill().ok());
    for (int i = 0; i < n_rounds; ++i) EXPECT_TRUE(decoder.Step(20).ok());
    committed_ = decoder.tokens();
  }
  // Tokens and scores of nodes of each depth.
  std::vector<std::vector<std::pair<int32_t, float>>> Propose() {
    TokenTree tree(committed_.back());
    EXPECT_TRUE(drafter_.Propose({.max_nodes = 14, .max_depth = 3}, committed_, tree).ok());
    std::vector<std::vector<std::pair<int32_t, float>>> levels(4);
    for (int i = 1; i < tree.size(); ++i) {
      levels[static_cast<size_t>(tree.node(i).depth)].emplace_back(tree.node(i).token, tree.node(i).score);
    }
    return levels;
  }
  const std::vector<int32_t>& committed() const { return committed_; }

 private:
  TinyTarget& tiny_;
  Drafter& drafter_;
  KvCache& cache_;
  const Sampler& sampler_;
  std::vector<int32_t> committed_;
};

std::vector<int32_t> Text(int32_t seed, int32_t n) {
  std::vector<int32_t> text;
  for (int32_t i = 0; i < n; ++i) text.push_back((i * (seed + 5) + i * i % (7 + seed)) % 300 + 10);
  return text;
}

// The last token is run on the set that was: the first level of a tree does not know yet whether another set
// was chosen, and the next ones do.
TEST_F(LmDrafterTest, TheRootIsRunOnTheOldSet) {
  const Sampler sampler = *Sampler::Create({.temperature = 0, .seed = 5}, tiny_.spec.n_vocab);
  int n_other = 0;
  for (int32_t seed = 0; seed < 6; ++seed) {
    const auto propose = [&](int every) {
      SpeculationOptions options = Options(Perfect(), "2,2,2", 14);
      options.spec_extend.chunks = 1;
      options.spec_extend.every = every;
      const auto cache = tiny_.NewCache(400, CacheType::kF16);
      const auto drafter = std::move(*Make(options, *cache));
      ExtendedScene scene(&tiny_, drafter.get(), cache.get(), &sampler);
      scene.Decode(Text(seed, 250), 2, options);  // of the second round's attention a set is chosen, or not
      auto levels = scene.Propose();
      EXPECT_EQ(levels[1].size(), 2U);
      return levels;
    };
    const auto chosen = propose(1), kept = propose(100);
    EXPECT_EQ(chosen[1], kept[1]) << seed;
    n_other += chosen[2] != kept[2];
  }
  EXPECT_GT(n_other, 0);  // else no set changed
}

// Two texts one after the other are as in sessions of their own.
TEST_F(LmDrafterTest, ExtendedNothingOfATextBeforeIsLeft) {
  const Sampler sampler = *Sampler::Create({.temperature = 0, .seed = 5}, tiny_.spec.n_vocab);
  SpeculationOptions options = Options(Perfect(), "2,2,2", 14);
  options.spec_extend.chunks = 1;
  options.spec_extend.every = 3;
  const auto propose = [&](bool after_another, int n_rounds) {
    const auto cache = tiny_.NewCache(400, CacheType::kF16);
    const auto drafter = std::move(*Make(options, *cache));
    ExtendedScene scene(&tiny_, drafter.get(), cache.get(), &sampler);
    if (after_another) scene.Decode(Text(9, 230), 4, options);
    scene.Decode(Text(3, 250), n_rounds, options);
    return scene.Propose();
  };
  for (const int n_rounds : {0, 1, 2, 4})
    EXPECT_EQ(propose(true, n_rounds), propose(false, n_rounds)) << n_rounds;
}

// However short the pieces are in which a prompt is read: a set that grew with them would leave the draft's
// training behind.
TEST_F(LmDrafterTest, PiecesOfAPromptDoNotMakeTheSetLarger) {
  const Sampler sampler = *Sampler::Create({.temperature = 0, .seed = 5}, tiny_.spec.n_vocab);
  SpeculationOptions options = Options(Write({.context_length = 700}), "2,2,2", 14);
  options.spec_extend.chunks = 2;
  for (const int piece : {40, 256, 400}) {
    const auto cache = tiny_.NewCache(1200, CacheType::kF16);
    const auto drafter = std::move(*Make(options, *cache));
    ExtendedScene scene(&tiny_, drafter.get(), cache.get(), &sampler);
    scene.Decode(Text(3, 1000), 0, options, piece);
    EXPECT_EQ(scene.Propose()[3].size(), 2U) << piece;
    EXPECT_EQ(drafter->notice(), "");
    scene.Decode(Text(3, 1000), 3, options, piece);
    EXPECT_EQ(scene.Propose()[3].size(), 2U) << piece;
  }
}

// Inside another drafter nobody shows it the target's attention, so it reads all of a text.
TEST_F(LmDrafterTest, InsideAnotherItIsNotExtended) {
  SpeculationOptions options = Options(Perfect(), "chain", 5);
  options.type = "partial";
  options.partial.inner = "lm";
  const auto cache = tiny_.NewCache(400, CacheType::kF16);
  const auto plain = Make(options, *cache);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  options.spec_extend.enabled = true;
  EXPECT_EQ(Make(options, *cache).status().message(),
            "--spec-extend: has no effect with --spec-type partial; it is for eagle, eagle3 and lm");
}

// One of several drafters reads the end of a text when it is asked, however long it was not, and says before
// how much that is.
TEST_F(LmDrafterTest, OfSeveralItReadsWhenItIsAsked) {
  const auto cache = tiny_.NewCache(800, CacheType::kF16);
  const auto make = [&] {
    return std::move(*MakeDrafter(
        Options(Perfect(), "chain", 4),
        {.target = &tiny_.target(), .cache = cache.get(), .models = &models_, .one_of_several = true}));
  };
  const auto drafter = make(), other = make();
  std::vector<int32_t> text;
  const auto write = [&](int n) {
    for (int i = 0; i < n; ++i) text.push_back((i * i + 7 * std::ssize(text)) % 200 + 10);
    EXPECT_TRUE(drafter->Read({.sequence = text, .n_new = n}).ok());
  };
  const auto guesses = [&](Drafter& of) {
    TokenTree tree(text.back());
    EXPECT_TRUE(of.Propose({.max_nodes = 4, .max_depth = 4}, text, tree).ok());
    std::vector<int32_t> tokens;
    for (const TreeNode& node : tree.nodes().subspan(1)) tokens.push_back(node.token);
    return tokens;
  };
  write(300);
  ASSERT_TRUE(drafter->Follow(text).ok());
  ASSERT_TRUE(drafter->Read({.sequence = text, .n_new = 0}).ok());
  EXPECT_EQ(drafter->Unread(text), 63U);  // the last token is read with the proposal
  for (const int n_more : {1, 40, 200}) {
    write(n_more);
    const size_t unread = drafter->Unread(text);
    EXPECT_LE(unread, 64U);
    EXPECT_GT(unread, 0U);
    ASSERT_TRUE(drafter->CatchUp(text).ok());
    EXPECT_EQ(drafter->Unread(text), 0U);
    EXPECT_EQ(guesses(*drafter), guesses(*other)) << n_more;  // which did not catch up before
    EXPECT_EQ(guesses(*drafter).size(), 4U);
  }
}

// The paper's numbers, where nothing else is said.
TEST(SpecExtendOptions, AreThePapersByKindOfDraft) {
  const auto numbers = [](const SpecExtendSettings& s) { return std::array{s.n_chunks, s.every, s.from}; };
  const auto of = [&](const SpeculationOptions& options, bool eagle, int trained) {
    return numbers(SpecExtendOf(options, eagle ? kSpecExtendOfEagle : kSpecExtendOfLm, trained));
  };
  EXPECT_EQ(of({}, false, 0), (std::array{0, 0, 0}));
  EXPECT_FALSE(SpecExtendOf({.spec_extend = {.every = 3}}, kSpecExtendOfLm, 0).on());
  EXPECT_EQ(of({.spec_extend = {.enabled = true}}, false, 8192), (std::array{32, 4, 1024}));
  EXPECT_EQ(of({.spec_extend = {.enabled = true}}, true, 0), (std::array{64, 8, 2048}));
  // A draft of as many positions as the set has needs places for what it drafts.
  EXPECT_EQ(of({.spec_extend = {.enabled = true}}, true, 2048), (std::array{56, 8, 1792}));
  EXPECT_EQ(of({.spec_extend = {.enabled = true}}, false, 20), (std::array{1, 4, 20}));
  EXPECT_EQ(of({.spec_extend = {.chunks = 20, .every = 2}}, true, 2048), (std::array{20, 2, 640}));
  EXPECT_EQ(of({.spec_extend = {.chunks = 100, .from = 1}}, true, 2048), (std::array{100, 8, 1}));
  // SpecExtend begins where a draft's training ends, if not before.
  EXPECT_EQ(of({.spec_extend = {.enabled = true, .from = 4000}}, false, 2048), (std::array{32, 4, 2048}));
  EXPECT_EQ(of({.spec_extend = {.enabled = true, .from = 4000}}, false, 8192), (std::array{32, 4, 4000}));
}

// Scores are the draft's probabilities of the paths, however the tree was cut into passes.
TEST_F(LmDrafterTest, ScoresArePathProbabilities) {
  const auto cache = tiny_.NewCache(300, CacheType::kF32);
  const auto drafter = Make(Options(Perfect(), "8,40,80", 128), *cache);
  ASSERT_TRUE(drafter.ok()) << drafter.status().message();
  const std::vector<int32_t> committed = {9, 8, 7};
  ASSERT_TRUE((*drafter)->Follow(committed).ok());
  TokenTree tree(7);
  ASSERT_TRUE((*drafter)->Propose({.max_nodes = 128, .max_depth = 3}, committed, tree).ok());
  ASSERT_EQ(tree.size(), 129);
  for (const int i : {1, 8, 9, 48, 49, 128}) {
    double expected = 0;
    std::vector<int32_t> text = committed;
    for (const int32_t token : tree.TokensTo(i)) {
      auto fresh = tiny_.NewCache(20);
      auto rows = fresh->Begin(static_cast<int>(text.size()));
      ASSERT_TRUE(rows.ok());
      const ForwardSegment segment = {
          .tokens = text, .parents = {}, .kv = &*rows, .logits = LogitsFor::kLastRow};
      const auto output = tiny_.target().Forward({&segment, 1});
      ASSERT_TRUE(output.ok());
      const float* logits = testing::ValuesOf(output->segments[0].logits[0]).data();
      double sum = 0;
      for (int t = 0; t < output->vocab; ++t) sum += std::exp(static_cast<double>(logits[t]));
      expected += static_cast<double>(logits[token]) - std::log(sum);
      text.push_back(token);
    }
    EXPECT_NEAR(std::log(static_cast<double>(tree.node(i).score)), expected, 1e-4) << i;
  }
  EXPECT_GT((*drafter)->bytes(), 0U);
}

// And the nodes are those of the shape's specification.
TEST_F(LmDrafterTest, TreesOfOtherMethodsAreTheirSpecifications) {
  const std::vector<int32_t> committed = {9, 8, 7}, vocab = {7, 42, 43, 44, 200, 300};  // so trees are deep
  const Next next = [&](const Path& path) {
    std::vector<int32_t> text = committed;
    text.insert(text.end(), path.begin(), path.end());
    const auto fresh = tiny_.NewCache(20);
    auto rows = fresh->Begin(static_cast<int>(text.size()));
    const ForwardSegment segment = {
        .tokens = text, .parents = {}, .kv = &*rows, .logits = LogitsFor::kLastRow};
    const auto output = tiny_.target().Forward({&segment, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    const float* logits = testing::ValuesOf(output->segments[0].logits[0]).data();
    Vec of_draft(static_cast<size_t>(output->vocab), -1e300);
    for (const int32_t t : vocab) of_draft[static_cast<size_t>(t)] = static_cast<double>(logits[t]);
    return LogSoftmax(of_draft);
  };
  const std::string path_of_draft = OfTarget(vocab, DType::kF32);
  const auto expect_tree = [&](const char* tree, int max_nodes, const Scores& expected) {
    SCOPED_TRACE(tree);
    const auto cache = tiny_.NewCache(300, CacheType::kF32);
    const auto drafter = Make(Options(path_of_draft, tree, max_nodes), *cache);
    ASSERT_TRUE(drafter.ok()) << drafter.status().message();
    ASSERT_TRUE((*drafter)->Follow(committed).ok());
    TokenTree proposed(7);
    ASSERT_TRUE((*drafter)->Propose({.max_nodes = max_nodes, .max_depth = 10}, committed, proposed).ok());
    ExpectTree(proposed, expected);
  };
  expect_tree("opt:-1:2", 6, OptTreeSearch(next, 6, -1, 2));
  expect_tree("opt:-1:5", 6, OptTreeSearch(next, 6, -1, 5));
  expect_tree("opt:0.1:5", 6, OptTreeSearch(next, 6, 0.1, 5));
  expect_tree("eagle2:4:3:20", 9, Eagle2Search(next, 4, 3, 9));
  expect_tree("eagle2:2:3:30", 40, Eagle2Search(next, 2, 3, 14));  // all that it finds
}

// A window that holds everything drafts what a whole cache does; a small one stays as large, and the text the
// same.
TEST_F(LmDrafterTest, AWindowForgetsAndTheTextIsTheSame) {
  const std::string path = Perfect();
  const auto windowed = [&](int sink, int window, const char* tree) {
    SpeculationOptions options = Options(path, tree, 6);
    options.lm.sink = sink;
    options.lm.window = window;
    return options;
  };
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 250; ++i) text.push_back(i * 7 % 300 + 10);
  const auto cache = tiny_.NewCache(300, CacheType::kF16);
  const auto propose = [&](Drafter& drafter, size_t length) {
    const auto committed = std::span(text).first(length);
    EXPECT_TRUE(drafter.Follow(committed).ok());
    TokenTree tree(committed.back());
    EXPECT_TRUE(drafter.Propose({.max_nodes = 6, .max_depth = 3}, committed, tree).ok());
    std::vector<std::pair<int32_t, float>> nodes;
    for (int i = 1; i < tree.size(); ++i) nodes.emplace_back(tree.node(i).token, tree.node(i).score);
    return nodes;
  };
  for (const char* tree : {"chain", "2,2,2"}) {
    const auto whole = Make(Options(path, tree, 6), *cache);
    const auto large = Make(windowed(4, 400, tree), *cache);
    const auto small = Make(windowed(4, 32, tree), *cache);
    ASSERT_TRUE(whole.ok() && large.ok() && small.ok());
    const auto expected = propose(**whole, 200);
    const auto wide = propose(**large, 200);
    ASSERT_EQ(wide.size(), expected.size());
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(wide[i].first, expected[i].first);
      EXPECT_NEAR(wide[i].second, expected[i].second, 1e-6);
    }
    EXPECT_NE(propose(**small, 200), expected);
    const size_t bytes = (*small)->bytes();
    propose(**small, 250);
    EXPECT_LE((*small)->bytes(), bytes + 250 * sizeof(int32_t));  // the tokens themselves
    // Another text that begins the same: the window is filled anew.
    const auto before = propose(**small, 100);
    const auto fresh = Make(windowed(4, 32, tree), *cache);
    EXPECT_EQ(before, propose(**fresh, 100));
    for (const float temperature : {0.0F, 0.7F, 1.0F}) {
      EXPECT_EQ(Generate(windowed(4, 16, tree), temperature, 30),
                Generate({.type = "none"}, temperature, 30));
    }
    EXPECT_EQ(Generate(windowed(0, 1, tree), 0.0F, 30), Generate({.type = "none"}, 0.0F, 30));
  }
}

// Asked about a text that goes on otherwise than it was told, which may be taken back, a window loses
// nothing.
TEST_F(LmDrafterTest, AWindowIsAskedAboutWhatMayBeTakenBack) {
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 220; ++i) text.push_back(i * 7 % 300 + 10);
  const auto cache = tiny_.NewCache(300);
  const auto propose = [&](Drafter& drafter, std::span<const int32_t> of) {
    TokenTree tree(of.back());
    EXPECT_TRUE(drafter.Propose({.max_nodes = 6, .max_depth = 3}, of, tree).ok());
    return PathsOf(tree);
  };
  const auto told = std::span<const int32_t>(text).first(200);
  for (const char* tree : {"chain", "2,2,2"}) {
    for (const int window : {16, 400}) {
      SpeculationOptions options = Options(Perfect(), tree, 6);
      options.lm.window = window;
      const auto drafter = std::move(*Make(options, *cache)), fresh = std::move(*Make(options, *cache));
      ASSERT_TRUE(drafter->Follow(told).ok());
      const auto before = propose(*drafter, told);
      EXPECT_FALSE(before.empty());
      for (const size_t more : {1, 5, 20}) {
        const auto longer = std::span<const int32_t>(text).first(200 + more);
        const auto after = propose(*drafter, longer);
        EXPECT_EQ(after.size(), before.size());
        EXPECT_NE(after, before);
        // As if it had been told, where the window holds all of it.
        ASSERT_TRUE(fresh->Follow(longer).ok());
        const auto expected = propose(*fresh, longer);
        if (window < 200) continue;
        ASSERT_EQ(after.size(), expected.size());
        for (const auto& [path, score] : expected) EXPECT_NEAR(after.at(path), score, 1e-6);
      }
      EXPECT_EQ(propose(*drafter, told), before) << window;
      EXPECT_TRUE(drafter->rewinds());
    }
  }
}

// StreamingLLM's window has positions of its own: a model that knows short texts reads one of any length.
TEST_F(LmDrafterTest, AWindowOutlastsItsTraining) {
  SpeculationOptions options = Options(Write({.context_length = 80}), "", 4);
  options.lm.window = 50;
  DecodeStats stats;
  std::string notice;
  EXPECT_EQ(Generate(options, 0.0F, 150, &stats, &notice), Generate({.type = "none"}, 0.0F, 150));
  EXPECT_GE(stats.drafted, 3 * stats.steps);
  EXPECT_EQ(notice, "");
  // One that is larger than what it knows is left out of by as much.
  options.lm.window = 200;
  EXPECT_EQ(Generate(options, 0.0F, 150, &stats, &notice), Generate({.type = "none"}, 0.0F, 150));
  EXPECT_THAT(notice, HasSubstr("was trained for 80 positions"));
}

// A draft that knows short texts only goes on in long ones with their ends, in memory that does not grow.
TEST_F(LmDrafterTest, BeyondItsTrainingItBeginsAnew) {
  TinyModelOptions shorter;
  shorter.context_length = 80;
  const std::string path = Write(shorter);
  for (const float temperature : {0.0F, 0.7F}) {
    const std::vector<int32_t> plain = Generate({.type = "none"}, temperature, 150);
    for (const char* tree : {"", "best:4"}) {
      for (const int recent : {0, 1, 30, 1000}) {
        SCOPED_TRACE(std::string(tree) + " " + std::to_string(recent));
        DecodeStats stats;
        std::string notice;
        SpeculationOptions options = Options(path, tree, 4);
        options.lm.recent = recent;
        EXPECT_EQ(Generate(options, temperature, 150, &stats, &notice), plain);
        EXPECT_GE(stats.drafted, 3 * stats.steps);  // in every round
        EXPECT_EQ(notice, "");
      }
    }
  }
  const auto bytes = [&](int positions) {
    const auto cache = tiny_.NewCache(positions, CacheType::kF16);
    const auto drafter = std::move(*Make(Options(path, "", 4), *cache));
    std::vector<int32_t> text;
    for (int32_t i = 0; i < 200; ++i) text.push_back(i * 3 % 300 + 10);
    TokenTree tree(text.back());
    EXPECT_TRUE(drafter->Follow(text).ok());
    EXPECT_TRUE(drafter->Propose({.max_nodes = 4, .max_depth = 4}, text, tree).ok());
    EXPECT_EQ(tree.size(), 5);
    return drafter->bytes();
  };
  bytes(300);  // what it reads is known then
  EXPECT_EQ(bytes(300), bytes(100000));
}

// What the target has computed of a text is read when the draft is told of the text, and not in the first
// round; others that begin alike take it over.
TEST_F(LmDrafterTest, WhatWasComputedBeforeIsReadBeforeTheFirstRound) {
  const std::string path = Write({.context_length = 1000});
  const std::vector<int32_t> text = RandomTokens(700, 4, 300);
  const auto empty = tiny_.NewCache(1000, CacheType::kF16), computed = tiny_.NewCache(1000, CacheType::kF16);
  tiny_.Evaluate(BeforeLast(text), *computed);
  const size_t chunk = KvChunkBytes(computed->Span(0).layout, tiny_.spec.n_layer);
  for (const int chunks : {0, 2}) {
    SpeculationOptions options = Options(path, "", 4);
    options.spec_extend.chunks = chunks;
    const auto later = std::move(*Make(options, *empty));
    ASSERT_TRUE(later->Follow(text).ok());
    EXPECT_LT(later->bytes(), chunk);
    for (int i = 0; i < 2; ++i) {
      const auto drafter = std::move(*Make(options, *computed));
      ASSERT_TRUE(drafter->Follow(text).ok());
      EXPECT_GE(drafter->bytes(), 3 * chunk);
    }
    const auto after = std::move(*Make(options, *empty));
    ASSERT_TRUE(after->Follow(text).ok());
    EXPECT_GE(after->bytes(), 3 * chunk);  // taken over: nobody reads what is not computed yet
  }
}

// The end of a text is drafted from as if the text began there.
TEST_F(LmDrafterTest, ItBeginsWithTheNewestTokens) {
  const auto cache = tiny_.NewCache(300, CacheType::kF16);
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 120; ++i) text.push_back(i * i % 300 + 10);
  const auto propose = [&](Drafter& drafter, std::span<const int32_t> of) {
    TokenTree tree(of.back());
    EXPECT_TRUE(drafter.Propose({.max_nodes = 6, .max_depth = 3}, of, tree).ok());
    std::vector<std::pair<int32_t, float>> nodes;
    for (int i = 1; i < tree.size(); ++i) nodes.emplace_back(tree.node(i).token, tree.node(i).score);
    EXPECT_EQ(nodes.size(), 6U);
    return nodes;
  };
  SpeculationOptions options = Options(Perfect(), "2,2,2", 6);
  const auto whole = std::move(*Make(options, *cache));
  options.lm.recent = 50;
  const auto recent = std::move(*Make(options, *cache));
  ASSERT_TRUE(recent->Follow(text).ok());
  const std::vector<int32_t> end(text.end() - 50, text.end());
  EXPECT_EQ(propose(*recent, text), propose(*whole, end));
  // And goes on so.
  text.push_back(77);
  const std::vector<int32_t> longer(text.end() - 51, text.end());
  EXPECT_EQ(propose(*recent, text), propose(*whole, longer));
}

TEST(RecentText, IsAllOfATextThatIsShortEnough) {
  std::vector<int32_t> text(100, 7), held;
  RecentText recent(100, 0);
  EXPECT_EQ(recent.Follow(held, text), 0U);
  EXPECT_EQ(recent.Of(text).size(), 100U);
  held.assign(text.begin(), text.end() - 1);
  EXPECT_EQ(recent.Follow(held, text), 99U);
  // One more is too many: a quarter of them is what it begins anew with.
  text.push_back(8);
  EXPECT_EQ(recent.Follow(held, text), 0U);
  EXPECT_EQ(recent.Of(text).size(), 25U);
  EXPECT_EQ(recent.begin(), 76U);
  // A part that grows stays where it is until it is too long again.
  held.assign(text.end() - 25, text.end() - 1);
  for (int32_t i = 0; i < 75; ++i) {
    text.push_back(i);
    ASSERT_EQ(recent.Follow(held, text), held.size());
    held.push_back(text[text.size() - 2]);
  }
  EXPECT_EQ(recent.Of(text).size(), 100U);
  text.push_back(3);
  EXPECT_EQ(recent.Follow(held, text), 0U);
  EXPECT_EQ(recent.Of(text).size(), 25U);
}

TEST(RecentText, BeginsAnewInAnotherTextAndWhereTooMuchIsMissing) {
  std::vector<int32_t> text(200, 7);
  RecentText recent(0, 20);
  EXPECT_EQ(recent.Follow({}, text), 0U);
  EXPECT_EQ(recent.begin(), 180U);
  const std::vector<int32_t> held(19, 7);
  for (int i = 0; i < 20; ++i) text.push_back(5);
  EXPECT_EQ(recent.Follow(held, text), 19U);
  EXPECT_EQ(recent.begin(), 180U);
  text.push_back(5);  // 21 are not read
  EXPECT_EQ(recent.Follow(held, text), 0U);
  EXPECT_EQ(recent.begin(), 201U);
  // Another text, a shorter one, and none at all.
  const std::vector<int32_t> other(300, 9), few = {1, 2, 3};
  EXPECT_EQ(recent.Follow(held, other), 0U);
  EXPECT_EQ(recent.begin(), 280U);
  EXPECT_EQ(recent.Follow(held, few), 0U);
  EXPECT_EQ(recent.Of(few).size(), 3U);
  EXPECT_EQ(recent.Follow(held, {}), 0U);
  EXPECT_EQ(recent.Of({}).size(), 0U);
  // Taken back to before its beginning.
  EXPECT_EQ(recent.Follow({}, other), 0U);
  EXPECT_EQ(recent.Follow(std::vector<int32_t>(19, 9), std::span(other).first(150)), 0U);
  EXPECT_EQ(recent.begin(), 130U);
}

TEST_F(LmDrafterTest, OtherVocabulariesAreRefusedWithTheReason) {
  const auto cache = tiny_.NewCache(10);
  const auto message = [&](const std::string& path) {
    const auto drafter = Make(Options(path, "", 4), *cache);
    EXPECT_EQ(drafter.status().code(), StatusCode::kUnsupported);
    return drafter.status().message();
  };
  TinyModelOptions larger;
  larger.n_vocab = 600;
  EXPECT_THAT(message(Write(larger)), HasSubstr("a vocabulary of 600 tokens, the target has 384"));
  tokens_[300] = "elsewhere";
  EXPECT_THAT(message(Write({})), HasSubstr("token 300 is '"));
  tokens_.resize(200);
  EXPECT_THAT(message(Write({})), HasSubstr("its tokenizer has 384 tokens, the target's has 200"));
  EXPECT_EQ(Make(Options("/nonexistent.gguf", "", 4), *cache).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(MakeDrafter(Options(folder_.File("draft.gguf"), "", 4),
                          {.target = &tiny_.target(), .cache = cache.get()})
                  .status()
                  .message(),
              HasSubstr("vocabulary is not known"));
}

TEST_F(LmDrafterTest, AModelIsLoadedOnce) {
  const std::string path = Perfect();
  const auto first = models_.Lm(path, tiny_.parts());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(models_.Lm(path, tiny_.parts())->get(), first->get());
}

TEST(LmOptions, AreCheckedBeforeAnyModelIsRead) {
  const auto message = [](SpeculationOptions options) {
    options.type = "draft";
    return CheckDrafter(options).message();
  };
  EXPECT_THAT(message({}), HasSubstr("--spec-type draft: needs a draft model"));
  EXPECT_THAT(message({.draft_model = "x", .draft_weights = "f32"}),
              HasSubstr("--spec-draft-weights: has no effect"));
  EXPECT_THAT(message({.tree = "wide", .draft_model = "x"}), HasSubstr("--spec-tree wide"));
  EXPECT_THAT(message({.draft_model = "x", .lm = {.recent = 64}, .spec_extend = {.enabled = true}}),
              HasSubstr("not with --spec-draft-recent"));
  EXPECT_EQ(message({.draft_model = "x"}), "");
}

}  // namespace
}  // namespace longspec::testing
