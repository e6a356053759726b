// SPDX-License-Identifier: Apache-2.0
#include "base/deep_stack.h"

#include <pthread.h>

#include <cstring>
#include <exception>
#include <string>

namespace longspec {
namespace {

struct Task {
  const std::function<void()>& work;
  std::exception_ptr thrown;
};

void* Run(void* argument) {
  Task& task = *static_cast<Task*>(argument);
  try {
    task.work();
  } catch (...) {
    task.thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

Status RunOnDeepStack(size_t bytes, const std::function<void()>& work) {
  Task task{.work = work, .thrown = nullptr};
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error == 0) {
    pthread_t thread;
    error = pthread_attr_setstacksize(&attributes, bytes);
    if (error == 0) error = pthread_create(&thread, &attributes, Run, &task);
    pthread_attr_destroy(&attributes);
    if (error == 0) pthread_join(thread, nullptr);
  }
  if (error != 0) {
    return ResourceExhausted("a thread with " + std::to_string(bytes >> 20) +
                             " MiB of stack: " + std::strerror(error));
  }
  if (task.thrown != nullptr) std::rethrow_exception(task.thrown);
  return {};
}

}  // namespace longspec
