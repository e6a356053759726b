// SPDX-License-Identifier: Apache-2.0
#include "server/workers.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace longspec::server {
namespace {

constexpr int kNice = 5;

}  // namespace

Workers::Workers(int n_threads, size_t most_waiting) : most_waiting_(most_waiting) {
  try {
    for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (...) {
    Stop();
    throw;
  }
}

Workers::~Workers() { Stop(); }

void Workers::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    waiting_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool Workers::Post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(work));
  }
  wake_.notify_one();
  return true;
}

void Workers::Run() {
  // Linux counts this by thread. It is a wish, and its failure no error.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      if (stopped_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace longspec::server
