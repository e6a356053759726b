// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include <algorithm>
#include <cctype>
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
    {"-md", "--spec-draft-model", false},
    {"--model-draft", "--spec-draft-model", false},
    {"--n-predict", "--predict", false},
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
    if (const Alias* alias = FindAlias(name); alias != nullptr && !takes_value(name)) {
      option = alias->option;
      if (alias->deprecated) out.warnings.push_back(name + " is called " + option + " here");
    } else if (IsUnknownSingleDash(name)) {
      return InvalidArgument("unknown option " + name);
    }
    out.args.push_back(option + attached);
    if (attached.empty() && takes_value(option) && i + 1 < args.size()) out.args.push_back(args[++i]);
  }
  return out;
}

}  // namespace longspec::cli
