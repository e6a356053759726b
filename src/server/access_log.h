// SPDX-License-Identifier: Apache-2.0
//
// One line for each request and for what else happens: name=value pairs for people, or JSON.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace longspec::server {

enum class LogForm { kText, kJson };

class AccessLog {
 public:
  // `write` gets whole lines, without their end, one at a time.
  AccessLog(LogForm form, std::function<void(const std::string&)> write)
      : form_(form), write_(std::move(write)) {}

  // `fields` is an object of plain values. The time is put before them. Any thread.
  void Write(const nlohmann::ordered_json& fields);

 private:
  const LogForm form_;
  const std::function<void(const std::string&)> write_;
  std::mutex mutex_;
};

// `fields` as a line: name=value, with quotes where a value has other than plain characters.
std::string LogLine(LogForm form, const nlohmann::ordered_json& fields);

}  // namespace longspec::server
