// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/infill_prompt.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"
#include "tokenizer/infill_anchor.h"

namespace longspec {
namespace {

using Tokens = std::vector<int32_t>;

constexpr std::string_view kProject = "myproject\n", kFile = "filename\n",
                           kSnippet = "\n\n--- snippet ---\n\n";

Status CheckCanInfill(const TokenizerSpec& spec) {
  std::string missing;
  const auto check = [&missing](int32_t id, const char* name) {
    if (id < 0) missing += (missing.empty() ? "its vocabulary has no token for " : ", ") + std::string(name);
  };
  check(spec.fim_prefix, "a prefix");
  check(spec.fim_suffix, "a suffix");
  check(spec.fim_middle, "a middle");
  if (missing.empty()) return {};
  return Unsupported("infill is not supported by this model: " + missing);
}

void Append(const Tokens& more, Tokens* tokens) { tokens->insert(tokens->end(), more.begin(), more.end()); }

class Layout {
 public:
  Layout(const Tokenizer& tokenizer, const InfillText& text, const InfillLayout& layout)
      : tokenizer_(tokenizer), spec_(tokenizer.spec()), text_(text), layout_(layout) {}

  Tokens Make() const {
    const Tokens prompt = tokenizer_.Encode(text_.prompt, {.add_special = false, .parse_special = true});
    Tokens before = Of(text_.prefix);
    Tokens behind = Of(text_.suffix);
    if (layout_.window > 0) {
      const int64_t quarter = layout_.window / 4;
      KeepWindow(3 * quarter, &before);
      KeepFirst(quarter - 2 - static_cast<int64_t>(prompt.size()), &behind);
    }
    if (layout_.suffix >= 0) KeepFirst(layout_.suffix, &behind);
    before.insert(before.begin(), spec_.fim_prefix);
    Append(prompt, &before);
    behind.insert(behind.begin(), spec_.fim_suffix);

    Tokens tokens = Chunks();
    if (spec_.add_bos && spec_.bos >= 0) tokens.push_back(spec_.bos);
    Append(layout_.suffix_first ? behind : before, &tokens);
    Append(layout_.suffix_first ? before : behind, &tokens);
    tokens.push_back(spec_.fim_middle);
    return tokens;
  }

 private:
  Tokens Of(std::string_view text) const {
    return tokenizer_.Encode(text, {.add_special = false, .parse_special = false});
  }

  static void KeepLast(int64_t n, Tokens* tokens) {
    const auto kept = std::min<int64_t>(n, static_cast<int64_t>(tokens->size()));
    tokens->erase(tokens->begin(), tokens->end() - static_cast<std::ptrdiff_t>(kept));
  }

  static void KeepFirst(int64_t n, Tokens* tokens) {
    tokens->resize(std::min(tokens->size(), static_cast<size_t>(std::max<int64_t>(n, 0))));
  }

  // Of the prefix's tokens at most the last n.
  void KeepWindow(int64_t n, Tokens* tokens) const {
    if (layout_.anchored) {
      const auto anchor = InfillAnchor(tokenizer_, text_.prefix, *tokens, n);
      if (anchor) *tokens = Of(std::string_view(text_.prefix).substr(*anchor));
    }
    KeepLast(n, tokens);
  }

  Tokens Chunks() const {
    Tokens tokens;
    if (!layout_.repository) return tokens;
    if (spec_.fim_repository >= 0) {
      tokens.push_back(spec_.fim_repository);
      Append(Of(kProject), &tokens);
    }
    for (const InfillChunk& chunk : text_.chunks) {
      if (spec_.fim_separator >= 0) {
        tokens.push_back(spec_.fim_separator);
        Append(Of(chunk.filename + "\n"), &tokens);
      } else {
        Append(Of(kSnippet), &tokens);
      }
      Append(Of(chunk.text), &tokens);
    }
    if (spec_.fim_separator >= 0) {
      tokens.push_back(spec_.fim_separator);
      Append(Of(kFile), &tokens);
    }
    if (layout_.context > 0) {
      const int64_t room =
          static_cast<int64_t>(layout_.context) - layout_.window - 2 * int64_t{layout_.n_predict};
      KeepLast(std::max<int64_t>(room, 0), &tokens);
    }
    return tokens;
  }

  const Tokenizer& tokenizer_;
  const TokenizerSpec& spec_;
  const InfillText& text_;
  const InfillLayout& layout_;
};

}  // namespace

Result<std::vector<int32_t>> InfillPrompt(const Tokenizer& tokenizer, const InfillText& text,
                                          const InfillLayout& layout) {
  LS_TRY(CheckCanInfill(tokenizer.spec()));
  return Layout(tokenizer, text, layout).Make();
}

}  // namespace longspec
