// SPDX-License-Identifier: Apache-2.0
//
// What the loop does while nothing is asked.
#include "server/engine_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/soon.h"

namespace longspec::server {
namespace {

using longspec::testing::ExpectSoon;

// Gives each request one piece of text in the next round.
class OneRound final : public Scheduler {
 public:
  Result<int64_t> Submit(Submission submission) override {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(std::move(submission));
    return ++last_id_;
  }
  void Cancel(int64_t /*id*/) override {}
  Result<bool> RunRound() override {
    std::vector<Submission> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(submitted_);
    }
    for (const Submission& one : all) {
      OneAnswer own(*one.request);
      one.for_answer(0, own);
      own.on_text("x");
      one.on_end(0, GenerationResult());
    }
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<Submission> submitted_;
  int64_t last_id_ = 0;
};

TEST(EngineLoop, TheFirstAnswerDoesNotWaitForWhatIsMeasuredWhileNothingIsAsked) {
  std::atomic<int> begun = 0, done = 0, answered = 0;
  // Without an end: only a question ends it, and the second time it is let be done.
  std::atomic<bool> finish = false;
  const auto measure = [&](const std::function<bool()>& keep_going) {
    if (done > 0) return;
    ++begun;
    while (!finish) {
      if (!keep_going()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ++done;
  };
  {
    EngineLoop loop(std::make_unique<OneRound>(), {.when_idle = measure});
    ExpectSoon([&] { return begun == 1; }, "measuring before the first question");
    GenerationRequest request;
    request.on_text = [&](std::string_view) {
      EXPECT_EQ(done, 0);
      return ++answered > 0;
    };
    Submission question;
    question.request = std::make_shared<const GenerationRequest>(request);
    question.on_end = [](int, Result<GenerationResult>) {};
    EXPECT_EQ(loop.Submit(question).outcome, EngineLoop::Outcome::kAccepted);
    ExpectSoon([&] { return answered == 1; }, "the first answer");
    ExpectSoon([&] { return begun == 2; }, "measuring after it");
    std::atomic<bool> posted = false;
    loop.Post([&] { posted = true; });
    ExpectSoon([&] { return posted.load(); }, "what was posted");
    finish = true;
    ExpectSoon([&] { return done == 1; }, "the end of measuring");
    finish = false;
    done = 0;  // and its own end does not wait either
    loop.Post([] {});
    ExpectSoon([&] { return begun >= 4; }, "measuring again");
  }
  EXPECT_EQ(done, 0);
}

}  // namespace
}  // namespace longspec::server
