// SPDX-License-Identifier: Apache-2.0
//
// A scheduler without a model: it repeats prompts. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "longspec/scheduler.h"

namespace longspec::cli {

// A round gives each of the running answers one token. An answer is the prompt (of a chat, the last message),
// the index of the answer, and "!" after as many rounds as the request has n_predict, 3 if it has none. A
// prompt with "refuse" in it is refused at once, one with "fail" fails in its first round.
class FakeScheduler final : public Scheduler {
 public:
  explicit FakeScheduler(size_t parallel) : parallel_(parallel) {}

  std::function<void(int round)> on_round = {};  // called when a round begins
  int fail_in_round = -1;

  // What happened.
  size_t most_held = 0;
  int64_t submitted = 0, cancelled = 0;
  std::vector<GenerationRequest> requests;
  int64_t held() const { return static_cast<int64_t>(jobs_.size()); }

  Result<int64_t> Submit(Submission submission) override {
    if (PromptOf(*submission.request).find("refuse") != std::string::npos)
      return ResourceExhausted("the prompt has 9 tokens but the context holds 8");
    requests.push_back(*submission.request);
    jobs_.push_back({++submitted, std::move(submission)});
    most_held = std::max(most_held, jobs_.size());
    return submitted;
  }

  void Cancel(int64_t id) override {
    const auto it = std::find_if(jobs_.begin(), jobs_.end(), [id](const Job& job) { return job.id == id; });
    if (it == jobs_.end()) return;
    ++cancelled;
    const Job job = std::move(*it);
    jobs_.erase(it);
    for (int i = 0; i < job.submission.n; ++i) job.submission.on_end(i, Cancelled("cancelled"));
  }

  Result<bool> RunRound() override {
    if (on_round) on_round(round_);
    if (round_++ == fail_in_round) return IoError("the machine is on fire");
    const size_t running = std::min(parallel_, jobs_.size());
    std::vector<Job> ended;
    for (size_t i = 0; i < running; ++i) {
      Job& job = jobs_[i];
      if (job.submission.request->on_text) job.submission.request->on_text("x");
      if (++job.rounds == Rounds(job)) ended.push_back(job);
    }
    std::erase_if(jobs_, [](const Job& job) { return job.rounds == Rounds(job); });
    std::reverse(ended.begin(), ended.end());  // the order of answers is nobody's business
    for (const Job& job : ended) End(job);
    return running > 0;
  }

 private:
  struct Job {
    int64_t id = 0;
    Submission submission;
    int rounds = 0;
  };

  static std::string PromptOf(const GenerationRequest& request) {
    return request.messages.empty() ? request.prompt : request.messages.back().content;
  }

  static bool Fails(const Job& job) {
    return PromptOf(*job.submission.request).find("fail") != std::string::npos;
  }

  static int Rounds(const Job& job) {
    if (Fails(job)) return 1;
    return job.submission.request->n_predict < 0 ? 3 : job.submission.request->n_predict;
  }

  static void End(const Job& job) {
    for (int i = 0; i < job.submission.n; ++i) {
      if (Fails(job)) {
        job.submission.on_end(i, IoError("the logits are not finite"));
        continue;
      }
      GenerationResult result;
      result.text = PromptOf(*job.submission.request) + " " + std::to_string(i) + "!";
      result.seed = job.submission.request->sampling.seed.value_or(1);
      result.finish_reason = FinishReason::kStop;
      result.timings.prompt_n = 10;
      result.timings.predicted_n = job.rounds;
      result.distinct_4gram = 0.5;
      job.submission.on_end(i, std::move(result));
    }
  }

  const size_t parallel_;
  std::deque<Job> jobs_;
  int round_ = 0;
};

}  // namespace longspec::cli
