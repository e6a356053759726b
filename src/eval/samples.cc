// SPDX-License-Identifier: Apache-2.0
#include "eval/samples.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/status_macros.h"
#include "gzip/line_source.h"

namespace longspec {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;  // of a decompressed file
constexpr const char* kEndings[] = {".jsonl", ".jsonl.gz"};

using Json = nlohmann::json;

// A member that is a string; null and absent are "".
Result<std::string> StringOr(const Json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || member->is_null()) return std::string();
  if (!member->is_string()) return Corrupt(std::string("`") + name + "` is not a string");
  return member->get<std::string>();
}

Result<Sample> ParseSample(std::string_view line) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return Corrupt("not a JSON object");
  Sample sample;
  LS_ASSIGN(sample.id, StringOr(object, "id"));
  LS_ASSIGN(sample.text, StringOr(object, "prompt_text"));
  LS_ASSIGN(sample.instruction, StringOr(object, "instruction"));
  LS_ASSIGN(sample.subset, StringOr(object, "subset"));
  LS_ASSIGN(const std::string reference, StringOr(object, "reference"));
  if (!reference.empty()) sample.reference = reference;
  if (sample.id.empty()) return Corrupt("`id` is missing");
  if (sample.text.empty()) return Corrupt("`prompt_text` is missing");
  return sample;
}

}  // namespace

Result<std::vector<std::string>> ListFamilies(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> families;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view ending : kEndings) {
      if (name.size() > ending.size() && name.ends_with(ending)) {
        families.push_back(name.substr(0, name.size() - ending.size()));
      }
    }
  }
  if (error) return IoError("--data " + folder + ": " + error.message());
  if (families.empty()) return NotFound("--data " + folder + ": no .jsonl or .jsonl.gz files");
  std::sort(families.begin(), families.end());
  families.erase(std::unique(families.begin(), families.end()), families.end());
  return families;
}

Result<std::vector<Sample>> ReadFamily(const std::string& folder, const std::string& family) {
  std::string path;
  for (const char* ending : kEndings) {
    std::error_code error;
    path = folder + "/" + family + ending;
    if (std::filesystem::is_regular_file(path, error)) break;
  }
  LS_ASSIGN(const std::unique_ptr<LineSource> lines, OpenLines(path));
  std::vector<Sample> samples;
  size_t n_bytes = 0;
  for (std::string line;;) {
    LS_ASSIGN(const bool more, lines->Next(&line));
    if (!more) break;
    n_bytes += line.size();
    if (n_bytes > kMaxBytes) return ResourceExhausted(path + ": more than 1 GiB of text");
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto sample = ParseSample(line);
    if (!sample.ok()) {
      return Corrupt(path + ":" + std::to_string(lines->line_number()) + ": " + sample.status().message());
    }
    sample->family = family;
    samples.push_back(std::move(*sample));
  }
  if (samples.empty()) return Corrupt(path + ": no samples");
  return samples;
}

}  // namespace longspec
