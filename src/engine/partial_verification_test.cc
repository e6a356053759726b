// SPDX-License-Identifier: Apache-2.0
//
// Partial verification through the facade: an approximation, but one and the same text whoever drafts,
// however the prompt is cut, whatever was known before, alone or among others; against a loop of its own that
// starts from nothing at every refresh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "decode/testing/samplings.h"
#include "draft/testing/longspec_files.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "kv/retrieval_cache.h"
#include "longspec/engine.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

constexpr int kPrompt = 150, kTokens = 90;
constexpr RetrievalOptions kSet = {.sink = 16, .budget = 32, .window = 20, .refresh = 12};

std::vector<int32_t> Prompt(int n = kPrompt) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back(3 + i * i % 97 + i / 40);
  return tokens;
}

GenerationRequest Request(float temperature, const std::string& type = "none", int n_prompt = kPrompt) {
  GenerationRequest request;
  request.tokens = Prompt(n_prompt);
  request.n_predict = kTokens;
  request.ignore_eos = true;
  request.sampling.temperature = temperature;
  request.sampling.seed = 5;
  request.speculation.type = type;
  request.partial_verification = {.enabled = true,
                                  .sink = kSet.sink,
                                  .budget = kSet.budget,
                                  .window = kSet.window,
                                  .refresh = kSet.refresh};
  return request;
}

class PartialVerification : public ::testing::Test {
 protected:
  PartialVerification() {
    EXPECT_TRUE(WriteTinyModel({.context_length = 1024}, Path()).ok());
    engine_ = Load(1, 512, "");
  }

  std::string Path() const { return folder_.File("target.gguf"); }

  std::unique_ptr<Engine> Load(int threads, int batch_size, const std::string& kernels) const {
    ModelOptions options;
    options.path = Path();
    options.threads = threads;
    options.batch_size = batch_size;
    options.kernels = kernels;
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(*engine);
  }

  GenerationResult Generate(Engine& engine, const GenerationRequest& request) {
    const auto session = engine.NewSession();
    auto result = engine.Generate(**session, request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? std::move(*result) : GenerationResult();
  }

  testing::Folder folder_;
  std::unique_ptr<Engine> engine_;
};

// One token at a time; at every refresh the whole text is evaluated anew and a new set is chosen from
// nothing. Also counts the tokens that a whole cache would have chosen otherwise.
std::vector<int32_t> Naive(const std::string& path, const GenerationRequest& request, int64_t* differing,
                           int64_t* refreshes) {
  const auto file = *GgufFile::Open(path);
  const LlamaConfig config = *ReadLlamaConfig(*file, {});
  ThreadTeam team(1);
  LlamaLoadOptions load;
  load.kernels = kernels::Available().front();
  load.team = &team;
  load.max_rows = 512;
  const auto target = *LoadLlama(file, config, load);
  const KvLayout layout = config.kv_layout(CacheType::kF16, CacheType::kF16);
  SamplingOptions sampling = request.sampling;
  for (const int32_t end : {2})
    sampling.logit_bias.emplace_back(end, -std::numeric_limits<float>::infinity());
  const Sampler sampler = *Sampler::Create(sampling, target->vocab_size());
  Sampler::Scratch scratch;
  std::vector<int32_t> tokens = request.tokens;
  const auto choose = [&](const float* logits, size_t at) {
    const auto vocab = static_cast<size_t>(target->vocab_size());
    return sampler.Sample({logits, vocab}, {std::span(tokens).first(at), {}}, at, scratch);
  };
  const auto whole = [&] { return MakeFullCache(layout, config.n_layer, 1024); };
  // Evaluates tokens [0, n) of the text; the queries of the last.
  const auto evaluate = [&](KvCache& cache, size_t n, const Taps& taps) {
    auto rows = cache.Begin(static_cast<int>(n));
    const ForwardSegment segment = {
        .tokens = std::span(tokens).first(n), .parents = {}, .kv = &*rows, .taps = &taps};
    auto output = target->Forward({&segment, 1});
    EXPECT_TRUE(output.ok());
    rows->CommitAll();
    return *output;
  };
  auto set = MakeRetrievalCache(layout, config.n_layer, config.n_head, kSet);
  const int first = std::max<int>(kPrompt - 1, kSet.sink + kSet.budget + kSet.window + kKeyBlock);
  int boundary = -1;
  size_t compared = static_cast<size_t>(first) + 1;
  const Taps taps = {.query_rows = 1};
  while (tokens.size() < request.tokens.size() + static_cast<size_t>(kTokens)) {
    const size_t held = tokens.size() - 1;
    if (static_cast<int>(held) < first) {
      const auto cache = whole();
      const TargetOutput output = evaluate(*cache, tokens.size(), {});
      tokens.push_back(
          choose(output.segments[0].logits + (tokens.size() - 1) * static_cast<size_t>(output.vocab),
                 tokens.size()));
      continue;
    }
    if (boundary < 0 || static_cast<int>(held) - boundary == kSet.refresh) {
      boundary = static_cast<int>(held);
      const auto cache = whole();
      const TargetOutput output = evaluate(*cache, held, taps);
      for (; compared <= held; ++compared) {
        const float* row = output.segments[0].logits + (compared - 1) * static_cast<size_t>(output.vocab);
        *differing += choose(row, compared) != tokens[compared];
      }
      set = MakeRetrievalCache(layout, config.n_layer, config.n_head, kSet);
      std::vector<const float*> queries = output.segments[0].queries;
      set->SetQueries(queries);
      EXPECT_TRUE(set->Choose(*cache, (boundary - kSet.window) / kKeyBlock * kKeyBlock).ok());
      ++*refreshes;
    }
    auto row = set->Begin(1);
    const ForwardSegment segment = {.tokens = {&tokens.back(), 1}, .parents = {}, .kv = &*row};
    const auto output = target->Forward({&segment, 1});
    const int32_t next = choose(output->segments[0].logits, tokens.size());
    row->CommitAll();
    tokens.push_back(next);
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(request.tokens.size()), tokens.end()};
}

TEST_F(PartialVerification, IsWhatTheNaiveLoopWrites) {
  for (const float temperature : {0.0F, 0.7F}) {
    const GenerationRequest request = Request(temperature);
    int64_t differing = 0, refreshes = 0;
    const std::vector<int32_t> expected = Naive(Path(), request, &differing, &refreshes);
    const GenerationResult result = Generate(*engine_, request);
    EXPECT_EQ(result.tokens, expected);
    EXPECT_EQ(result.partial_verification.refreshes, refreshes);
    EXPECT_EQ(result.partial_verification.differing, differing);
    EXPECT_GT(differing, 0);  // else nothing was approximate
    EXPECT_GT(result.partial_verification.checked, 60);
    EXPECT_FALSE(result.speculative.lossless);
    GenerationRequest plain = request;
    plain.partial_verification = {};
    EXPECT_NE(Generate(*engine_, plain).tokens, expected);
  }
}

TEST_F(PartialVerification, IsTheSameTextWhoeverDraftsAndHoweverItRuns) {
  for (const float temperature : {0.0F, 0.7F}) {
    const std::vector<int32_t> expected = Generate(*engine_, Request(temperature)).tokens;
    for (const char* type : {"ppm", "suffix", "ngram", "recycling", "auto", "lm"}) {
      for (const char* tree : {"", "4"}) {
        GenerationRequest request = Request(temperature, type);
        request.speculation.tree = tree;
        request.speculation.draft_n_max = 6;
        if (std::string_view(type) == "lm") {
          request.speculation.draft_model = Path();
          request.speculation.tree = "";
        }
        const GenerationResult result = Generate(*engine_, request);
        EXPECT_EQ(result.tokens, expected) << type << " " << tree << " " << temperature;
      }
    }
    for (const kernels::KernelTable* table : kernels::Available()) {
      const auto other = Load(2, 7, std::string(table->name));
      EXPECT_EQ(Generate(*other, Request(temperature, "ppm")).tokens, expected) << table->name;
    }
  }
}

// A session, or another one's beginning, that has evaluated the prompt before.
TEST_F(PartialVerification, IsTheSameTextWhateverWasKnown) {
  const std::vector<int32_t> expected = Generate(*engine_, Request(0)).tokens;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Generate(*engine_, Request(0, "ppm")).tokens, expected);
  const auto session = engine_->NewSession();
  for (int i = 0; i < 2; ++i) {
    const auto result = engine_->Generate(**session, Request(0, "ppm"));
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->tokens, expected);
  }
  // Exact answers of the same session are not touched by it.
  GenerationRequest plain = Request(0, "ppm");
  plain.partial_verification = {};
  const auto fresh = Load(1, 512, "");
  EXPECT_EQ(engine_->Generate(**session, plain)->tokens, Generate(*fresh, plain).tokens);
}

// A prompt so short that everything is seen at first: exact until there is something to leave out.
TEST_F(PartialVerification, BeginsWholeAndExact) {
  GenerationRequest request = Request(0, "suffix", 20);
  GenerationRequest plain = request;
  plain.partial_verification = {};
  const std::vector<int32_t> expected = Generate(*engine_, plain).tokens;
  const GenerationResult result = Generate(*engine_, request);
  const size_t whole = 16 + 32 + 20 + 16 - 20 + 1;
  ASSERT_GT(result.tokens.size(), whole);
  EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + whole, result.tokens.begin()));
  EXPECT_GT(result.partial_verification.refreshes, 0);
  request.n_predict = 30;
  const GenerationResult early = Generate(*engine_, request);
  EXPECT_EQ(early.partial_verification.refreshes, 0);
  EXPECT_TRUE(early.speculative.lossless);
}

TEST_F(PartialVerification, IsTheSameTextAmongOthers) {
  const std::vector<int32_t> expected = Generate(*engine_, Request(0.7F)).tokens;
  GenerationRequest plain = Request(0.7F, "ppm");
  plain.partial_verification = {};
  const std::vector<int32_t> exact = Generate(*engine_, plain).tokens;
  const auto scheduler = engine_->NewScheduler({.parallel = 3});
  ASSERT_TRUE(scheduler.ok());
  int done = 0;
  for (int i = 0; i < 5; ++i) {
    const bool partial = i != 2;
    Submission submission;
    submission.request = partial ? Request(0.7F, i % 2 == 0 ? "none" : "ppm") : plain;
    submission.on_end = [&, partial](int, const Result<GenerationResult>& result) {
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(result->tokens, partial ? expected : exact);
      ++done;
    };
    ASSERT_TRUE((*scheduler)->Submit(std::move(submission)).ok());
  }
  for (bool more = true; more;) {
    const auto ran = (*scheduler)->RunRound();
    ASSERT_TRUE(ran.ok()) << ran.status().message();
    more = *ran;
  }
  EXPECT_EQ(done, 5);
}

TEST_F(PartialVerification, RefusesWhatCannotBe) {
  const auto message = [&](const PartialVerificationOptions& options, const std::string& type = "none") {
    GenerationRequest request = Request(0, type);
    request.partial_verification = options;
    const auto session = engine_->NewSession();
    return engine_->Generate(**session, request).status().message();
  };
  EXPECT_THAT(message({.enabled = true, .sink = 5}), HasSubstr("--partial-sink 5: must be a multiple of 16"));
  EXPECT_THAT(message({.enabled = true, .budget = 3}), HasSubstr("--partial-budget 3"));
  EXPECT_THAT(message({.enabled = true, .window = 0}), HasSubstr("--partial-window 0"));
  EXPECT_THAT(message({.enabled = true, .refresh = 0}), HasSubstr("--partial-refresh 0"));
  EXPECT_THAT(message({.enabled = true, .score = "best"}), HasSubstr("--partial-score best"));
  EXPECT_THAT(message({.enabled = true}, "magicdec"), HasSubstr("a cache of all its positions"));
  EXPECT_THAT(message({.enabled = true}, "partial"), HasSubstr("a cache of all its positions"));
}

}  // namespace
}  // namespace longspec
