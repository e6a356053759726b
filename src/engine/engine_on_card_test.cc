// SPDX-License-Identifier: Apache-2.0
//
// Models on a card, here an emulated one, through the facade: texts, chances and sessions are those of the
// CPU, and what goes wrong with a card is one line, after which the CPU goes on where it may.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "draft_model/option_use.h"
#include "draft_model/testing/longspec_files.h"
#include "engine/memory_plan.h"
#include "formats/tiny_model.h"
#include "grammar/grammar.h"
#include "kernels/gpu/runtime.h"
#include "kernels/testing/emulated_runtime.h"
#include "longspec/engine.h"

namespace longspec {
namespace {

using kernels::gpu::Runtime;
using kernels::testing::EmulatedRuntime;
using OpenedCard = Result<std::shared_ptr<Runtime>>;

// The first card of this program. Without it there is none.
std::function<OpenedCard()> first_card;

}  // namespace

// In place of the one that the library has.
namespace kernels::gpu {
Result<std::shared_ptr<Runtime>> OpenCard(int index) {
  if (index == 0 && first_card) return first_card();
  return Unsupported("cuda:" + std::to_string(index) + ": there is no such card");
}
}  // namespace kernels::gpu

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string BytesOfFile(const std::string& path) {
  std::stringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

// What an answer is, to the bit.
struct Answer {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<std::pair<int32_t, float>> chances;
  bool operator==(const Answer&) const = default;
};

class EngineOnCard : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteTinyModel({.head_dim = 32}, Path()).ok());
    card_ = std::make_shared<EmulatedRuntime>();
    first_card = [this]() -> OpenedCard { return std::shared_ptr<Runtime>(card_); };
  }
  void TearDown() override {
    first_card = nullptr;
    std::filesystem::remove(Path());
  }
  static std::string Path() { return ::testing::TempDir() + "/longspec_engine_on_card_test.gguf"; }

  static Result<std::unique_ptr<Engine>> TryLoad(const std::string& device, ModelOptions options = {}) {
    options.path = Path();
    options.threads = 1;
    options.device = device;
    options.batch_size = 24;
    options.calibration_cache = false;
    return Engine::Load(options);
  }
  static std::unique_ptr<Engine> Load(const std::string& device, const ModelOptions& options = {}) {
    auto engine = TryLoad(device, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  static GenerationRequest Request(const std::string& type, int n_prompt = 70) {
    GenerationRequest request;
    for (int32_t i = 0; i < n_prompt; ++i) request.tokens.push_back(3 + i * i % 41 + i / 40);
    request.n_predict = 10;
    request.ignore_eos = true;
    request.sampling = {.temperature = 0, .seed = 5};
    SpeculationOptions speculation;
    speculation.draft_n_max = 6;
    speculation.ppm.prior = "none";
    speculation.partial = {.sink = 16, .budget = 32, .window = 16, .refresh = 8};
    request.speculation = OnlyRead(speculation, type);
    return request;
  }

  static Answer Write(Engine& engine, Session& session, GenerationRequest request) {
    Answer answer;
    if (request.n_logprobs >= 0) {
      request.on_token = [&](const GeneratedToken& token) {
        answer.chances.emplace_back(token.own.token, token.own.logprob);
        for (const TokenLogprob& other : token.likeliest)
          answer.chances.emplace_back(other.token, other.logprob);
      };
    }
    const auto result = engine.Generate(session, request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (!result.ok()) return answer;
    answer.tokens = result->tokens;
    answer.text = result->text;
    return answer;
  }
  static Answer Write(Engine& engine, const GenerationRequest& request) {
    const auto session = engine.NewSession();
    return Write(engine, **session, request);
  }

  std::shared_ptr<EmulatedRuntime> card_;
};

TEST_F(EngineOnCard, TextsAreTheCpus) {
  const auto cpu = Load("cpu"), gpu = Load("cuda:0");
  EXPECT_EQ(gpu->info().device, "cuda (emulated)");
  EXPECT_EQ(gpu->info().kernels, "cuda");
  std::vector<GenerationRequest> requests;
  for (const char* type : {"none", "ppm", "recycling", "partial"}) requests.push_back(Request(type));
  // Drawn from the whole row, and after filters and penalties; with chances; by a part of the cache.
  requests.push_back(Request("ppm"));
  requests.back().sampling = {.temperature = 1.5F, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 8};
  requests.push_back(Request("ppm"));
  requests.back().sampling = {.temperature = 0.9F, .repeat_penalty = 1.3F, .seed = 8};
  requests.back().n_logprobs = 3;
  requests.push_back(Request("none", 150));
  requests.back().partial_verification = {
      .enabled = true, .sink = 16, .budget = 32, .window = 16, .refresh = 8};
  for (const GenerationRequest& request : requests) {
    SCOPED_TRACE(request.speculation.type);
    const int64_t launches = card_->n_launches();
    const Answer expected = Write(*cpu, request);
    EXPECT_EQ(card_->n_launches(), launches);
    EXPECT_EQ(Write(*gpu, request), expected);
    EXPECT_GT(card_->n_launches(), launches);
    EXPECT_EQ(expected.tokens.size(), 10U);
    EXPECT_EQ(expected.chances.size(), request.n_logprobs < 0 ? 0U : 40U);
  }
}

TEST_F(EngineOnCard, AnswersThatFollowAGrammarAreTheCpus) {
  if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  const auto cpu = Load("cpu"), gpu = Load("cuda");
  for (const float temperature : {0.0F, 1.0F}) {
    GenerationRequest request = Request("ppm");
    request.ignore_eos = false;
    request.n_predict = 20;
    request.sampling.temperature = temperature;
    request.grammar = {GrammarText::Kind::kGbnf, R"(root ::= ("to" | "be" | [x-z]{2,4} | ", "){3,9} ".")"};
    const Answer expected = Write(*cpu, request);
    EXPECT_FALSE(expected.text.empty());
    EXPECT_EQ(Write(*gpu, request), expected);
  }
}

TEST_F(EngineOnCard, CachesOfAllTypesAreTheCpus) {
  for (const CacheType type : {CacheType::kF32, CacheType::kQ8_0, CacheType::kQ4_0, CacheType::kI8}) {
    const ModelOptions options = {.cache_type_k = type, .cache_type_v = type};
    const auto cpu = Load("cpu", options), gpu = Load("cuda:0", options);
    GenerationRequest request = Request("ppm", 40);
    request.n_predict = 6;
    EXPECT_EQ(Write(*gpu, request), Write(*cpu, request)) << static_cast<int>(type);
  }
}

// Saved by one and gone on with by the other.
TEST_F(EngineOnCard, SessionsMoveBetweenTheCardAndTheCpu) {
  const std::string file = Path() + ".session", other = Path() + ".other";
  for (const CacheType type : {CacheType::kF16, CacheType::kI8}) {
    const ModelOptions options = {.cache_type_k = type, .cache_type_v = type};
    const auto cpu = Load("cpu", options), gpu = Load("cuda:0", options);
    const GenerationRequest first = Request("none", 50);
    for (const auto& [from, to] : {std::pair(cpu.get(), gpu.get()), std::pair(gpu.get(), cpu.get())}) {
      const auto begun = from->NewSession();
      Write(*from, **begun, first);
      ASSERT_TRUE(from->SaveSession(**begun, file).ok());
      const auto moved = to->LoadSession(file);
      ASSERT_TRUE(moved.ok()) << moved.status().message();
      ASSERT_TRUE(to->SaveSession(**moved, other).ok());
      EXPECT_EQ(BytesOfFile(file), BytesOfFile(other));
      GenerationRequest second = Request("ppm", 0);
      second.tokens = (*begun)->tokens();
      second.tokens.insert(second.tokens.end(), {7, 9, 11});
      const auto fork = to->Fork(**moved);
      const Answer expected = Write(*from, **begun, second);
      EXPECT_EQ(Write(*to, **moved, second), expected);
      EXPECT_EQ(Write(*to, **fork, second), expected);
      ASSERT_TRUE(from->SaveSession(**begun, file).ok());
      ASSERT_TRUE(to->SaveSession(**moved, other).ok());
      EXPECT_EQ(BytesOfFile(file), BytesOfFile(other));
    }
  }
  std::filesystem::remove(file);
  std::filesystem::remove(other);
}

TEST_F(EngineOnCard, WhatWasEvaluatedBeforeIsNotEvaluatedAgain) {
  const auto cpu = Load("cpu"), gpu = Load("cuda:0");
  GenerationRequest request = Request("none", 300);
  request.n_predict = 3;
  const Answer expected = Write(*cpu, request);
  EXPECT_EQ(Write(*gpu, request), expected);
  const auto again = gpu->NewSession();
  const auto result = gpu->Generate(**again, request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tokens, expected.tokens);
  EXPECT_GE(result->timings.cache_n, 256);
}

TEST_F(EngineOnCard, AnswersBesideOthersAreTheCpus) {
  const auto cpu = Load("cpu"), gpu = Load("cuda:0");
  std::vector<GenerationRequest> requests;
  for (const char* type : {"none", "ppm", "partial"}) {
    requests.push_back(Request(type, 60 + 10 * static_cast<int>(requests.size())));
    requests.back().n_predict = 6;
  }
  requests[1].sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 3};
  const auto scheduler = gpu->NewScheduler({.parallel = 3});
  ASSERT_TRUE(scheduler.ok()) << scheduler.status().message();
  std::vector<std::vector<int32_t>> tokens(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = (*scheduler)
                        ->Submit({.request = std::make_shared<const GenerationRequest>(requests[i]),
                                  .on_end = [&, i](int, Result<GenerationResult> result) {
                                    EXPECT_TRUE(result.ok()) << result.status().message();
                                    if (result.ok()) tokens[i] = result->tokens;
                                  }});
    ASSERT_TRUE(id.ok()) << id.status().message();
  }
  for (auto more = (*scheduler)->RunRound(); more.ok() && *more;) more = (*scheduler)->RunRound();
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(tokens[i], Write(*cpu, requests[i]).tokens) << i;
}

// Drafts run on the host. So the card needs no memory for a LongSpec draft, and the host a copy of the
// target's last layer besides, which is as large as it was planned.
TEST_F(EngineOnCard, TheMemoryOfADraftIsTheHosts) {
  const testing::Folder folder;
  const testing::TinyTarget tiny({.head_dim = 32});
  GenerationRequest request = Request("none", 300);
  request.speculation =
      OnlyRead({.draft_model = testing::WriteDraftFolder(
                    folder, tiny.spec, testing::RandomDraft(tiny.spec, 64, 2), ", \"head_dim\": 32")},
               "longspec");
  const ModelOptions plain = {.ctx_size = 512};
  ModelOptions drafting = plain;
  drafting.speculation = request.speculation;
  const auto cpu = Load("cpu", drafting), gpu = Load("cuda:0", drafting);
  const MemoryPlan on_cpu = cpu->info().memory, on_card = gpu->info().memory;
  EXPECT_EQ(on_card.total(), Load("cuda:0", plain)->info().memory.total());
  EXPECT_EQ(on_card.draft + on_card.draft_keys, 0U);
  EXPECT_GT(on_cpu.draft, 0U);
  EXPECT_EQ(on_cpu.host_draft + on_cpu.host_available, 0U);
  EXPECT_GT(on_card.host_available, on_card.host_draft);

  EXPECT_EQ(Write(*gpu, request), Write(*cpu, request));
  const auto taken = [&](Engine& engine) {
    const auto session = engine.NewSession();
    return engine.Generate(**session, request)->speculative.draft_bytes;
  };
  const uint64_t copy = on_card.host_draft - on_cpu.draft;
  EXPECT_GT(copy, 0U);
  EXPECT_EQ(taken(*gpu) - taken(*cpu), copy);

  // And so is a cache that lies there: both are planned together, and taken as planned.
  ModelOptions offloaded = drafting;
  offloaded.kv_offload = "host";
  offloaded.kv_memory = 0;
  const auto both = Load("cuda:0", offloaded);
  const MemoryPlan& plan = both->info().memory;
  EXPECT_EQ(plan.host_draft, on_card.host_draft);
  EXPECT_EQ(HostTotal(plan), on_card.host_draft + on_card.kv_at_context);
  EXPECT_EQ(card_->host_bytes(), 0U);
  EXPECT_EQ(taken(*both), taken(*gpu));
  EXPECT_EQ(card_->host_bytes() + plan.host_draft, HostTotal(plan));
}

// All of it in host memory, of which layers are fetched ahead, and what is chosen of it on the card.
TEST_F(EngineOnCard, TextsOfACacheInHostMemoryAreTheCpus) {
  const ModelOptions options = {.kv_offload = "host", .kv_memory = 0};
  const auto cpu = Load("cpu"), gpu = Load("cuda:0", options);
  EXPECT_EQ(Load("cpu", options)->info().memory.kv_in_file, 0U);
  const MemoryPlan& plan = gpu->info().memory;
  EXPECT_TRUE(plan.kv_on_host);
  EXPECT_EQ(plan.kv_at_context, 0U);
  EXPECT_EQ(plan.kv_in_file, cpu->info().memory.kv_at_context);
  std::vector<GenerationRequest> requests = {Request("ppm", 300), Request("partial", 300),
                                             Request("none", 300)};
  requests.back().partial_verification = {
      .enabled = true, .sink = 16, .budget = 32, .window = 16, .refresh = 8};
  for (GenerationRequest& request : requests) {
    request.n_predict = 6;
    const auto session = gpu->NewSession();
    const int64_t n_fetches = card_->n_fetches();
    EXPECT_EQ(Write(*gpu, **session, request), Write(*cpu, request)) << request.speculation.type;
    EXPECT_GE(card_->host_bytes(), plan.kv_in_file);
    EXPECT_GT(card_->n_fetches(), n_fetches);
  }
  const Status status = TryLoad("cuda:0", {.kv_offload = "/tmp"}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("--kv-offload /tmp: the cache of a card cannot lie in a file"));
}

// ---- What goes wrong

TEST_F(EngineOnCard, ACardThatCannotBeUsedIsOneLineOrLeftToTheCpu) {
  for (const char* why : {"cuda:0: the driver is too old for CUDA 13.0", "cuda:0: compute capability 7.5"}) {
    first_card = [why]() -> OpenedCard { return Unsupported(why); };
    const Status status = TryLoad("cuda:0").status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_EQ(status.message(), why);
    EXPECT_EQ(Load("auto")->info().device, "cpu");
  }
}

TEST_F(EngineOnCard, WhatACardDoesNotHaveIsLeftToTheCpu) {
  const ModelOptions mixed = {.cache_type_k = CacheType::kQ8_0};
  EXPECT_THAT(TryLoad("cuda:0", mixed).status().message(), HasSubstr("--cache-type-k q8_0"));
  EXPECT_EQ(Load("auto", mixed)->info().device, "cpu");
  EXPECT_EQ(Load("auto")->info().device, "cuda (emulated)");
}

TEST_F(EngineOnCard, ACardThatIsTooSmallIsOneLineOrLeftToTheCpu) {
  card_ = std::make_shared<EmulatedRuntime>(size_t{1} << 20);
  const Status status = TryLoad("cuda:0").status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("of memory needed"));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_EQ(Load("auto")->info().device, "cpu");
}

// After the plan was made, and before anything is loaded.
TEST_F(EngineOnCard, MemoryThatAnotherProgramTakesIsOneLineOrLeftToTheCpu) {
  std::byte* taken = nullptr;
  std::vector<std::string> warnings;
  ModelOptions options;
  options.on_plan = [&](const ModelInfo&) {
    if (taken == nullptr) taken = card_->Allocate(card_->FreeMemory() - (size_t{64} << 10));
    ASSERT_NE(taken, nullptr);
  };
  options.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  const Status status = TryLoad("cuda:0", options).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("cuda (emulated): no room for weights"));
  EXPECT_THAT(warnings, ElementsAre());
  card_->Free(std::exchange(taken, nullptr));

  const auto engine = Load("auto", options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->info().device, "cpu");
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("cuda (emulated): no room for weights")));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("; the model runs on the CPU")));
  EXPECT_EQ(Write(*engine, Request("none")).tokens.size(), 10U);
  card_->Free(taken);
}

TEST_F(EngineOnCard, MemoryThatIsShortInTheMiddleIsTheAnswersErrorAlone) {
  const auto cpu = Load("cpu"), gpu = Load("cuda:0");
  const GenerationRequest request = Request("none", 300);
  std::byte* const taken = card_->Allocate(card_->FreeMemory() - (size_t{80} << 10));
  ASSERT_NE(taken, nullptr);
  const auto session = gpu->NewSession();
  const Status status = gpu->Generate(**session, request).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("cuda (emulated)"));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  card_->Free(taken);
  EXPECT_EQ(Write(*gpu, **session, request), Write(*cpu, request));
}

TEST_F(EngineOnCard, ACardThatIsGoneInTheMiddleIsOneLine) {
  const auto gpu = Load("cuda:0");
  GenerationRequest request = Request("ppm");
  request.on_token = [&](const GeneratedToken&) { card_->DieAfter(7); };
  const auto session = gpu->NewSession();
  for (int i = 0; i < 2; ++i) {
    const Status status = gpu->Generate(**session, request).status();
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_EQ(status.message(), "cuda (emulated): the card is gone");
  }
  // What comes next runs on the CPU.
  first_card = []() -> OpenedCard { return IoError("cuda:0: no CUDA-capable device is detected"); };
  EXPECT_EQ(Load("auto")->info().device, "cpu");
}

}  // namespace
}  // namespace longspec
