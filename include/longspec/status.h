// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: how longspec reports what the world can cause (a file, a request, memory).
// A message is one line that names the file, tensor or option and says what would be right.
// Values; safe to copy and to move between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace longspec {

enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument,    // an option or a request that can never work
  kNotFound,           // a file, tensor or metadata key that is not there
  kCorrupt,            // a file whose bytes contradict themselves
  kUnsupported,        // understood, but not offered
  kResourceExhausted,  // memory, context length or disk
  kIo,                 // the operating system refused
  kCancelled,          // the caller asked to stop
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // kOk
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status Corrupt(std::string m) { return {StatusCode::kCorrupt, std::move(m)}; }
inline Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
inline Status ResourceExhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
inline Status IoError(std::string m) { return {StatusCode::kIo, std::move(m)}; }
inline Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }

// Either a T or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok()
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace longspec
