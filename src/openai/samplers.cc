// SPDX-License-Identifier: Apache-2.0
#include "openai/samplers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace longspec::openai {
namespace {

struct Sampler {
  std::string_view name;
  std::string_view alias;
  void (*turn_off)(SamplingOptions*);
  void (*turn_on)(SamplingOptions*) = nullptr;  // null: its options say how much there is of it
};

// In the order in which they run.
constexpr Sampler kOurs[] = {
    {"penalties", "penalties",
     [](SamplingOptions* o) { o->repeat_penalty = 1, o->presence_penalty = 0, o->frequency_penalty = 0; }},
    {"top_k", "top-k", [](SamplingOptions* o) { o->top_k = 0; }},
    {"top_p", "top-p", [](SamplingOptions* o) { o->top_p = 1; }},
    {"min_p", "min-p", [](SamplingOptions* o) { o->min_p = 0; }},
    {"infill", "infill", [](SamplingOptions* o) { o->infill = false; },
     [](SamplingOptions* o) { o->infill = true; }},
    {"temperature", "temp", [](SamplingOptions* o) { o->temperature = 1; }},
};

// Others of llama.cpp.
constexpr std::string_view kTheirs[] = {"dry",     "top_n_sigma", "top-n-sigma", "typ_p",      "typ-p",
                                        "typical", "typical_p",   "xtc",         "adaptive_p", "mirostat"};

constexpr std::pair<char, std::string_view> kLetters[] = {
    {'e', "penalties"},   {'d', "dry"},    {'s', "top_n_sigma"}, {'k', "top_k"},
    {'y', "typ_p"},       {'p', "top_p"},  {'m', "min_p"},       {'x', "xtc"},
    {'t', "temperature"}, {'i', "infill"}, {'a', "adaptive_p"},
};

}  // namespace

Result<SamplersLeft> KeepSamplers(std::span<const std::string> names, SamplingOptions* options) {
  std::array<bool, std::size(kOurs)> listed{};
  SamplersLeft left;
  size_t furthest = 0;
  for (const std::string& name : names) {
    const auto* ours =
        std::ranges::find_if(kOurs, [&](const Sampler& s) { return s.name == name || s.alias == name; });
    if (ours != std::end(kOurs)) {
      const auto at = static_cast<size_t>(ours - kOurs);
      listed[at] = true;
      left.in_order = left.in_order && at >= furthest;
      furthest = std::max(furthest, at);
    } else if (std::ranges::find(kTheirs, name) != std::end(kTheirs)) {
      left.missing.push_back(name);
    } else {
      return InvalidArgument("unknown sampler '" + name + "'; known are " + std::string(kAllSamplers));
    }
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    if (!listed[i]) {
      kOurs[i].turn_off(options);
    } else if (kOurs[i].turn_on != nullptr) {
      kOurs[i].turn_on(options);
    }
  }
  return left;
}

Result<std::vector<std::string>> SamplersOfLetters(std::string_view letters) {
  std::vector<std::string> names;
  for (const char letter : letters) {
    const auto* known = std::ranges::find(kLetters, letter, &std::pair<char, std::string_view>::first);
    if (known == std::end(kLetters))
      return InvalidArgument("unknown sampler '" + std::string(1, letter) +
                             "'; known letters are edskypmxtia");
    names.emplace_back(known->second);
  }
  return names;
}

}  // namespace longspec::openai
