// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pretokenizer.h"

#include <cstdint>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/status_macros.h"

namespace longspec {
namespace {

// The patterns write white space as \s inside a class, which stands for this: Unicode's White_Space property.
// PCRE2's own \s holds U+180E too, which the libraries these tokenizers were trained with do not count.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

constexpr char kDigit[] = R"(\p{N})";
constexpr char kDigits[] = R"(\p{N}+)";
constexpr char kUpToThreeDigits[] = R"(\p{N}{1,3})";
constexpr char kThreeAsciiDigits[] = "[0-9][0-9][0-9]";
constexpr char kPunctuation[] = R"([\p{P}$+<=>^~|]+)";
constexpr char kPunctuationAndBacktick[] = R"([\p{P}$+<=>^~|`]+)";
constexpr char kChineseAndKana[] = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";

// A run of white space leaves its last character to the word that follows, if there is one.
constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[\s]+(?![^\s])|[\s]+)";

// Llama 3, Qwen 2 and MiniCPM 5 differ in how many digits make a piece; Qwen 3.5 counts marks as letters.
constexpr char kLlama3[] =
    R"('(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
constexpr char kQwen2[] =
    R"('(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
constexpr char kMiniCpm5[] =
    R"('(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+)"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
constexpr char kQwen35[] =
    R"('(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";

// These cut words where lower case turns to upper case.
constexpr char kTekken[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
constexpr char kGpt4o[] = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                          R"((?:'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?)"
                          R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                          R"((?:'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?|\p{N}{1,3})"
                          R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";

constexpr char kDeepseekV3[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";

struct Recipe {
  const char* name;
  const char* patterns[4];
  bool ignores_merges = false;
  bool adds_bos = false;
};

constexpr Recipe kRecipes[] = {
    {"default", {kPunctuation, kGpt2, kDigits, kThreeAsciiDigits}},
    {"gpt-2", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"mpt", {kGpt2}},
    {"olmo", {kGpt2}},
    {"jais", {kGpt2}},
    {"exaone4", {kGpt2}},
    {"trillion", {kGpt2}},
    {"granite-docling", {kGpt2}},
    {"gigachat", {kGpt2}},
    {"a.x-4.0", {kGpt2}},
    {"mellum", {kGpt2}},
    {"smollm", {kDigit, kGpt2}},
    {"starcoder", {kDigit, kGpt2}},
    {"refact", {kDigit, kGpt2}},
    {"command-r", {kDigit, kGpt2}},
    {"codeshell", {kDigit, kGpt2}},
    {"exaone", {kDigit, kGpt2}},
    {"minerva-7b", {kDigit, kGpt2}},
    {"mellum2", {kDigit, kGpt2}},
    {"falcon", {kPunctuationAndBacktick, kGpt2, kThreeAsciiDigits}},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"falcon3", {kLlama3}, true, true},
    {"lfm2", {kLlama3}, true, true},
    {"falcon-h1", {kLlama3}, true, true},
    {"pixtral", {kLlama3}, true, true},
    {"midm-2.0", {kLlama3}, true, true},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"glm4", {kLlama3}},
    {"chatglm-bpe", {kLlama3}},
    {"glm5", {kLlama3}, true},
    {"minicpm5", {kUpToThreeDigits, kMiniCpm5}, true},
    {"qwen2", {kQwen2}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"megrez", {kQwen2}},
    {"hunyuan", {kQwen2}},
    {"kormo", {kQwen2}},
    {"f2llmv2", {kQwen2}},
    {"solar-open", {kQwen2}},
    {"grok-2", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"deepseek-v3", {kUpToThreeDigits, kChineseAndKana, kDeepseekV3}},
    {"joyai-llm", {kUpToThreeDigits, kChineseAndKana, kDeepseekV3}},
    {"hunyuan-dense", {kUpToThreeDigits, kChineseAndKana, kDeepseekV3}},
    {"hy_v4", {kUpToThreeDigits, kChineseAndKana, kDeepseekV3}},
    {"tekken", {kTekken}, true, true},
    {"gpt-4o", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"minimax-m2", {kGpt4o}},
    {"kanana2", {kGpt4o}},
    {"talkie", {kGpt4o}},
};

const Recipe* FindRecipe(std::string_view name) {
  for (const Recipe& recipe : kRecipes) {
    if (name == recipe.name) return &recipe;
  }
  return nullptr;
}

std::string WithWhiteSpace(std::string_view pattern) {
  constexpr std::string_view kShort = R"(\s)";
  std::string expanded(pattern);
  for (size_t at = 0; (at = expanded.find(kShort, at)) != std::string::npos; at += kWhiteSpace.size()) {
    expanded.replace(at, kShort.size(), kWhiteSpace);
  }
  return expanded;
}

Result<pcre2_code*> Compile(std::string_view short_pattern) {
  const std::string pattern = WithWhiteSpace(short_pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr);
  if (code == nullptr) {
    char message[120] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return Unsupported(std::string("PCRE2 does not take a pre-tokeniser's pattern (") + message +
                       "); a build with Unicode support is needed");
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, patterns are interpreted
  return code;
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatch>;

bool FindMatch(const pcre2_code* code, std::string_view text, size_t from, pcre2_match_data* match) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  int found = pcre2_match(code, subject, text.size(), from, kOptions, match, nullptr);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(code, subject, text.size(), from, kOptions | PCRE2_NO_JIT, match, nullptr);
  }
  return found > 0;
}

void Cut(const pcre2_code* code, pcre2_match_data* match, std::string_view text,
         std::vector<std::string_view>* pieces) {
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
  size_t done = 0;
  while (done < text.size() && FindMatch(code, text, done, match)) {
    const size_t begin = bounds[0];
    const size_t end = bounds[1];
    if (begin > done) pieces->push_back(text.substr(done, begin - done));
    pieces->push_back(text.substr(begin, end - begin));
    done = end;
  }
  if (done < text.size()) pieces->push_back(text.substr(done));
}

}  // namespace

void Pretokenizer::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

std::vector<std::string> Pretokenizer::Names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : kRecipes) names.emplace_back(recipe.name);
  return names;
}

bool Pretokenizer::AddsBos(std::string_view name) {
  const Recipe* recipe = FindRecipe(name);
  return recipe != nullptr && recipe->adds_bos;
}

Status Pretokenizer::CheckName(std::string_view name) {
  if (FindRecipe(name) != nullptr) return {};
  std::string known;
  for (const std::string& candidate : Names()) known += (known.empty() ? "" : ", ") + candidate;
  return Unsupported("pre-tokeniser '" + std::string(name) + "' is not known; known are: " + known);
}

Result<Pretokenizer> Pretokenizer::Create(std::string_view name) {
  LS_TRY(CheckName(name));
  const Recipe* recipe = FindRecipe(name);
  Pretokenizer pretokenizer;
  pretokenizer.ignores_merges_ = recipe->ignores_merges;
  for (const char* pattern : recipe->patterns) {
    if (pattern == nullptr) break;
    LS_ASSIGN(pcre2_code * code, Compile(pattern));
    pretokenizer.patterns_.emplace_back(code);
  }
  return pretokenizer;
}

void Pretokenizer::Split(std::string_view text, std::vector<std::string_view>* pieces) const {
  if (text.empty()) return;
  const MatchData match(pcre2_match_data_create(1, nullptr));
  std::vector<std::string_view> coarse{text};
  std::vector<std::string_view> fine;
  for (const auto& pattern : patterns_) {
    fine.clear();
    for (const std::string_view piece : coarse) Cut(pattern.get(), match.get(), piece, &fine);
    coarse.swap(fine);
  }
  pieces->insert(pieces->end(), coarse.begin(), coarse.end());
}

}  // namespace longspec
