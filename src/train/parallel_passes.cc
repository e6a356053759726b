// SPDX-License-Identifier: Apache-2.0
#include "train/parallel_passes.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace longspec::train {
namespace {

void Add(PassSum part, PassSum* sum) {
  const at::NoGradGuard no_grad;
  sum->gradients.resize(part.gradients.size());
  for (size_t i = 0; i < part.gradients.size(); ++i) {
    if (!part.gradients[i].defined()) continue;
    if (sum->gradients[i].defined()) {
      sum->gradients[i].add_(part.gradients[i]);
    } else {
      sum->gradients[i] = part.gradients[i];
    }
  }
  sum->loss += part.loss;
  sum->rows += part.rows;
  sum->tokens += part.tokens;
  sum->macs += part.macs;
}

class Passes {
 public:
  Passes(int n, const std::function<Result<PassSum>(int)>& pass, PassSum* sum)
      : n_(n), pass_(pass), sum_(sum) {}

  // Runs passes until none is left; after each, `go_on` says whether to.
  template <typename GoOn>
  void Work(const GoOn& go_on) {
    at::set_num_threads(1);
    while (true) {
      const std::optional<int> i = Next();
      if (!i) return;
      try {
        Done(*i, pass_(*i));
      } catch (...) {
        const std::lock_guard lock(mutex_);
        exception_ = std::current_exception();
        stopped_ = true;
      }
      if (!go_on()) Stop();
    }
  }

  // On the caller's thread: the callback may not see a sum that is being added to.
  bool Report(const std::function<bool(const PassSum&)>& on_pass) {
    const std::lock_guard lock(mutex_);
    return stopped_ || added_ == n_ || on_pass(*sum_);
  }

  // When no thread works any more.
  Result<bool> Finish() const {
    if (exception_) std::rethrow_exception(exception_);
    if (!status_.ok()) return status_;
    return added_ == n_;
  }

 private:
  std::optional<int> Next() {
    const std::lock_guard lock(mutex_);
    if (stopped_ || next_ == n_) return std::nullopt;
    return next_++;
  }

  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }

  // In order, whichever pass is done first.
  void Done(int i, Result<PassSum> part) {
    const std::lock_guard lock(mutex_);
    if (!part.ok()) {
      if (status_.ok()) status_ = part.status();
      stopped_ = true;
      return;
    }
    waiting_.emplace(i, std::move(part).value());
    for (auto it = waiting_.begin(); it != waiting_.end() && it->first == added_; it = waiting_.erase(it)) {
      Add(std::move(it->second), sum_);
      ++added_;
    }
  }

  const int n_;
  const std::function<Result<PassSum>(int)>& pass_;
  PassSum* const sum_;
  std::mutex mutex_;
  int next_ = 0, added_ = 0;
  bool stopped_ = false;
  std::map<int, PassSum> waiting_;
  Status status_;
  std::exception_ptr exception_;
};

}  // namespace

Result<bool> RunPasses(int n, int threads, const std::function<Result<PassSum>(int)>& pass,
                       const std::function<bool(const PassSum&)>& on_pass, PassSum* sum) {
  Passes passes(n, pass, sum);
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < std::min(n, threads); ++i) {
      others.emplace_back([&passes] { passes.Work([] { return true; }); });
    }
    passes.Work([&] { return passes.Report(on_pass); });
  }
  return passes.Finish();
}

double PeakGigaMacs(int threads) {
  constexpr int64_t kSize = 512;
  constexpr double kMs = 500.0;
  // More threads than processors share what there is.
  const auto processors = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<double> rates(static_cast<size_t>(std::clamp(threads, 1, processors)));
  {
    std::vector<std::jthread> all;
    for (double& rate : rates) {
      all.emplace_back([&rate] {
        at::set_num_threads(1);
        const at::NoGradGuard no_grad;
        const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
        at::Tensor c = at::mm(a, b);
        const double begun = NowMs();
        double products = 0.0;
        do {
          at::mm_out(c, a, b);
          ++products;
        } while (NowMs() - begun < kMs);
        rate = products * kSize * kSize * kSize / (NowMs() - begun) / 1e6;
      });
    }
  }
  double sum = 0.0;
  for (const double rate : rates) sum += rate;
  return sum;
}

}  // namespace longspec::train
