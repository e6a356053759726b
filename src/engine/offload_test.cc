// SPDX-License-Identifier: Apache-2.0
//
// Keys and values in a file, through the facade: the text is the same, and what can happen to a disk (it
// fills up, the folder is removed) is an error of the one that needs it, after which everything goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "draft_model/option_use.h"
#include "draft_model/testing/longspec_files.h"
#include "formats/testing/file_size_limit.h"
#include "kv/chunk_pool.h"
#include "longspec/engine.h"

namespace longspec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kAnswer = 60;

class Offload : public ::testing::Test {
 protected:
  Offload() {
    EXPECT_TRUE(WriteTinyModel({.context_length = 1024}, Path()).ok());
    std::filesystem::create_directory(Disk());
    engine_ = Load({.kv_offload = Disk(), .kv_memory = 0});
    plain_ = Load({});
  }

  std::string Path() const { return folder_.File("target.gguf"); }
  std::string Disk() const { return folder_.File("disk"); }
  uint64_t ChunkBytes() const { return engine_->info().memory.kv_in_file / (1024 / kKvChunk); }

  std::unique_ptr<Engine> Load(ModelOptions options) const {
    options.path = Path();
    options.threads = 1;
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(*engine);
  }

  static GenerationRequest Request(int n_prompt, const std::string& type = "none") {
    GenerationRequest request;
    for (int32_t i = 0; i < n_prompt; ++i) request.tokens.push_back(3 + i * i % 97 + i / 40);
    request.n_predict = kAnswer;
    request.ignore_eos = true;
    request.sampling.temperature = 0.7F;
    request.sampling.seed = 5;
    request.speculation = OnlyRead({.partial = {.budget = 32, .window = 20, .refresh = 12}}, type);
    return request;
  }
  static GenerationRequest Approximate(int n_prompt) {
    GenerationRequest request = Request(n_prompt);
    request.partial_verification = {.enabled = true, .sink = 16, .budget = 32, .window = 20, .refresh = 12};
    return request;
  }

  static std::vector<int32_t> Tokens(Engine& engine, Session& session, const GenerationRequest& request) {
    const auto result = engine.Generate(session, request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? result->tokens : std::vector<int32_t>();
  }
  std::vector<int32_t> Expected(const GenerationRequest& request) {
    const auto session = plain_->NewSession();
    return Tokens(*plain_, **session, request);
  }

  testing::Folder folder_;
  std::unique_ptr<Engine> engine_, plain_;
};

TEST_F(Offload, TheTextIsTheSameHoweverItIsMade) {
  for (const char* type : {"none", "ppm", "magicdec", "partial"}) {
    const GenerationRequest request = Request(500, type);
    const auto session = engine_->NewSession();
    EXPECT_EQ(Tokens(*engine_, **session, request), Expected(request)) << type;
  }
  const GenerationRequest approximate = Approximate(500);
  const auto session = engine_->NewSession();
  EXPECT_EQ(Tokens(*engine_, **session, approximate), Expected(approximate));
}

TEST_F(Offload, ThePlanSaysWhereTheyLie) {
  const MemoryPlan plan = engine_->info().memory;
  EXPECT_EQ(plan.kv_at_context, 0U);
  EXPECT_EQ(plan.kv_in_file, plain_->info().memory.kv_at_context);
  const auto missing = Engine::Load({.path = Path(), .kv_offload = "/nowhere/at/all", .kv_memory = 0});
  EXPECT_THAT(missing.status().message(), HasSubstr("--kv-offload /nowhere/at/all"));
}

// In the middle of a prompt, and of an answer, whoever drafts.
TEST_F(Offload, AFullDiskIsAnErrorAndTheSessionGoesOn) {
  std::vector<GenerationRequest> requests = {Approximate(240)};
  for (const char* type : {"none", "ppm", "partial"}) {
    requests.push_back(Request(600, type));
    requests.push_back(Request(240, type));
  }
  for (const GenerationRequest& request : requests) {
    SCOPED_TRACE(request.speculation.type + " " + std::to_string(request.tokens.size()));
    const auto engine = Load({.kv_offload = Disk(), .kv_memory = 0});
    const auto session = engine->NewSession();
    const GenerationRequest small = Request(100, request.speculation.type);
    {
      const testing::FileSizeLimit limit(ChunkBytes() + 100);
      const Status full = engine->Generate(**session, request).status();
      EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(full.message(), AllOf(HasSubstr(Disk() + ": no room for the key-value cache beyond"),
                                        Not(HasSubstr("\n"))));
      // What fits is answered all the while, by this session and by others.
      EXPECT_EQ(Tokens(*engine, **session, small), Expected(small));
    }
    EXPECT_EQ(Tokens(*engine, **session, request), Expected(request));
  }
}

// The one that needs room ends with the error; the other, and those that come later, do not notice.
TEST_F(Offload, AFullDiskIsTheErrorOfOneOfSeveral) {
  const GenerationRequest large = Request(600, "ppm"), small = Request(100, "ppm");
  const auto scheduler = engine_->NewScheduler({.parallel = 2});
  ASSERT_TRUE(scheduler.ok());
  int n_failed = 0, n_done = 0;
  const auto submit = [&](const GenerationRequest& request) {
    Submission submission;
    submission.request = std::make_shared<const GenerationRequest>(request);
    submission.on_end = [&, expected = Expected(request)](int, const Result<GenerationResult>& result) {
      if (!result.ok()) {
        EXPECT_THAT(result.status().message(), HasSubstr(Disk() + ": no room for the key-value cache"));
        ++n_failed;
        return;
      }
      EXPECT_EQ(result->tokens, expected);
      ++n_done;
    };
    ASSERT_TRUE((*scheduler)->Submit(std::move(submission)).ok());
  };
  const auto run = [&] {
    for (bool more = true; more;) {
      const auto ran = (*scheduler)->RunRound();
      ASSERT_TRUE(ran.ok()) << ran.status().message();
      more = *ran;
    }
  };
  {
    submit(small);
    submit(large);
    const testing::FileSizeLimit limit(2 * ChunkBytes() + 100);
    run();
    EXPECT_EQ(n_failed, 1);
    EXPECT_EQ(n_done, 1);
  }
  submit(large);
  submit(small);
  run();
  EXPECT_EQ(n_failed, 1);
  EXPECT_EQ(n_done, 3);
}

// The file has no name while it is used: nobody finds it to change it, and without the folder it is there.
TEST_F(Offload, TheFolderMayVanishOnceTheFileIsMade) {
  const auto session = engine_->NewSession();
  EXPECT_EQ(Tokens(*engine_, **session, Request(300)), Expected(Request(300)));
  EXPECT_TRUE(std::filesystem::is_empty(Disk()));
  std::filesystem::remove(Disk());
  EXPECT_EQ(Tokens(*engine_, **session, Request(700)), Expected(Request(700)));
}

TEST_F(Offload, AFolderThatVanishedBeforeIsAnErrorAndTheSessionGoesOn) {
  const auto session = engine_->NewSession();
  std::filesystem::remove(Disk());
  const Status gone = engine_->Generate(**session, Request(300)).status();
  EXPECT_EQ(gone.code(), StatusCode::kIo);
  EXPECT_THAT(gone.message(), HasSubstr(Disk() + ": no file can be made in this folder"));
  std::filesystem::create_directory(Disk());
  EXPECT_EQ(Tokens(*engine_, **session, Request(300)), Expected(Request(300)));
}

}  // namespace
}  // namespace longspec
