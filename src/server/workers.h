// SPDX-License-Identifier: Apache-2.0
//
// Threads for work that is too long for the one that serves connections: reading JSON, templates, tokens.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace longspec::server {

class Workers {
 public:
  // They yield to the threads that run the model (nice). Throws std::system_error if one is refused.
  Workers(int n_threads, size_t most_waiting);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // False: too much waits already. Any thread.
  bool Post(std::function<void()> work);
  // Waits for what is being done; what waits is dropped, and nothing more is taken.
  void Stop();

 private:
  void Run();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longspec::server
