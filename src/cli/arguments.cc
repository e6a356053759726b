// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/status_macros.h"

namespace longspec::cli {
namespace {

struct Alias {
  std::string_view spelling;
  std::string_view option;
  bool deprecated;
};

constexpr Alias kAliases[] = {
    {"-sys", "--system-prompt", false},
    {"-ctk", "--cache-type-k", false},
    {"-ctv", "--cache-type-v", false},
    {"-jf", "--json-schema-file", false},
    {"-md", "--spec-draft-model", false},
    {"-np", "--parallel", false},
    {"--model-draft", "--spec-draft-model", false},
    {"--n-predict", "--predict", false},
    {"-cram", "--cache-ram", false},
    {"--prompt-cache", "--session", true},
    {"-ub", "--batch-size", true},
    {"--ubatch-size", "--batch-size", true},
    // llama.cpp before 2026
    {"--draft", "--spec-draft-n-max", true},
    {"--draft-n", "--spec-draft-n-max", true},
    {"--draft-max", "--spec-draft-n-max", true},
    {"--draft-min", "--spec-draft-n-min", true},
    {"--draft-n-min", "--spec-draft-n-min", true},
    {"--spec-ngram-size-n", "--spec-ngram-max", true},
    {"--spec-ngram-size-m", "--spec-draft-n-max", true},
    {"-cnv", "--chat", true},
    {"--conversation", "--chat", true},
    {"-no-cnv", "--no-chat", true},
    {"--no-conversation", "--no-chat", true},
    // vLLM, SGLang, MLX-LM, transformers
    {"--num-speculative-tokens", "--spec-draft-n-max", true},
    {"--speculative-num-draft-tokens", "--spec-draft-n-max", true},
    {"--num-draft-tokens", "--spec-draft-n-max", true},
    {"--prompt-lookup-num-tokens", "--spec-draft-n-max", true},
    {"--prompt-lookup-max", "--spec-ngram-max", true},
    {"--max-matching-ngram-size", "--spec-ngram-max", true},
    {"--prompt-lookup-min", "--spec-ngram-min", true},
    {"--max-model-len", "--ctx-size", true},
    {"--max-tokens", "--predict", true},
};

// Options of llama.cpp for what is arranged differently here.
struct Foreign {
  enum Value : uint8_t { kNone, kOne, kSwitch };  // kSwitch: on, off or auto, which may be left out
  std::array<std::string_view, 3> spellings;
  std::string_view needs;  // accepted by commands that have this option
  Value value;
  std::array<std::string_view, 2> options;  // given instead, each with the value; none: it has no effect
  std::string_view warning;
};

constexpr Foreign kForeign[] = {
    {{"-tb", "--threads-batch"},
     "--threads",
     Foreign::kOne,
     {},
     "has no effect: prefill and decoding share the threads of --threads"},
    {{"-td", "--threads-draft", "--spec-draft-threads"},
     "--spec-type",
     Foreign::kOne,
     {},
     "has no effect: drafting and decoding share the threads of --threads"},
    {{"-tbd", "--threads-batch-draft", "--spec-draft-threads-batch"},
     "--spec-type",
     Foreign::kOne,
     {},
     "has no effect: drafting and decoding share the threads of --threads"},
    {{"-fa", "--flash-attn"},
     "--cache-type-k",
     Foreign::kSwitch,
     {},
     "has no effect: attention never holds a matrix of scores, so there is nothing to turn on or off"},
    {{"-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"},
     "--spec-type",
     Foreign::kOne,
     {},
     "has no effect: a draft model's cache has the types of --cache-type-k and --cache-type-v"},
    {{"-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"},
     "--spec-type",
     Foreign::kOne,
     {},
     "has no effect: a draft model's cache has the types of --cache-type-k and --cache-type-v"},
    {{"--spec-draft-p-min", "--draft-p-min"},
     "--spec-suffix-min-prob",
     Foreign::kOne,
     {"--spec-suffix-min-prob", "--spec-ppm-min-prob"},
     "sets --spec-suffix-min-prob and --spec-ppm-min-prob; of a draft model the most probable tokens are "
     "taken, "
     "however probable"},
    {{"--spec-draft-p-split", "--draft-p-split"},
     "--spec-tree",
     Foreign::kOne,
     {},
     "has no effect: --spec-tree says how drafts branch"},
    {{"--spec-default"}, "--spec-type", Foreign::kNone, {"--spec-type=auto"}, "is --spec-type auto here"},
};

const Foreign* FindForeign(std::string_view spelling) {
  const auto* it = std::ranges::find_if(kForeign, [spelling](const Foreign& foreign) {
    return std::ranges::find(foreign.spellings, spelling) != foreign.spellings.end();
  });
  return it == std::end(kForeign) ? nullptr : it;
}

bool IsSwitch(std::string_view value) {
  constexpr std::string_view kSwitches[] = {"on", "off",  "auto",  "1",       "0",
                                            "-1", "true", "false", "enabled", "disabled"};
  return std::ranges::find(kSwitches, value) != std::end(kSwitches);
}

// CLI11 would take the next argument for a value that is attached and empty: it becomes an argument of its
// own.
void PushWithValue(std::string_view option, std::string_view attached, std::vector<std::string>* args) {
  const bool empty = attached == "=";
  args->push_back(std::string(option) + std::string(empty ? "" : attached));
  if (empty) args->emplace_back();
}

// What stands for args[i], whose value is attached with '=' or is the next argument; moves i to what was
// used.
void ReplaceForeign(const Foreign& foreign, const std::vector<std::string>& args, size_t& i,
                    NormalizedArguments& out) {
  const size_t equals = args[i].find('=');
  out.warnings.push_back(args[i].substr(0, equals) + " " + std::string(foreign.warning));
  std::string value = equals == std::string::npos ? "" : args[i].substr(equals);
  const bool has_next = value.empty() && i + 1 < args.size();
  if (has_next &&
      (foreign.value == Foreign::kOne || (foreign.value == Foreign::kSwitch && IsSwitch(args[i + 1])))) {
    value = "=" + args[++i];
  }
  for (const std::string_view option : foreign.options) {
    if (!option.empty()) PushWithValue(option, value, &out.args);
  }
}

const Alias* FindAlias(std::string_view spelling) {
  const auto* it = std::find_if(std::begin(kAliases), std::end(kAliases),
                                [spelling](const Alias& alias) { return alias.spelling == spelling; });
  return it == std::end(kAliases) ? nullptr : it;
}

// "-abc" or "-a-b": letters after a single dash. "-n128", "-n-1" and "-m./file" are short options with their
// values.
bool IsUnknownSingleDash(std::string_view name) {
  return name.size() > 2 && name[0] == '-' && name[1] != '-' &&
         std::all_of(name.begin() + 1, name.end(),
                     [](char c) { return c == '-' || std::isalpha(static_cast<unsigned char>(c)) != 0; });
}

}  // namespace

Result<NormalizedArguments> NormalizeArguments(std::vector<std::string> args,
                                               const std::function<bool(const std::string&)>& takes_value) {
  NormalizedArguments out;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg.size() < 2 || arg[0] != '-') {
      out.args.push_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    const std::string attached = equals == std::string::npos ? "" : arg.substr(equals);
    std::string option = name;
    if (const Foreign* foreign = FindForeign(name);
        foreign != nullptr && !takes_value(name) && takes_value(std::string(foreign->needs))) {
      ReplaceForeign(*foreign, args, i, out);
      continue;
    }
    if (const Alias* alias = FindAlias(name); alias != nullptr && !takes_value(name)) {
      option = alias->option;
      if (alias->deprecated) out.warnings.push_back(name + " is called " + option + " here");
    } else if (IsUnknownSingleDash(name)) {
      return InvalidArgument("unknown option " + name);
    }
    const bool valued = takes_value(option);
    if (valued && option.starts_with("--")) {
      PushWithValue(option, attached, &out.args);
    } else {
      out.args.push_back(option + attached);
    }
    if (valued && attached.empty() && i + 1 < args.size()) out.args.push_back(args[++i]);
  }
  return out;
}

}  // namespace longspec::cli
