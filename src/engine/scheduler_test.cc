// SPDX-License-Identifier: Apache-2.0
//
// Many answers at once are what each is alone: tokens and bits of logits, whoever else is there, whatever is
// shared, dropped and computed again.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "base/hash.h"
#include "draft_model/draft_models.h"
#include "draft_model/testing/longspec_files.h"
#include "engine/answer.h"
#include "engine/gguf_tokenizer.h"
#include "formats/tiny_model.h"
#include "grammar/token_rules.h"
#include "kernels/dispatch.h"
#include "model/testing/far_target.h"
#include "sampling/testing/values_of.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

constexpr int kContext = 2048;

std::vector<int32_t> Text(int n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens;
  // Words that come again, so that drafters that look things up find something.
  std::vector<std::vector<int32_t>> words(20);
  for (auto& word : words) {
    for (unsigned i = 0; i < 2 + rng() % 5; ++i) word.push_back(static_cast<int32_t>(40 + rng() % 200));
  }
  while (static_cast<int>(tokens.size()) < n) {
    const auto& word = words[rng() % words.size()];
    tokens.insert(tokens.end(), word.begin(), word.end());
  }
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

// What the model says after a text, by the text: equal in every run, or something is wrong.
class LogitsSeen {
 public:
  void Add(const Turn& turn) {
    const std::vector<int32_t>& tokens = *turn.sequence->tokens;
    const size_t before = tokens.size() - turn.tokens.size();
    for (size_t i = 0; i < turn.tokens.size(); ++i) {
      const auto prefix = std::span(tokens).first(before + i);
      const Hash128 key = HashOf(std::as_bytes(prefix));
      const Hash128 bits = HashOf(std::as_bytes(testing::ValuesOf(turn.logits[turn.path[i]])));
      const auto [at, is_new] = seen_.emplace(std::pair(key.low, key.high), bits);
      if (is_new) continue;
      ++n_compared;
      n_different += at->second == bits ? 0 : 1;
    }
  }
  int n_compared = 0, n_different = 0;

 private:
  std::map<std::pair<uint64_t, uint64_t>, Hash128> seen_;
};

// A tiny model, and what generations need of it.
class Model {
 public:
  Model(const kernels::KernelTable* table, int threads) : team_(threads) {
    bytes_ = *TinyModelBytes({});
    const auto file = *GgufFile::Parse(bytes_, "tiny.gguf");
    spec = *ReadModelSpec(*file, {});
    ModelLoadOptions load;
    load.max_rows = 512;
    target = *LoadModel(file, spec, {table, &team_}, load);
    tokenizer_ = *Tokenizer::Create(*TokenizerSpecFromGguf(*file));
    parts.target = target.get();
    parts.tokenizer = tokenizer_.get();
    parts.prefill_chunk = 256;
    parts.n_ctx_train = spec.n_ctx_train;
    parts.draft_models = &models_;
    parts.known_costs = [this] { return KnownCosts{&memory, "guessed"}; };
  }
  std::shared_ptr<ChunkPool> NewPool() const {
    return target->NewPool(spec.kv_layout(CacheType::kF16, CacheType::kF16), spec.n_layer, {});
  }
  // What the target keeps and gives lies where the host cannot read it.
  void MoveElsewhere() {
    near_ = std::move(target);
    target = std::make_unique<testing::FarTarget>(near_.get());
    parts.target = target.get();
  }

  ModelSpec spec;
  std::unique_ptr<Target> target;
  GenerationParts parts;
  AdaptiveMemory memory;

 private:
  std::vector<std::byte> bytes_;
  ThreadTeam team_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  DraftModels models_;
  std::unique_ptr<Target> near_;  // of a target elsewhere
};

std::shared_ptr<const GenerationRequest> Shared(GenerationRequest request) {
  return std::make_shared<const GenerationRequest>(std::move(request));
}

// An answer to the request's tokens, by itself.
Result<std::unique_ptr<AnswerInProgress>> StartAnswer(const GenerationParts& parts, SessionState& session,
                                                      const GenerationRequest& request, uint64_t index = 0) {
  auto asked = AskedRequest::Of(parts, Shared(request));
  EXPECT_TRUE(asked.ok()) << asked.status().message();
  return AnswerInProgress::Start(parts, session, request.tokens, *asked, OneAnswer(request), index);
}

struct Asked {
  GenerationRequest request;
  int n = 1;
};

GenerationRequest Request(std::vector<int32_t> prompt, const std::string& type, float temperature,
                          int n_predict) {
  GenerationRequest request;
  request.tokens = std::move(prompt);
  request.n_predict = n_predict;
  request.ignore_eos = true;
  request.sampling.temperature = temperature;
  request.sampling.seed = request.tokens.size() + 7;
  request.speculation.type = type;
  return request;
}

// Short and long, greedy and sampled, with and without drafts, some on one document, one with three answers.
std::vector<Asked> Mixed() {
  const std::vector<int32_t> document = Text(700, 1);
  const auto about = [&](int n, unsigned seed) {
    std::vector<int32_t> prompt = document;
    const std::vector<int32_t> question = Text(n, seed);
    prompt.insert(prompt.end(), question.begin(), question.end());
    return prompt;
  };
  std::vector<Asked> asked;
  const char* types[] = {"none", "ppm", "suffix", "auto", "ngram", "recycling"};
  for (unsigned i = 0; i < 6; ++i)
    asked.push_back({Request(Text(5 + 9 * static_cast<int>(i), i), types[i], 0.8F, 24)});
  for (unsigned i = 0; i < 4; ++i)
    asked.push_back({Request(about(20, 50 + i), types[i], i % 2 == 0 ? 0.0F : 1.0F, 30)});
  asked.push_back({Request(about(300, 60), "auto", 0.7F, 20), 3});
  asked.push_back({Request(Text(1500, 70), "ppm", 0.0F, 40)});
  asked.push_back({Request(Text(1200, 71), "none", 1.3F, 25)});
  asked.push_back({Request(Text(900, 72), "suffix", 0.0F, 300)});
  asked.push_back({Request({65}, "auto", 0.9F, 50)});
  asked.push_back({Request(Text(300, 73), "ppm", 0.7F, 0)});
  // A fixed number of drafts, as trees.
  asked[1].request.speculation.policy = asked[4].request.speculation.policy = "fixed";
  asked[4].request.speculation.tree = "3";
  return asked;
}

std::vector<int32_t> Alone(Model& model, const GenerationRequest& request, int index) {
  SessionState session;
  session.cache = MakeFullCache(model.NewPool(), kContext);
  auto answer = StartAnswer(model.parts, session, request, static_cast<uint64_t>(index));
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  BatchDecoder rounds(model.target.get());
  while (!(*answer)->ended()) {
    Turn turn = (*answer)->NextTurn(100);
    if (turn.max_rows < 1) break;
    EXPECT_TRUE(rounds.Run({&turn, 1}).ok());
    EXPECT_TRUE((*answer)->Take(turn, 1).ok());
  }
  return (*answer)->Finish().tokens;
}

// Answers by request and index; of a request that was cancelled, those that came.
struct Outcome {
  std::map<std::pair<size_t, int>, Result<GenerationResult>> answers;
  SchedulerStats stats;
  int most_running = 0;  // at once
};

struct RunOptions {
  size_t chunks = 64;
  bool share = true;
  unsigned seed = 1;
  std::vector<size_t> cancel = {};
};

Outcome RunAll(Model& model, const std::vector<Asked>& asked, const RunOptions& options) {
  Outcome outcome;
  const auto pool = model.NewPool();
  PromptCache prompts(pool, {.context = options.chunks});
  SchedulerParts parts{.generation = model.parts, .pool = pool, .ctx_size = kContext};
  parts.generation.prompts = &prompts;
  parts.tokenize = [](const GenerationRequest& request) -> Result<std::vector<int32_t>> {
    return request.tokens;
  };
  auto scheduler = MakeScheduler(
      parts, {.cache_bytes = options.chunks * pool->chunk_bytes(), .share_prefixes = options.share}, 0);
  EXPECT_TRUE(scheduler.ok()) << scheduler.status().message();
  std::mt19937 rng(options.seed);
  std::vector<int64_t> ids;
  bool more = true;
  for (size_t next = 0; more || next < asked.size();) {
    for (unsigned n = rng() % 4; n > 0 && next < asked.size(); --n, ++next) {
      Submission submission{.request = Shared(asked[next].request), .n = asked[next].n, .on_end = {}};
      submission.on_end = [&outcome, next](int index, Result<GenerationResult> result) {
        EXPECT_TRUE(outcome.answers.emplace(std::pair(next, index), std::move(result)).second);
      };
      const auto id = (*scheduler)->Submit(std::move(submission));
      EXPECT_TRUE(id.ok()) << id.status().message();
      ids.push_back(*id);
      for (const size_t which : options.cancel) {
        if (which + 3 == next) (*scheduler)->Cancel(ids[which]);
      }
    }
    for (unsigned n = rng() % 5; n > 0; --n) {
      const auto ran = (*scheduler)->RunRound();
      EXPECT_TRUE(ran.ok()) << ran.status().message();
      more = *ran;
      EXPECT_LE(pool->held(), options.chunks);
      outcome.most_running = std::max(outcome.most_running, (*scheduler)->stats().running);
    }
  }
  outcome.stats = (*scheduler)->stats();
  return outcome;
}

void ExpectAsAlone(Model& model, const std::vector<Asked>& asked, const Outcome& outcome,
                   std::map<std::pair<size_t, int>, std::vector<int32_t>>& alone, size_t n_cancelled = 0) {
  size_t n = 0, n_not_whole = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    for (int index = 0; index < asked[i].n; ++index, ++n) {
      const auto key = std::pair(i, index);
      if (!alone.contains(key)) alone[key] = Alone(model, asked[i].request, index);
      const auto at = outcome.answers.find(key);
      ASSERT_NE(at, outcome.answers.end()) << i;
      const bool cancelled = !at->second.ok() || at->second->finish_reason == FinishReason::kCancelled;
      n_not_whole += cancelled ? 1 : 0;
      if (!at->second.ok()) {
        EXPECT_EQ(at->second.status().code(), StatusCode::kCancelled) << at->second.status().message();
        continue;
      }
      std::vector<int32_t> want = alone[key];
      if (cancelled) want.resize(at->second->tokens.size());
      EXPECT_EQ(at->second->tokens, want) << "request " << i << ", answer " << index;
    }
  }
  EXPECT_EQ(outcome.answers.size(), n);
  EXPECT_LE(n_not_whole, n_cancelled);
}

enum class HowMuch : uint8_t { kSome, kAll, kInLittleMemoryToo };

void ExpectIdentity(const kernels::KernelTable* table, int threads, HowMuch how_much) {
  std::vector<Asked> asked = Mixed();
  if (how_much == HowMuch::kSome) asked.resize(asked.size() / 2);  // two of one document are among them
  Model model(table, threads);
  LogitsSeen seen;
  model.parts.on_turn = [&](const Turn& turn) { seen.Add(turn); };
  std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
  for (const bool share : {true, false}) {
    const Outcome roomy = RunAll(model, asked, {.share = share, .cancel = {2, 12}});
    ExpectAsAlone(model, asked, roomy, alone, 2);
    if (share) {
      EXPECT_GT(roomy.stats.prompt_tokens_known, how_much == HowMuch::kSome ? 500 : 3000);
    } else {
      EXPECT_EQ(roomy.stats.prompt_tokens_known, 0);
    }
    if (how_much != HowMuch::kInLittleMemoryToo) break;
    // So little memory that few run at once.
    const Outcome tight = RunAll(model, asked, {.chunks = 9, .share = share, .seed = 2});
    ExpectAsAlone(model, asked, tight, alone);
  }
  EXPECT_GT(seen.n_compared, how_much == HowMuch::kSome ? 50 : 500);
  EXPECT_EQ(seen.n_different, 0) << table->name << ", " << threads << " threads";
}

TEST(SchedulerTest, EachAnswerIsWhatItIsAlone) {
  const kernels::KernelTable* best = kernels::Available().front();
  ExpectIdentity(best, 2, HowMuch::kInLittleMemoryToo);
  if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) return;
  ExpectIdentity(best, 1, HowMuch::kInLittleMemoryToo);
  for (const kernels::KernelTable* table : kernels::Available()) {
    const bool slow = table == kernels::Available().back();  // the reference
    ExpectIdentity(table, 2, slow ? HowMuch::kSome : HowMuch::kAll);
  }
}

// Sequences that grow until not all of them have room: the latest give way, and compute their keys again.
TEST(SchedulerTest, WhoGivesWaySaysTheSame) {
  Model model(kernels::Available().front(), 2);
  LogitsSeen seen;
  model.parts.on_turn = [&](const Turn& turn) { seen.Add(turn); };
  std::vector<Asked> asked;
  const char* types[] = {"none", "ppm", "auto", "suffix"};
  for (unsigned i = 0; i < 4; ++i)
    asked.push_back({Request(Text(240, 30 + i), types[i], i < 2 ? 0.0F : 0.9F, 700)});
  std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
  for (const bool share : {true, false}) {
    const Outcome outcome = RunAll(model, asked, {.chunks = 8, .share = share});
    ExpectAsAlone(model, asked, outcome, alone);
    EXPECT_GT(outcome.stats.preemptions, 0);
  }
  EXPECT_GT(seen.n_compared, 2000);
  EXPECT_EQ(seen.n_different, 0);
}

// What a partial verifier chose stays while its sequence gives way, and the whole cache is computed again.
TEST(SchedulerTest, WhoGivesWayWithPartialVerificationSaysTheSame) {
  Model model(kernels::Available().front(), 2);
  std::vector<Asked> asked;
  for (unsigned i = 0; i < 4; ++i) {
    asked.push_back({Request(Text(240, 40 + i), i % 2 == 0 ? "none" : "ppm", i < 2 ? 0.0F : 0.9F, 500)});
    asked.back().request.partial_verification = {
        .enabled = true, .sink = 16, .budget = 32, .window = 20, .refresh = 24};
  }
  std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
  for (const bool share : {true, false}) {
    // How often one gives way depends on what rounds take: mostly, but not in each run.
    for (const size_t chunks : {5, 7})
      ExpectAsAlone(model, asked, RunAll(model, asked, {.chunks = chunks, .share = share}), alone);
  }
}

// The check can fail: another model says other things after the same text.
TEST(SchedulerTest, LogitsOfAnotherTargetAreNoticed) {
  Model model(kernels::Available().front(), 1);
  LogitsSeen seen;
  model.parts.on_turn = [&](const Turn& turn) { seen.Add(turn); };
  const GenerationRequest request = Request(Text(30, 4), "none", 0.0F, 8);
  (void)Alone(model, request, 0);
  ASSERT_EQ(seen.n_compared, 0);
  (void)Alone(model, request, 0);
  EXPECT_EQ(seen.n_different, 0);
  EXPECT_EQ(seen.n_compared, 8);
  // Of the same text, but with one key of the past changed.
  model.parts.on_turn = [&](const Turn& turn) {
    if (turn.tokens.empty()) testing::Poke(turn.sequence->cache->Span(0), 3);
    seen.Add(turn);
  };
  SessionState session;
  session.cache =
      MakeFullCache(model.spec.kv_layout(CacheType::kF32, CacheType::kF32), model.spec.n_layer, kContext);
  auto answer = *StartAnswer(model.parts, session, request);
  BatchDecoder rounds(model.target.get());
  for (const int rows : {20, 10}) {
    Turn turn = answer->NextTurn(rows);
    ASSERT_TRUE(rounds.Run({&turn, 1}).ok());
    ASSERT_TRUE(answer->Take(turn, 1).ok());
  }
  EXPECT_GT(seen.n_different, 0);
}

TEST(SchedulerTest, LongOnesThatDoNotFitTogetherAllFinish) {
  Model model(kernels::Available().front(), 2);
  std::vector<Asked> asked;
  for (unsigned i = 0; i < 8; ++i) asked.push_back({Request(Text(1400, 20 + i), "ppm", 0.0F, 60)});
  std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
  const Outcome outcome = RunAll(model, asked, {.chunks = 14});
  ExpectAsAlone(model, asked, outcome, alone);
}

// Where all memory is one sequence's, nothing that is kept for others may stand in its way.
TEST(SchedulerTest, AsMuchMemoryAsOneNeeds) {
  Model model(kernels::Available().front(), 1);
  std::vector<Asked> asked;
  for (unsigned i = 0; i < 5; ++i)
    asked.push_back({Request(Text(180 + 10 * static_cast<int>(i / 2), 9), "ppm", 0.0F, 40)});
  for (const size_t chunks : {1, 2, 3}) {
    std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
    const Outcome outcome = RunAll(model, asked, {.chunks = chunks});
    ExpectAsAlone(model, asked, outcome, alone);
  }
}

TEST(SchedulerTest, OneDocumentIsEvaluatedOnce) {
  Model model(kernels::Available().front(), 1);
  const std::vector<int32_t> document = Text(1000, 5);
  std::vector<Asked> asked;
  for (int32_t i = 0; i < 8; ++i) {
    std::vector<int32_t> prompt = document;
    prompt.insert(prompt.end(), {100 + i, 120, 130 + i});
    asked.push_back({Request(prompt, "none", 0.0F, 12)});
  }
  std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
  const Outcome outcome = RunAll(model, asked, {});
  ExpectAsAlone(model, asked, outcome, alone);
  EXPECT_EQ(outcome.stats.prompt_tokens, 8 * 1003);
  EXPECT_EQ(outcome.stats.prompt_tokens_known, 7 * 1000);
}

// What one that waits will share is there already: it needs memory for the rest alone.
TEST(SchedulerTest, OfOneDocumentSeveralRunInLittleMemory) {
  Model model(kernels::Available().front(), 1);
  const std::vector<int32_t> document = Text(1024, 5);  // four chunks
  std::vector<Asked> several, one;
  for (int32_t i = 0; i < 3; ++i) {
    std::vector<int32_t> prompt = document;
    prompt.insert(prompt.end(), {100 + i, 120, 130 + i});
    several.push_back({Request(prompt, "none", 0.0F, 40)});
  }
  one.push_back({several[0].request, 3});
  for (const auto& asked : {several, one}) {
    std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
    const Outcome outcome = RunAll(model, asked, {.chunks = 8});
    ExpectAsAlone(model, asked, outcome, alone);
    EXPECT_EQ(outcome.most_running, 3);
  }
}

// What is learned of a drafter lives with the engine: answers of one scheduler share it, those of the next
// and those alone begin with it, and no text changes through it.
TEST(SchedulerTest, WhatIsLearnedOutlivesAnswersAndSchedulers) {
  Model model(kernels::Available().front(), 1);
  int most_in_flight = 0;
  const auto learned = [&]() -> const DrafterMemory& { return model.memory.drafters.at("ngram"); };
  std::vector<Asked> asked;
  for (unsigned i = 0; i < 5; ++i) {
    std::vector<int32_t> twice = Text(30, 80 + i % 2);  // so that the first look finds something
    twice.insert(twice.end(), twice.begin(), twice.begin() + 30);
    asked.push_back({Request(twice, "ngram", 0.0F, 40)});
    asked.back().request.speculation.policy = "adaptive";
    asked.back().request.on_text = [&](std::string_view) {
      most_in_flight = std::max(most_in_flight, learned().in_flight);
      return true;
    };
  }
  const NodeKind kind = {.depth = 1, .score = 0.5};
  std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
  for (int scheduler = 0; scheduler < 2; ++scheduler) {
    ExpectAsAlone(model, asked, RunAll(model, asked, {.share = false}), alone);
    EXPECT_EQ(model.memory.drafters.size(), 1U);
    EXPECT_TRUE(learned().draft_time.known());
    EXPECT_EQ(learned().in_flight, 0);
  }
  EXPECT_GT(most_in_flight, 1);
  // One that begins while none is in flight begins with all of it.
  SessionState session;
  session.cache = MakeFullCache(model.NewPool(), kContext);
  AcceptanceTable faded = learned().acceptance;
  faded.BeginText();
  const auto answer = StartAnswer(model.parts, session, asked[0].request);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(learned().in_flight, 1);
  EXPECT_EQ(learned().acceptance.Estimate(kind), faded.Estimate(kind));
  EXPECT_NE(faded.Estimate(kind), AcceptanceTable().Estimate(kind));
}

TEST(SchedulerTest, WhatCanNeverFitIsRefusedAtOnceWithTheNumbers) {
  Model model(kernels::Available().front(), 1);
  SchedulerParts parts{.generation = model.parts, .pool = model.NewPool(), .ctx_size = kContext};
  parts.tokenize = [](const GenerationRequest& request) -> Result<std::vector<int32_t>> {
    return request.tokens;
  };
  const auto scheduler = MakeScheduler(parts, {.cache_bytes = 4 * parts.pool->chunk_bytes()}, 0);
  ASSERT_TRUE(scheduler.ok());
  const auto submit = [&](std::vector<int32_t> prompt, int n_predict, int n = 1) {
    return (*scheduler)
        ->Submit(
            {.request = Shared(Request(std::move(prompt), "none", 0.0F, n_predict)), .n = n, .on_end = {}})
        .status();
  };
  const Status large = submit(Text(1500, 1), 10);
  EXPECT_EQ(large.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(large.message(), HasSubstr("1500"));
  EXPECT_EQ(submit({}, 5).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(submit({5}, 5, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(submit(Text(900, 1), 10).ok());
  while (*(*scheduler)->RunRound()) {
  }
  EXPECT_EQ((*scheduler)->stats().tokens, 10);
}

// One request after the other, each to its end, in a memory of so many chunks.
class OneAfterTheOther {
 public:
  OneAfterTheOther(Model& model, size_t chunks) : chunks_(chunks), pool_(model.NewPool()) {
    SchedulerParts parts{.generation = model.parts, .pool = pool_, .ctx_size = kContext};
    parts.generation.prompts = &prompts_;
    parts.tokenize = [](const GenerationRequest& request) -> Result<std::vector<int32_t>> {
      return request.tokens;
    };
    scheduler_ = *MakeScheduler(parts, {.cache_bytes = chunks * pool_->chunk_bytes()}, 0);
  }

  // How many of its tokens each of the n answers found.
  std::vector<int> Known(const GenerationRequest& request, int n = 1) {
    std::vector<int> known(static_cast<size_t>(n), -1);
    const auto id = scheduler_->Submit({.request = Shared(request),
                                        .n = n,
                                        .on_end = [&](int index, const Result<GenerationResult>& result) {
                                          if (result.ok())
                                            known[static_cast<size_t>(index)] =
                                                static_cast<int>(result->timings.cache_n);
                                        }});
    EXPECT_TRUE(id.ok()) << id.status().message();
    while (*scheduler_->RunRound()) EXPECT_LE(pool_->held(), chunks_);
    return known;
  }
  int Known(std::vector<int32_t> prompt, int n_predict = 2) {
    return Known(Request(std::move(prompt), "none", 0.0F, n_predict)).front();
  }

 private:
  const size_t chunks_;
  std::shared_ptr<ChunkPool> pool_;
  PromptCache prompts_{pool_, {.context = chunks_}};
  std::unique_ptr<Scheduler> scheduler_;
};

TEST(SchedulerPrompts, WhatWasJustUsedIsThereWhereMemoryIsFull) {
  Model model(kernels::Available().front(), 1);
  OneAfterTheOther scheduler(model, 2);
  for (int32_t which = 0; which < 3; ++which) {
    std::vector<int32_t> prompt = Text(76, 90);
    for (size_t i = 2; i < prompt.size(); ++i) prompt[i] = 40 + (prompt[i] + which) % 200;
    EXPECT_EQ(scheduler.Known(prompt), which == 0 ? 0 : 2);
    EXPECT_EQ(scheduler.Known(prompt), 75);
    EXPECT_EQ(scheduler.Known(prompt), 75);
  }
}

TEST(SchedulerPrompts, AShortOneLeavesTheOneBefore) {
  Model model(kernels::Available().front(), 1);
  OneAfterTheOther scheduler(model, 2);
  EXPECT_EQ(scheduler.Known(Text(64, 91)), 0);
  EXPECT_EQ(scheduler.Known({41, 42, 43}), 0);
  EXPECT_EQ(scheduler.Known(Text(64, 91)), 63);
  EXPECT_EQ(scheduler.Known({41, 42, 43}), 2);
  EXPECT_EQ(scheduler.Known(Text(64, 91)), 63);
}

// Answers of one prompt share it to the token, whatever memory is full of.
TEST(SchedulerPrompts, SeveralAnswersShareAPromptWhereMemoryIsFull) {
  Model model(kernels::Available().front(), 1);
  OneAfterTheOther scheduler(model, 5);
  for (unsigned i = 0; i < 5; ++i) EXPECT_EQ(scheduler.Known(Text(100, 92 + i)), 0);
  EXPECT_EQ(scheduler.Known(Request(Text(150, 99), "none", 0.8F, 20), 4),
            (std::vector<int>{0, 149, 149, 149}));
}

// A prompt is found whole where all that was used since fits beside it, whatever came before.
TEST(SchedulerPrompts, WhatComesAgainFindsAllThatFits) {
  Model model(kernels::Available().front(), 1);
  constexpr int kChunks = 7, kWritten = 3;
  OneAfterTheOther scheduler(model, kChunks);
  const int lengths[] = {20, 64, 75, 200, 300, 420, 500, 700, 1100};
  const auto chunks_of = [&](size_t which) { return (lengths[which] + kWritten + kKvChunk - 1) / kKvChunk; };
  std::vector<size_t> used;  // last is latest
  std::mt19937 rng(7);
  int n_whole = 0, n_lost = 0;
  for (int round = 0; round < 120; ++round) {
    const size_t which = rng() % 4 == 0 ? rng() % std::size(lengths) : rng() % 5;
    int room = kChunks - chunks_of(which);
    auto before = std::find(used.rbegin(), used.rend(), which);
    for (auto since = used.rbegin(); since != before; ++since) room -= chunks_of(*since);
    const int known = scheduler.Known(Text(lengths[which], 200 + static_cast<unsigned>(which)), kWritten);
    if (before == used.rend()) {
      EXPECT_LT(known, 20);
    } else if (room >= 0) {
      EXPECT_EQ(known, lengths[which] - 1) << "round " << round;
      ++n_whole;
    } else {
      n_lost += known < lengths[which] - 1 ? 1 : 0;
    }
    std::erase(used, which);
    used.push_back(which);
  }
  EXPECT_GT(n_whole, 30);
  EXPECT_GT(n_lost, 10);
}

// Two conversations in turn, one prompt of another between them, in memory for all of them.
TEST(SchedulerPrompts, ConversationsInTurnFindAllThatWasSaid) {
  Model model(kernels::Available().front(), 1);
  OneAfterTheOther scheduler(model, 6);
  std::vector<int32_t> said[2];
  EXPECT_EQ(scheduler.Known(Text(600, 101)), 0);
  for (unsigned turn = 0; turn < 6; ++turn) {
    for (unsigned who = 0; who < 2; ++who) {
      const auto before = static_cast<int>(said[who].size());
      const std::vector<int32_t> more = Text(90, 110 + 10 * turn + who);
      said[who].insert(said[who].end(), more.begin(), more.end());
      EXPECT_EQ(scheduler.Known(said[who], 0), std::max(before - 1, 0)) << turn;
    }
  }
}

// Requests for no token are evaluated while nobody waits for one, and what is evaluated of them stays known.
TEST(SchedulerTest, WarmUpsGiveWay) {
  Model model(kernels::Available().front(), 1);
  model.parts.prefill_chunk = 64;  // so that the warm-up takes rounds
  const auto pool = model.NewPool();
  PromptCache prompts(pool, {.context = 32});
  SchedulerParts parts{.generation = model.parts, .pool = pool, .ctx_size = kContext};
  parts.generation.prompts = &prompts;
  parts.tokenize = [](const GenerationRequest& request) -> Result<std::vector<int32_t>> {
    return request.tokens;
  };
  std::vector<RoundReport> rounds;
  SchedulerOptions options = {.cache_bytes = 32 * pool->chunk_bytes()};
  options.on_round = [&](const RoundReport& round) { rounds.push_back(round); };
  auto scheduler = *MakeScheduler(parts, options, 0);
  std::vector<std::string> ended;
  const auto submit = [&](const std::string& name, const GenerationRequest& request) {
    Submission submission{.request = Shared(request), .n = 1, .on_end = {}};
    submission.on_end = [&ended, name](int, const Result<GenerationResult>& result) {
      EXPECT_TRUE(result.ok()) << name << ": " << result.status().message();
      ended.push_back(name);
    };
    ASSERT_TRUE(scheduler->Submit(std::move(submission)).ok());
  };
  const std::vector<int32_t> ahead = Text(800, 1);
  submit("warm-up", Request(ahead, "none", 0, 0));
  ASSERT_TRUE(*scheduler->RunRound());
  EXPECT_GT(rounds[0].rows, 0);
  EXPECT_LT(rounds[0].rows, 799);
  submit("late warm-up", Request(Text(300, 2), "none", 0, 0));
  submit("key", Request(Text(100, 3), "none", 0, 5));
  for (rounds.clear(); ended.empty();) ASSERT_TRUE(*scheduler->RunRound());
  EXPECT_EQ(ended, std::vector<std::string>{"key"});
  int rows = 0;
  for (const RoundReport& round : rounds) {
    EXPECT_EQ(round.sequences, 1);
    rows += round.rows;
  }
  EXPECT_EQ(rows, 100 + 4);  // its own alone
  // Then they go on where they were.
  for (rounds.clear(); ended.size() < 3;) ASSERT_TRUE(*scheduler->RunRound());
  EXPECT_THAT(ended, ::testing::UnorderedElementsAre("key", "warm-up", "late warm-up"));
  rows = 0;
  for (const RoundReport& round : rounds) rows += round.rows;
  EXPECT_LT(rows, 799 + 299);
  EXPECT_EQ(prompts.LengthKnown(ahead), 799);
}

// Answers that say nothing but these tokens.
class OnlyThese final : public Grammar {
 public:
  OnlyThese(int vocab, std::vector<int32_t> allowed) : vocab_(vocab), allowed_(std::move(allowed)) {}
  Result<std::unique_ptr<Constraint>> NewConstraint() const override {
    return MakeTokenConstraint(std::make_shared<const TokenRules>(TokenRules{.allowed = allowed_}), vocab_,
                               nullptr);
  }
  size_t bytes() const override { return 0; }

 private:
  const int vocab_;
  const std::vector<int32_t> allowed_;
};

// From one request: its grammar is looked up once, or not at all where it comes along, and whoever was the
// last to answer lets go of it.
TEST(SchedulerTest, AllAnswersShareTheRequest) {
  Model model(kernels::Available().front(), 1);
  const std::shared_ptr<const Grammar> grammar =
      std::make_shared<const OnlyThese>(model.spec.n_vocab, std::vector<int32_t>{65});
  int n_lookups = 0;
  model.parts.grammar = [&](const GrammarText& text) -> Result<std::shared_ptr<const Grammar>> {
    EXPECT_EQ(text.text, "a's");
    ++n_lookups;
    return grammar;
  };
  SchedulerParts parts{.generation = model.parts, .pool = model.NewPool(), .ctx_size = kContext};
  parts.tokenize = [](const GenerationRequest& request) -> Result<std::vector<int32_t>> {
    return request.tokens;
  };
  const auto scheduler = MakeScheduler(parts, {.cache_bytes = 64 * parts.pool->chunk_bytes()}, 0);
  ASSERT_TRUE(scheduler.ok());
  for (const bool comes_along : {false, true}) {
    n_lookups = 0;
    GenerationRequest asked = Request(Text(20, 1), "ppm", 0.5F, 6);
    asked.ignore_eos = false;
    asked.grammar = {.kind = GrammarText::Kind::kGbnf, .text = "a's"};
    auto request = Shared(asked);
    const std::weak_ptr<const GenerationRequest> watched = request;
    Submission submission{.request = std::move(request), .n = 3};
    if (comes_along) submission.grammar = grammar;
    int n_ended = 0;
    submission.on_end = [&](int, const Result<GenerationResult>& result) {
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(result->tokens, std::vector<int32_t>(6, 65));
      ++n_ended;
    };
    ASSERT_TRUE((*scheduler)->Submit(std::move(submission)).ok());
    while (*(*scheduler)->RunRound()) EXPECT_EQ(watched.expired(), n_ended == 3);
    EXPECT_EQ(n_ended, 3);
    EXPECT_EQ(n_lookups, comes_along ? 0 : 1);
  }
}

// Logits, states, keys and values, and what is known of prompts: the host never reads them where they lie.
TEST(SchedulerTest, ATargetElsewhereSaysTheSame) {
  const kernels::KernelTable* best = kernels::Available().front();
  Model near(best, 2), far(best, 2);
  far.MoveElsewhere();
  std::vector<Asked> asked = Mixed();
  asked.resize(10);
  for (size_t i = 6; i < 8; ++i) {
    asked[i].request.partial_verification = {
        .enabled = true, .sink = 16, .budget = 32, .window = 20, .refresh = 24};
  }
  std::map<std::pair<size_t, int>, std::vector<int32_t>> alone;
  for (const size_t chunks : {64, 9}) {
    const Outcome outcome = RunAll(far, asked, {.chunks = chunks});
    ExpectAsAlone(near, asked, outcome, alone);
  }
}

TEST(SchedulerTest, ChancesAndGrammarsOfATargetElsewhereAreTheSame) {
  const kernels::KernelTable* best = kernels::Available().front();
  Model near(best, 1), far(best, 1);
  far.MoveElsewhere();
  const std::shared_ptr<const Grammar> some =
      std::make_shared<const OnlyThese>(near.spec.n_vocab, std::vector<int32_t>{65, 70, 99, 200});
  for (const bool grammar : {false, true}) {
    std::vector<std::vector<float>> logprobs;  // of each
    std::vector<std::vector<int32_t>> tokens;
    for (Model* model : {&near, &far}) {
      model->parts.grammar = [&](const GrammarText&) -> Result<std::shared_ptr<const Grammar>> {
        return some;
      };
      GenerationRequest request = Request(Text(40, 1), "ppm", 0.8F, 20);
      request.ignore_eos = !grammar;
      if (grammar) request.grammar = {.kind = GrammarText::Kind::kGbnf, .text = "some"};
      request.n_logprobs = 3;
      logprobs.emplace_back();
      request.on_token = [&](const GeneratedToken& token) {
        logprobs.back().push_back(token.own.logprob);
        for (const TokenLogprob& one : token.likeliest) logprobs.back().push_back(one.logprob);
      };
      tokens.push_back(Alone(*model, request, 0));
    }
    EXPECT_EQ(tokens[0].size(), 20U);
    EXPECT_EQ(tokens[1], tokens[0]);
    EXPECT_EQ(logprobs[0].size(), 20U * 4);
    EXPECT_EQ(logprobs[1], logprobs[0]);
  }
}

TEST(SchedulerTest, AnErrorOfOneIsThatOnes) {
  Model model(kernels::Available().front(), 1);
  std::vector<Asked> asked = {{Request(Text(40, 1), "none", 0.0F, 10)},
                              {Request(Text(50, 2), "none", 0.0F, 10)}};
  // A draft model that is not there is found when the answer starts.
  asked.push_back({Request(Text(60, 3), "lm", 0.0F, 10)});
  asked[2].request.speculation.draft_model = "/nowhere/draft.gguf";
  const Outcome outcome = RunAll(model, asked, {});
  EXPECT_TRUE(outcome.answers.at({0, 0}).ok());
  EXPECT_TRUE(outcome.answers.at({1, 0}).ok());
  ASSERT_FALSE(outcome.answers.at({2, 0}).ok());
  EXPECT_THAT(outcome.answers.at({2, 0}).status().message(), HasSubstr("/nowhere/draft.gguf"));
}

TEST(SchedulerTest, SubmittedAndCancelledFromOtherThreads) {
  Model model(kernels::Available().front(), 1);
  SchedulerParts parts{.generation = model.parts, .pool = model.NewPool(), .ctx_size = kContext};
  parts.tokenize = [](const GenerationRequest& request) -> Result<std::vector<int32_t>> {
    return request.tokens;
  };
  const auto scheduler = MakeScheduler(parts, {.cache_bytes = 64 * parts.pool->chunk_bytes()}, 0);
  ASSERT_TRUE(scheduler.ok());
  std::atomic<int> n_ended = 0;
  std::vector<std::thread> clients;
  constexpr int kClients = 3, kEach = 10;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < kEach; ++i) {
        const auto id =
            (*scheduler)
                ->Submit({.request = Shared(Request(Text(10 + i, static_cast<unsigned>(c)), "ppm", 0.5F, 6)),
                          .n = 1,
                          .on_end = [&](int, const Result<GenerationResult>&) { ++n_ended; }});
        ASSERT_TRUE(id.ok());
        if (i % 3 == 0) (*scheduler)->Cancel(*id);
      }
    });
  }
  while (n_ended < kClients * kEach) ASSERT_TRUE((*scheduler)->RunRound().ok());
  for (auto& client : clients) client.join();
  EXPECT_FALSE(*(*scheduler)->RunRound());
}

TEST(SchedulerReports, RoundsAndAnswersAreToldApart) {
  Model model(kernels::Available().front(), 1);
  const auto pool = model.NewPool();
  PromptCache prompts(pool, {.context = 64});
  SchedulerParts parts{.generation = model.parts, .pool = pool, .ctx_size = kContext};
  parts.generation.prompts = &prompts;
  parts.tokenize = [](const GenerationRequest& request) -> Result<std::vector<int32_t>> {
    return request.tokens;
  };
  std::vector<RoundReport> rounds;
  SchedulerOptions options{.parallel = 2, .cache_bytes = 64 * pool->chunk_bytes()};
  options.on_round = [&](const RoundReport& round) { rounds.push_back(round); };
  const auto scheduler = MakeScheduler(parts, options, 0);
  ASSERT_TRUE(scheduler.ok());
  std::map<int, std::vector<int32_t>> reported, ended;
  std::map<int, int> started;
  Submission submission{.request = Shared(Request(Text(300, 5), "ppm", 0.9F, 20)), .n = 3};
  submission.for_answer = [&](int index, OneAnswer& own) {
    own.on_start = [&started, index](int n_prompt, int) { started[index] = n_prompt; };
    own.on_token = [&reported, index](const GeneratedToken& token) { reported[index].push_back(token.id); };
  };
  submission.on_end = [&](int index, Result<GenerationResult> result) { ended[index] = result->tokens; };
  ASSERT_TRUE((*scheduler)->Submit(std::move(submission)).ok());
  int most_running = 0, most_waiting = 0;
  for (bool more = true; more;) {
    more = *(*scheduler)->RunRound();
    const SchedulerStats stats = (*scheduler)->stats();
    most_running = std::max(most_running, stats.running);
    most_waiting = std::max(most_waiting, stats.waiting);
    EXPECT_LE(stats.chunks_held, stats.chunks_most);
  }
  EXPECT_EQ(most_running, 2);
  EXPECT_GE(most_waiting, 1);
  EXPECT_EQ(started, (std::map<int, int>{{0, 300}, {1, 300}, {2, 300}}));
  EXPECT_EQ(ended.size(), 3U);
  EXPECT_EQ(reported, ended);
  EXPECT_NE(ended[0], ended[1]);
  int rows = 0, tokens = 0;
  for (const RoundReport& round : rounds) {
    rows += round.rows;
    tokens += round.tokens;
    EXPECT_GE(round.rows, round.sequences);
    EXPECT_GE(round.round_ms, round.pass_ms);
    EXPECT_GT(round.pass_ms, 0);
    EXPECT_GT(round.predicted_ms, 0);
  }
  EXPECT_EQ(tokens, 60);
  EXPECT_GE(rows, 300 + 57);
  const SchedulerStats rest = (*scheduler)->stats();
  EXPECT_EQ(rest.running + rest.waiting, 0);
  EXPECT_EQ(rest.chunks_held, rest.chunks_reclaimable);
}

}  // namespace
}  // namespace longspec
