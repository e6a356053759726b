// SPDX-License-Identifier: Apache-2.0
#include "cli/samplers.h"

#include <algorithm>

namespace longspec::cli {
namespace {

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(';', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> ApplySamplers(const std::string& list, SamplingOptions* options) {
  const auto left = api::KeepSamplers(Split(list), options);
  if (!left.ok()) return InvalidArgument("--samplers " + list + ": " + left.status().message());
  std::vector<std::string> warnings;
  std::string missing;
  for (const std::string& name : left->missing) missing += (missing.empty() ? "" : ", ") + name;
  if (!missing.empty()) warnings.push_back("--samplers: left out, not here: " + missing);
  if (!left->in_order) warnings.push_back("--samplers: they run in the order " + std::string(kAllSamplers));
  return warnings;
}

}  // namespace longspec::cli
