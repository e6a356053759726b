// SPDX-License-Identifier: Apache-2.0
#include "server/access_log.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/print.h"

namespace longspec::server {
namespace {

using Json = nlohmann::ordered_json;

bool IsPlain(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return c > ' ' && c < 0x7F && c != '"' && c != '=' && c != '\\';
  });
}

std::string Dump(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

std::string ValueText(const Json& value) {
  if (value.is_string() && IsPlain(value.get_ref<const std::string&>())) return value.get<std::string>();
  if (value.is_number_float()) return Print("%.3f", value.get<double>());
  return Dump(value);
}

// 2026-11-23T08:00:00.123Z
std::string Now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  return text + Print(".%03dZ", static_cast<int>(ms));
}

}  // namespace

std::string LogLine(LogForm form, const Json& fields) {
  if (form == LogForm::kJson) return Dump(fields);
  std::string line;
  for (const auto& [name, value] : fields.items())
    line += (line.empty() ? "" : " ") + name + "=" + ValueText(value);
  return line;
}

void AccessLog::Write(const Json& fields) {
  Json all = {{"time", Now()}};
  for (const auto& [name, value] : fields.items()) all[name] = value;
  const std::string line = LogLine(form_, all);
  const std::lock_guard lock(mutex_);
  write_(line);
}

}  // namespace longspec::server
