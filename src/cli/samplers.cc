// SPDX-License-Identifier: Apache-2.0
#include "cli/samplers.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace longspec::cli {
namespace {

struct Sampler {
  std::string_view name;
  std::string_view alias;
  void (*turn_off)(SamplingOptions*);
};

// In the order of kSamplers.
constexpr Sampler kOurs[] = {
    {"penalties", "penalties",
     [](SamplingOptions* o) { o->repeat_penalty = 1, o->presence_penalty = 0, o->frequency_penalty = 0; }},
    {"top_k", "top-k", [](SamplingOptions* o) { o->top_k = 0; }},
    {"top_p", "top-p", [](SamplingOptions* o) { o->top_p = 1; }},
    {"min_p", "min-p", [](SamplingOptions* o) { o->min_p = 0; }},
    {"temperature", "temp", [](SamplingOptions* o) { o->temperature = 1; }},
};

// Others of llama.cpp.
constexpr std::string_view kTheirs[] = {"dry",       "top_n_sigma", "typ_p",  "typ-p",      "typical",
                                        "typical_p", "xtc",         "infill", "adaptive_p", "mirostat"};

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
  std::array<bool, std::size(kOurs)> listed{};
  std::string missing;
  size_t furthest = 0;
  bool in_order = true;
  for (const std::string& name : Split(list)) {
    const auto* ours =
        std::ranges::find_if(kOurs, [&](const Sampler& s) { return s.name == name || s.alias == name; });
    if (ours != std::end(kOurs)) {
      const auto at = static_cast<size_t>(ours - kOurs);
      listed[at] = true;
      in_order = in_order && at >= furthest;
      furthest = std::max(furthest, at);
    } else if (std::ranges::find(kTheirs, name) != std::end(kTheirs)) {
      missing += (missing.empty() ? "" : ", ") + name;
    } else {
      return InvalidArgument("--samplers " + list + ": unknown sampler '" + name + "'; known are " +
                             std::string(kSamplers));
    }
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    if (!listed[i]) kOurs[i].turn_off(options);
  }
  std::vector<std::string> warnings;
  if (!missing.empty()) warnings.push_back("--samplers: left out, not here: " + missing);
  if (!in_order) warnings.push_back("--samplers: they run in the order " + std::string(kSamplers));
  return warnings;
}

}  // namespace longspec::cli
