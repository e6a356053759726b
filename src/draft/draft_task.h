// SPDX-License-Identifier: Apache-2.0
//
// Drafting that may have to wait for a pass of its draft model (draft/pass_meeting.h): a coroutine that ends
// with a Status. It begins when it is awaited or started. What never waits is made of its Status.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

#include "base/check.h"
#include "longspec/status.h"

// LS_TRY in a coroutine.
#define LS_CO_TRY(expr)                         \
  do {                                          \
    ::longspec::Status ls_status_ = (expr);     \
    if (!ls_status_.ok()) co_return ls_status_; \
  } while (false)

namespace longspec {

class [[nodiscard]] DraftTask {
 public:
  class promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  // Who awaits a task goes on when it ends.
  struct GoOn {
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle ended) const noexcept;
    void await_resume() const noexcept {}
  };

  class promise_type {
   public:
    DraftTask get_return_object() { return DraftTask(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    GoOn final_suspend() const noexcept { return {}; }
    void return_value(Status status) { status_ = std::move(status); }
    void unhandled_exception() { exception_ = std::current_exception(); }

   private:
    friend class DraftTask;
    Status status_;
    std::exception_ptr exception_;
    std::coroutine_handle<> awaited_by_;
  };

  DraftTask() = default;
  DraftTask(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor): see above
  DraftTask(DraftTask&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), status_(std::move(other.status_)) {}
  DraftTask& operator=(DraftTask&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(status_, other.status_);
    return *this;
  }
  DraftTask(const DraftTask&) = delete;
  DraftTask& operator=(const DraftTask&) = delete;
  ~DraftTask() {
    if (handle_) handle_.destroy();
  }

  // Runs until it ends or waits.
  void Start() {
    if (handle_) handle_.resume();
  }
  bool done() const { return !handle_ || handle_.done(); }
  // What it ended with; throws what it threw. REQUIRES: done()
  Status Result() {
    if (!handle_) return std::move(status_);
    LS_CHECK(handle_.done());
    promise_type& promise = handle_.promise();
    if (promise.exception_) std::rethrow_exception(std::exchange(promise.exception_, nullptr));
    return std::move(promise.status_);
  }

  // co_await: its result.
  bool await_ready() const noexcept { return !handle_; }
  Handle await_suspend(std::coroutine_handle<> waiting) noexcept {
    handle_.promise().awaited_by_ = waiting;
    return handle_;
  }
  Status await_resume() { return Result(); }

 private:
  explicit DraftTask(Handle handle) : handle_(handle) {}

  Handle handle_;  // null: it is what it was made of
  Status status_;
};

inline std::coroutine_handle<> DraftTask::GoOn::await_suspend(Handle ended) const noexcept {
  const std::coroutine_handle<> next = ended.promise().awaited_by_;
  return next ? next : std::noop_coroutine();
}

// The result of a task that has nobody to wait for.
inline Status RunNow(DraftTask task) {
  task.Start();
  LS_CHECK(task.done());
  return task.Result();
}

}  // namespace longspec
