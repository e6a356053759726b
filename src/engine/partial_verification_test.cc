// SPDX-License-Identifier: Apache-2.0
//
// Partial verification through the facade: an approximation, but one and the same text whoever drafts,
// however the prompt is cut, whatever was known before, alone or among others; against a loop of its own that
// starts from nothing at every refresh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decode/testing/samplings.h"
#include "draft_model/testing/longspec_files.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "kv/retrieval_cache.h"
#include "lab/specpv.h"
#include "lab/testing/with_lab.h"
#include "longspec/engine.h"
#include "sampling/sampler.h"
#include "sampling/testing/values_of.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

constexpr int kPrompt = 150, kTokens = 90;
constexpr RetrievalOptions kSet = {.sink = 16, .budget = 32, .window = 20, .refresh = 12};

std::vector<int32_t> LongPrompt(int n = kPrompt) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back(3 + i * i % 97 + i / 40);
  return tokens;
}

GenerationRequest Request(float temperature, const std::string& type = "none", int n_prompt = kPrompt) {
  GenerationRequest request;
  request.tokens = LongPrompt(n_prompt);
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

// A target of its own, and a text that is evaluated as a loop says.
struct NaiveModel {
  NaiveModel(const std::string& path, const GenerationRequest& request)
      : file(*GgufFile::Open(path)), config(*ReadModelSpec(*file, {})), tokens(request.tokens) {
    ModelLoadOptions load;
    load.max_rows = 512;
    target = std::move(*LoadModel(file, config, {kernels::Available().front(), &team}, load));
    SamplingOptions sampling = request.sampling;
    for (const int32_t end : {kTinyModelEos, kTinyModelEndOfText})
      sampling.logit_bias.emplace_back(end, -std::numeric_limits<float>::infinity());
    sampler.emplace(*Sampler::Create(sampling, target->vocab_size()));
  }

  KvLayout Layout() const { return config.kv_layout(CacheType::kF16, CacheType::kF16); }
  std::unique_ptr<KvCache> Whole() const { return MakeFullCache(Layout(), config.n_layer, 1024); }
  std::unique_ptr<RetrievalCache> Set() const {
    return MakeRetrievalCache(MakeHostPool(Layout(), config.n_layer), config.n_head, kSet);
  }

  // The token of this index, from these logits.
  int32_t Choose(const float* logits, size_t at) {
    const auto vocab = static_cast<size_t>(target->vocab_size());
    return sampler->Sample({logits, vocab}, {std::span(tokens).first(at), {}}, at, scratch);
  }
  // Evaluates tokens [0, n) of the text; the queries of the last.
  TargetOutput Evaluate(KvCache& cache, size_t n, const Taps& taps) {
    auto rows = cache.Begin(static_cast<int>(n));
    const ForwardSegment segment = {
        .tokens = std::span(tokens).first(n), .parents = {}, .kv = &*rows, .taps = &taps};
    auto output = target->Forward({&segment, 1});
    EXPECT_TRUE(output.ok());
    rows->CommitAll();
    return *output;
  }
  static const float* Row(const TargetOutput& output, size_t row) {
    return testing::ValuesOf(output.segments[0].logits[static_cast<int>(row)]).data();
  }
  // Runs the last token, and returns what comes after it.
  int32_t Step(KvCache& cache) {
    auto row = cache.Begin(1);
    const ForwardSegment segment = {.tokens = {&tokens.back(), 1}, .parents = {}, .kv = &*row};
    const auto output = target->Forward({&segment, 1});
    const int32_t next = Choose(Row(*output, 0), tokens.size());
    row->CommitAll();
    return next;
  }

  std::shared_ptr<const GgufFile> file;
  ModelSpec config;
  ThreadTeam team{1};
  std::unique_ptr<Target> target;
  std::optional<Sampler> sampler;
  Sampler::Scratch scratch;
  std::vector<int32_t> tokens;
};

// One token at a time; at every refresh the whole text is evaluated anew and a new set is chosen from
// nothing. Also counts the tokens that a whole cache would have chosen otherwise.
std::vector<int32_t> Naive(const std::string& path, const GenerationRequest& request, int64_t* differing,
                           int64_t* refreshes) {
  NaiveModel model(path, request);
  std::vector<int32_t>& tokens = model.tokens;
  auto set = model.Set();
  const int first = std::max<int>(kPrompt - 1, kSet.sink + kSet.budget + kSet.window + kKeyBlock);
  int boundary = -1;
  size_t compared = static_cast<size_t>(first) + 1;
  while (tokens.size() < request.tokens.size() + static_cast<size_t>(kTokens)) {
    const size_t held = tokens.size() - 1;
    if (static_cast<int>(held) < first) {
      const auto cache = model.Whole();
      const TargetOutput output = model.Evaluate(*cache, tokens.size(), {});
      tokens.push_back(model.Choose(model.Row(output, held), tokens.size()));
      continue;
    }
    if (boundary < 0 || static_cast<int>(held) - boundary == kSet.refresh) {
      boundary = static_cast<int>(held);
      const auto cache = model.Whole();
      const TargetOutput output = model.Evaluate(*cache, held, {.query_rows = 1});
      for (; compared <= held; ++compared) {
        *differing += model.Choose(model.Row(output, compared - 1), compared) != tokens[compared];
      }
      set = model.Set();
      set->SetQueries(output.segments[0].queries);
      EXPECT_TRUE(set->Choose(*cache, (boundary - kSet.window) / kKeyBlock * kKeyBlock).ok());
      ++*refreshes;
    }
    tokens.push_back(model.Step(*set));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(request.tokens.size()), tokens.end()};
}

// The same with SpecPV's modes, where nothing is drafted: a refresh and twenty partial steps.
std::vector<int32_t> NaivePaper(const std::string& path, const GenerationRequest& request, int64_t* differing,
                                int64_t* refreshes) {
  NaiveModel model(path, request);
  std::vector<int32_t>& tokens = model.tokens;
  std::unique_ptr<RetrievalCache> set;
  int refreshed_at = -1;
  size_t compared = tokens.size();
  while (tokens.size() < request.tokens.size() + static_cast<size_t>(kTokens)) {
    const int n = static_cast<int>(tokens.size()) - 1;
    const PartialMode mode =
        n < kPrompt ? PartialMode::kFull : PaperMode(n, kSet.sink + kSet.budget + kSet.window, refreshed_at);
    if (mode == PartialMode::kPartial) {
      tokens.push_back(model.Step(*set));
      continue;
    }
    const auto cache = model.Whole();
    const TargetOutput output = model.Evaluate(*cache, tokens.size(), {.query_rows = 1});
    if (mode == PartialMode::kRefresh) {
      for (; refreshed_at >= 0 && compared <= static_cast<size_t>(n); ++compared) {
        *differing += model.Choose(model.Row(output, compared - 1), compared) != tokens[compared];
      }
      set = model.Set();
      set->SetQueries(output.segments[0].queries);
      EXPECT_TRUE(set->Choose(*cache, (n - kSet.window) / kKeyBlock * kKeyBlock).ok());
      refreshed_at = n;
      ++*refreshes;
    }
    tokens.push_back(model.Choose(model.Row(output, tokens.size() - 1), tokens.size()));
    compared = tokens.size();
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
    EXPECT_EQ(result.speculative.notice, "");
    EXPECT_FALSE(result.speculative.lossless);
    GenerationRequest plain = request;
    plain.partial_verification = {};
    EXPECT_NE(Generate(*engine_, plain).tokens, expected);
  }
}

TEST_F(PartialVerification, WithThePapersModesIsWhatTheirNaiveLoopWrites) {
  for (const float temperature : {0.0F, 0.7F}) {
    GenerationRequest request = Request(temperature);
    request.partial_verification.refresh = 0;
    int64_t differing = 0, refreshes = 0;
    const std::vector<int32_t> expected = NaivePaper(Path(), request, &differing, &refreshes);
    EXPECT_EQ(refreshes, 5);  // 89 steps behind the first token, 21 each
    const GenerationResult result = Generate(*engine_, request);
    EXPECT_EQ(result.tokens, expected);
    // Of the last refresh the set is chosen when it is needed.
    EXPECT_EQ(result.partial_verification.refreshes, refreshes);
    EXPECT_EQ(result.partial_verification.differing, differing);
    EXPECT_GT(differing, 0);  // else nothing was approximate
    EXPECT_EQ(result.partial_verification.checked, 80);
    EXPECT_THAT(result.speculative.notice, HasSubstr("the text depends on the drafts"));
    EXPECT_FALSE(result.speculative.lossless);
  }
}

// A set of exactly the text's size is the text: the same bits as of the whole cache. One block less is not.
TEST_F(PartialVerification, ASetOfTheTextsSizeSaysTheSame) {
  for (const int more : {0, kKeyBlock}) {
    const int held = kSet.sink + kSet.budget + kSet.window + more;
    GenerationRequest request = Request(0);
    request.tokens = LongPrompt(held + 1);
    NaiveModel model(Path(), request);
    const auto whole = model.Whole();
    const TargetOutput output = model.Evaluate(*whole, static_cast<size_t>(held), {.query_rows = 1});
    const auto set = model.Set();
    set->SetQueries(output.segments[0].queries);
    ASSERT_TRUE(set->Choose(*whole, (held - kSet.window) / kKeyBlock * kKeyBlock).ok());
    EXPECT_EQ(set->blocks(0, 0).size(), static_cast<size_t>(kSet.budget / kKeyBlock));
    const auto logits = [&](KvCache& cache) {
      auto row = cache.Begin(1);
      const ForwardSegment segment = {.tokens = {&model.tokens.back(), 1}, .parents = {}, .kv = &*row};
      const auto said = model.target->Forward({&segment, 1});
      const auto values = testing::ValuesOf(said->segments[0].logits[0]);
      return std::vector<float>(values.begin(), values.end());
    };
    EXPECT_EQ(logits(*set) == logits(*whole), more == 0);
  }
}

// What the set takes is in the plan of a load that says so.
TEST_F(PartialVerification, TheExactOneTakesNoMoreMemoryThanWasPlanned) {
  GenerationRequest request = Request(0, "partial", 700);
  request.partial_verification = {};
  request.speculation.partial.budget = 256;
  request.speculation.partial.inner = "none";
  ModelOptions options;
  options.path = Path();
  options.threads = 1;
  options.ctx_size = 1024;
  EXPECT_EQ(engine_->info().memory.draft, 0U);
  options.speculation = request.speculation;
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const uint64_t planned = (*engine)->info().memory.draft;
  const uint64_t taken = Generate(**engine, request).speculative.draft_bytes;
  EXPECT_GT(taken, 0U);
  EXPECT_LE(taken, planned);
  EXPECT_LT(planned, 3 * taken);
}

// The same of the approximate one, which every position's block summaries are part of.
TEST_F(PartialVerification, TakesNoMoreMemoryThanWasPlanned) {
  EXPECT_EQ(engine_->info().memory.working_set, 0U);
  for (const int refresh : {40, 0}) {
    GenerationRequest request = Request(0, "ppm", 700);
    request.partial_verification.budget = 256;
    request.partial_verification.refresh = refresh;
    ModelOptions options;
    options.path = Path();
    options.threads = 1;
    options.ctx_size = 1024;
    options.partial_verification = request.partial_verification;
    const auto engine = Engine::Load(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    const MemoryPlan plan = (*engine)->info().memory;
    const uint64_t taken = Generate(**engine, request).partial_verification.bytes;
    EXPECT_GT(taken, 0U);
    EXPECT_LE(taken, plan.working_set) << refresh;
    EXPECT_LT(plan.working_set, 3 * taken) << refresh;
    EXPECT_EQ(plan.total(), plan.weights + plan.kv_at_context + plan.scratch + plan.working_set);
    options.partial_verification.sink = 5;
    EXPECT_THAT(Engine::Load(options).status().message(), HasSubstr("--partial-sink 5"));
  }
}

// How scores of several queries are reduced makes no difference where nothing is drafted, and may where
// something is.
TEST_F(PartialVerification, ReductionsAreOfDraftsQueries) {
  int n_other = 0;
  for (const char* type : {"none", "ppm", "lm"}) {
    GenerationRequest request = Request(0, type);
    request.partial_verification.refresh = 0;
    if (std::string_view(type) == "lm") request.speculation.draft_model = Path();
    const std::vector<int32_t> mean = Generate(*engine_, request).tokens;
    for (const char* reduce : {"max", "last"}) {
      request.partial_verification.reduce = reduce;
      const bool same = Generate(*engine_, request).tokens == mean;
      if (std::string_view(type) == "none") {
        EXPECT_TRUE(same) << reduce;
      }
      n_other += !same;
    }
  }
  EXPECT_GT(n_other, 0);
}

// A refresh reads tokens that only the set has seen, and a tree beside them, in one pass.
TEST_F(PartialVerification, TreesAreNoLargerThanThePassOfARefreshAllows) {
  const auto engine = Load(1, 32, "");
  GenerationRequest request = Request(0, "lm");
  request.partial_verification.refresh = 0;
  request.speculation.draft_model = Path();
  request.speculation.policy = "fixed";
  request.speculation.draft_n_max = 255;
  request.speculation.tree = "255";
  const GenerationResult result = Generate(*engine, request);
  EXPECT_EQ(result.tokens.size(), static_cast<size_t>(kTokens));
  EXPECT_GT(result.partial_verification.refreshes, 0);
  EXPECT_NE(result.timings.draft_n % 255, 0);  // some trees were smaller
}

// Which is why they are not the default.
TEST_F(PartialVerification, WithThePapersModesTheTextDependsOnTheDrafts) {
  int n_other = 0;
  for (const float temperature : {0.0F, 0.7F}) {
    GenerationRequest request = Request(temperature);
    request.partial_verification.refresh = 0;
    const std::vector<int32_t> without = Generate(*engine_, request).tokens;
    for (const char* type : {"ppm", "lm"}) {
      request.speculation.type = type;
      request.speculation.draft_model = std::string_view(type) == "lm" ? Path() : "";
      const GenerationResult result = Generate(*engine_, request);
      n_other += result.tokens != without;
      EXPECT_GT(result.partial_verification.refreshes, 0);
      EXPECT_EQ(Generate(*engine_, request).tokens, result.tokens);  // the same drafts, the same text
    }
  }
  EXPECT_GT(n_other, 0);
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
        if (std::string_view(type) == "lm") {
          EXPECT_GT(result.timings.draft_n, 0);
          EXPECT_EQ(result.speculative.notice, "");
        }
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
    submission.request = std::make_shared<const GenerationRequest>(
        partial ? Request(0.7F, i % 2 == 0 ? "none" : "ppm") : plain);
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
  EXPECT_THAT(message({.enabled = true, .refresh = -1}), HasSubstr("--partial-refresh -1: must be 1 or"));
  EXPECT_THAT(message({.enabled = true, .score = "best"}), HasSubstr("--partial-score best"));
  EXPECT_THAT(message({.enabled = true, .reduce = "sum"}),
              HasSubstr("--partial-reduce sum: must be mean, max"));
  EXPECT_THAT(message({.enabled = true}, "magicdec"), HasSubstr("a cache of all its positions"));
  EXPECT_THAT(message({.enabled = true}, "partial"), HasSubstr("a cache of all its positions"));
}

}  // namespace
}  // namespace longspec
