// SPDX-License-Identifier: Apache-2.0
#include "server/engine_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace longspec::server {

struct EngineLoop::Request {
  int64_t id = 0;
  int unended = 1;  // answers
  bool waiting = true;
};

EngineLoop::EngineLoop(std::unique_ptr<Scheduler> scheduler, LoopOptions options)
    : scheduler_(std::move(scheduler)), options_(std::move(options)), thread_([this] { Run(); }) {}

EngineLoop::~EngineLoop() {
  CancelAll();
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

EngineLoop::Admission EngineLoop::Submit(Submission submission) {
  const auto request = std::make_shared<Request>();
  const size_t n_prompts = submission.prompts == nullptr ? 1 : submission.prompts->size();
  request->unended = submission.n * std::max(1, static_cast<int>(n_prompts));
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return {.status = Cancelled("the server is stopping")};
    if (n_waiting_ >= options_.most_queued) return {.outcome = Outcome::kQueueFull};
    ++n_waiting_;
    requests_.insert(request);
  }
  // It waits no longer: it has started, or it never will.
  const auto started = [this, request] {
    const std::lock_guard lock(mutex_);
    if (std::exchange(request->waiting, false)) --n_waiting_;
  };
  const auto ended = [this, request] {
    const std::lock_guard lock(mutex_);
    if (--request->unended == 0) requests_.erase(request);
  };
  submission.for_answer = [started, inner = std::move(submission.for_answer)](int index, OneAnswer& own) {
    if (inner) inner(index, own);
    own.on_start = [started, on_start = std::move(own.on_start)](int n_prompt, int n_cached) {
      started();
      if (on_start) on_start(n_prompt, n_cached);
    };
  };
  submission.on_end = [started, ended, inner = std::move(submission.on_end)](
                          int index, Result<GenerationResult> result) {
    started();  // who never began waits no longer: whoever hears of the end finds its place free
    if (inner) inner(index, std::move(result));
    ended();
  };
  auto id = scheduler_->Submit(std::move(submission));
  if (!id.ok()) {
    const std::lock_guard lock(mutex_);
    --n_waiting_;
    requests_.erase(request);
    return {.status = id.status()};
  }
  {
    const std::lock_guard lock(mutex_);
    request->id = *id;
    has_work_ = true;
  }
  wake_.notify_all();
  return {.outcome = Outcome::kAccepted, .id = *id};
}

void EngineLoop::Cancel(int64_t id) {
  scheduler_->Cancel(id);
  {
    const std::lock_guard lock(mutex_);
    has_work_ = true;
  }
  wake_.notify_all();
}

void EngineLoop::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_all();
}

int EngineLoop::n_waiting() const {
  const std::lock_guard lock(mutex_);
  return n_waiting_;
}

int EngineLoop::n_unended() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(requests_.size());
}

void EngineLoop::CancelAll() {
  std::vector<int64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& request : requests_) ids.push_back(request->id);
  }
  for (const int64_t id : ids) Cancel(id);
}

bool EngineLoop::IsIdle() const {
  const std::lock_guard lock(mutex_);
  return !stopped_ && !has_work_ && tasks_.empty();
}

void EngineLoop::Run() {
  const auto idle = [this] { return IsIdle(); };
  while (true) {
    if (options_.when_idle && IsIdle()) options_.when_idle(idle);
    std::deque<std::function<void()>> tasks;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopped_ || has_work_ || !tasks_.empty(); });
      // Those that were cancelled hear of it first.
      if (stopped_ && !has_work_ && tasks_.empty()) return;
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
    Round();
  }
}

bool EngineLoop::Round() {
  {
    const std::lock_guard lock(mutex_);
    if (!has_work_) return false;
    has_work_ = false;  // what is submitted or cancelled from here on sets it again
  }
  const auto more = scheduler_->RunRound();
  if (!more.ok() && options_.on_failure) options_.on_failure(more.status());
  if (options_.on_stats) options_.on_stats(scheduler_->stats());
  if (!more.ok() || *more) {
    const std::lock_guard lock(mutex_);
    has_work_ = true;
  }
  return true;
}

}  // namespace longspec::server
