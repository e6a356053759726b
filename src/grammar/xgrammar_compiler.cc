// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "base/deep_stack.h"
#include "base/status_macros.h"
#include "grammar/gbnf.h"
#include "grammar/grammar.h"
#include "grammar/json_schema.h"
#include "grammar/xgrammar_constraint.h"
#include "grammar/xgrammar_guard.h"
#include "json/json_text.h"
#include "pattern/string_rules.h"
#include "xgrammar/compiler.h"
#include "xgrammar/grammar.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarText::Kind;

// Between two signs of JSON. Enough for any indentation, and an answer cannot go on with it for ever.
constexpr int kMostWhiteSpace = 20;
constexpr int kMostTagNesting = 96;
// Measured: a reference takes 2 KiB, with sanitizers more.
constexpr size_t kCompilerStack = size_t{kMostSchemaParts} * (16 << 10);

std::string_view NameOf(Kind kind) {
  switch (kind) {
    case Kind::kGbnf:
      return "grammar";
    case Kind::kRegex:
      return "regex";
    case Kind::kStructuralTag:
      return "structural tag";
    default:
      return "JSON schema";
  }
}

class XgrammarGrammar final : public Grammar {
 public:
  XgrammarGrammar(xgrammar::CompiledGrammar compiled, std::shared_ptr<const GrammarVocabulary> vocabulary,
                  double look_ahead_ms)
      : compiled_(std::move(compiled)), vocabulary_(std::move(vocabulary)), look_ahead_ms_(look_ahead_ms) {}

  Result<std::unique_ptr<Constraint>> NewConstraint() const override {
    try {
      return MakeXgrammarConstraint(compiled_, vocabulary_, look_ahead_ms_);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      return InvalidArgument("the grammar failed: " + XgrammarMessage(error));
    }
  }
  // Masks of tokens come as answers need them.
  size_t bytes() const override { return compiled_.MemorySizeBytes(); }

 private:
  xgrammar::CompiledGrammar compiled_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  double look_ahead_ms_;
};

struct TooDeep {};

constexpr std::string_view kAnyObject = R"({"type": "object"})";

// For xgrammar (grammar/xgrammar_strings.h). `name`: of what has the rules.
Result<std::string> CheckedLine(const StringRules& rules, const std::string& name) {
  PatternWork work;
  const Status compiled = CompileStringRules(rules, work).status();
  if (!compiled.ok()) return Status(compiled.code(), name + ": " + compiled.message());
  return StringRulesLine(rules);
}

// What a regular expression says of a whole text.
Result<std::string> RegexLine(const std::string& regex) {
  if (regex.size() > kMostPatternBytes)
    return ResourceExhausted("regex: it may have " + std::to_string(kMostPatternBytes) + " bytes");
  return CheckedLine({.patterns = {regex}, .full_match = true, .bare = true}, "regex");
}

// What a schema says of a text that stands as it is, without quotation marks, and has no `without` in it, as
// a part of a structural tag. `schema` is one that NormaliseSchema made, or a part of `root`, which is one.
Result<Json> TextByItself(const Json& schema, const Json& root, const std::string& without, int depth = 0) {
  constexpr int kMostWithin = 16;
  const auto type = schema.is_object() ? schema.value("type", "") : "";
  if (type == "string") {
    StringRules rules;
    if (schema.contains("pattern")) rules = ParseStringRulesLine(schema["pattern"].get<std::string>());
    rules.bare = true;
    rules.without = without;
    LS_ASSIGN(std::string line, CheckedLine(rules, "JSON schema"));
    return Json{{"type", "regex"}, {"pattern", std::move(line)}};
  }
  if (type == "null") return Json{{"type", "const_string"}, {"value", "null"}};
  Json options = Json::array();
  if (schema.is_object() && depth < kMostWithin) {
    if (schema.contains("$ref")) {
      const Json::json_pointer at(schema["$ref"].get<std::string>().substr(1));
      return TextByItself(root.at(at), root, without, depth + 1);
    }
    const Json values =
        schema.contains("const") ? Json::array({schema["const"]}) : schema.value("enum", Json::array());
    for (const Json& value : values) {
      const std::string text = value.is_string() ? value.get<std::string>() : WriteJson(value);
      options.push_back({{"type", "const_string"}, {"value", text}});
    }
    for (const char* choice : {"anyOf", "oneOf"}) {
      for (const Json& option : schema.value(choice, Json::array())) {
        LS_ASSIGN(Json part, TextByItself(option, root, without, depth + 1));
        options.push_back(std::move(part));
      }
    }
  }
  if (options.empty()) return Unsupported("JSON schema: what is no text cannot stand as one");
  return Json{{"type", "or"}, {"elements", std::move(options)}};
}

// The schemas and regular expressions within a structural tag, made into ones that can be kept. A part
// {"type": "text", "json_schema": ..., "without": ...} is a text as it is (TextByItself), and of
// {"type": "first_kept", "elements": [...]} the first one is taken that can be kept. Where the tag
// has another one beside its schema, "otherwise", that stands for one that cannot be kept to.
class TagNormaliser {
 public:
  // Whether xgrammar keeps to all of a schema that NormaliseSchema made.
  using KeepsTo = std::function<bool(const std::string& schema)>;
  // `lenient_are_kept`: false where each that has another one beside it becomes that.
  TagNormaliser(bool lenient_are_kept, KeepsTo keeps_to)
      : lenient_are_kept_(lenient_are_kept), keeps_to_(std::move(keeps_to)) {}

  Result<std::string> Run(const std::string& text) {
    try {
      auto read = ReadJson(text, [](int depth, Json::parse_event_t) {
        if (depth > kMostTagNesting) throw TooDeep();
      });
      Json* const tag = std::get_if<Json>(&read);
      if (tag == nullptr) return InvalidArgument("structural tag: not JSON");
      LS_TRY(NormaliseWithin(*tag));
      return WriteJson(*tag);
    } catch (const TooDeep&) {
      return ResourceExhausted("structural tag: more than " + std::to_string(kMostTagNesting) +
                               " brackets within each other");
    }
  }

  // Whether there were schemas that have another one beside them, and were kept.
  bool has_kept_lenient() const { return has_kept_lenient_; }

 private:
  Status NormaliseWithin(Json& tag) {
    if (tag.is_array()) {
      for (Json& element : tag) LS_TRY(NormaliseWithin(element));
    }
    if (!tag.is_object()) return {};
    if (tag.value("type", Json()) == "regex" && tag.contains("pattern") && tag["pattern"].is_string()) {
      LS_ASSIGN(tag["pattern"], RegexLine(tag["pattern"]));
    }
    if (tag.value("type", Json()) == "text") return NormaliseText(tag);
    if (tag.value("type", Json()) == "first_kept") return TakeFirstKept(tag);
    const std::string otherwise = tag.contains("otherwise") ? WriteJson(tag["otherwise"]) : "";
    tag.erase("otherwise");
    for (auto& [key, value] : tag.items()) {
      if ((key != "json_schema" && key != "schema") || value.is_string()) {
        LS_TRY(NormaliseWithin(value));
        continue;
      }
      LS_ASSIGN(const std::string normal,
                otherwise.empty() ? NormaliseSchema(WriteJson(value)) : Lenient(WriteJson(value), otherwise));
      value = std::get<Json>(ReadJson(normal));
    }
    if (tag.contains("json_schema") && tag.contains("type") && !tag.contains("max_whitespace_cnt"))
      tag["max_whitespace_cnt"] = kMostWhiteSpace;
    return {};
  }

  static Status NormaliseText(Json& tag) {
    LS_ASSIGN(const std::string normal, NormaliseSchema(WriteJson(tag.value("json_schema", Json()))));
    const Json schema = std::get<Json>(ReadJson(normal));
    LS_ASSIGN(tag, TextByItself(schema, schema, tag.value("without", "")));
    return {};
  }

  Status TakeFirstKept(Json& tag) {
    const Json elements = tag.value("elements", Json::array());
    for (const Json& element : elements) {
      const bool is_last = &element == &elements.back();
      if (!is_last && !lenient_are_kept_) continue;
      tag = element;
      const Status kept = NormaliseWithin(tag);
      has_kept_lenient_ |= kept.ok() && !is_last;
      if (kept.ok() || is_last || kept.code() == StatusCode::kInvalidArgument) return kept;
    }
    return InvalidArgument("structural tag: first_kept: elements must be a list");
  }

  Result<std::string> Lenient(const std::string& schema, const std::string& otherwise) {
    auto normal = NormaliseSchema(schema);
    if (normal.status().code() == StatusCode::kInvalidArgument) return normal;
    if (!normal.ok() || !lenient_are_kept_ || !keeps_to_(*normal)) return NormaliseSchema(otherwise);
    has_kept_lenient_ = true;
    return normal;
  }

  const bool lenient_are_kept_;
  const KeepsTo keeps_to_;
  bool has_kept_lenient_ = false;
};

class XgrammarCompiler final : public GrammarCompiler {
 public:
  XgrammarCompiler(xgrammar::TokenizerInfo tokens, std::shared_ptr<const GrammarVocabulary> vocabulary,
                   const GrammarLimits& limits)
      : tokens_(std::move(tokens)), vocabulary_(std::move(vocabulary)), limits_(limits) {}

  Result<std::shared_ptr<const Grammar>> Compile(const GrammarText& text) override {
    const std::string key = std::to_string(static_cast<int>(text.kind)) + text.text;
    if (auto known = Known(key)) return known;
    if (text.text.size() > limits_.text_bytes) {
      return ResourceExhausted(std::string(NameOf(text.kind)) + ": " + std::to_string(text.text.size()) +
                               " bytes are more than the " + std::to_string(limits_.text_bytes) +
                               " it may have");
    }
    LS_ASSIGN(std::shared_ptr<const Grammar> grammar,
              text.kind == Kind::kStructuralTag ? CompileTag(text.text) : CompileText(text));
    Keep(key, grammar);
    return grammar;
  }

 private:
  using Compiling = Result<std::shared_ptr<const Grammar>>;

  Compiling CompileText(const GrammarText& text) const {
    const auto prepare = [&]() -> Result<std::string> {
      if (text.kind == Kind::kGbnf) return TranslateGbnf(text.text);
      if (text.kind == Kind::kRegex) return RegexLine(text.text);
      return NormaliseSchema(text.kind == Kind::kJsonObject ? kAnyObject : std::string_view(text.text));
    };
    LS_ASSIGN(const std::string prepared, prepare());
    return CompileWithin(text.kind, prepared);
  }

  // A schema may be one that can be kept alone and is too much beside others.
  Compiling CompileTag(const std::string& text) const {
    TagNormaliser normaliser(true, [this](const std::string& schema) { return KeepsTo(schema); });
    LS_ASSIGN(const std::string tag, normaliser.Run(text));
    auto grammar = CompileWithin(Kind::kStructuralTag, tag);
    if (grammar.ok() || !normaliser.has_kept_lenient()) return grammar;
    LS_ASSIGN(const std::string lenient, TagNormaliser(false, nullptr).Run(text));
    auto with_any_objects = CompileWithin(Kind::kStructuralTag, lenient);
    return with_any_objects.ok() ? with_any_objects : grammar;
  }

  // Whether the rules of a schema can be written as a grammar; what its tokens are takes most of the time.
  bool KeepsTo(const std::string& schema) const {
    bool keeps = false;
    const Status ran = RunOnDeepStack(kCompilerStack, [&] {
      try {
        const XgrammarGuard guard(limits_.compile_ms);
        xgrammar::Grammar::FromJSONSchema(schema, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                                          /*strict_mode=*/true, kMostWhiteSpace);
        keeps = guard.warnings().empty();
      } catch (const std::exception&) {
      }
    });
    return ran.ok() && keeps;
  }

  // xgrammar follows references, each from within the one before: the longest chain has as many as a schema
  // has parts.
  Compiling CompileWithin(Kind kind, const std::string& text) const {
    std::optional<Compiling> grammar;
    const Status ran = RunOnDeepStack(kCompilerStack, [&] { grammar = CompileHere(kind, text); });
    if (!ran.ok()) return ResourceExhausted(std::string(NameOf(kind)) + ": " + ran.message());
    return std::move(*grammar);
  }

  Compiling CompileHere(Kind kind, const std::string& text) const {
    const std::string name(NameOf(kind));
    try {
      const XgrammarGuard guard(limits_.compile_ms);
      xgrammar::GrammarCompiler compiler(tokens_, /*max_threads=*/1, /*cache_enabled=*/false);
      auto grammar = std::make_shared<const XgrammarGrammar>(Compiled(compiler, kind, text), vocabulary_,
                                                             limits_.look_ahead_ms);
      if (!guard.warnings().empty()) {
        return Unsupported(name + ": a rule cannot be kept: " +
                           XgrammarMessage(std::runtime_error(guard.warnings().front())));
      }
      const Status begins = CheckBeginning(*grammar, name);
      guard.CheckTime();  // of the first mask too
      LS_TRY(begins);
      return std::shared_ptr<const Grammar>(std::move(grammar));
    } catch (const XgrammarTimeout&) {
      return ResourceExhausted(name + ": compiling it takes more than " +
                               std::to_string(static_cast<int>(limits_.compile_ms)) + " ms; make it simpler");
    } catch (const std::bad_alloc&) {
      return ResourceExhausted(name + ": out of memory while compiling it");
    } catch (const std::exception& error) {
      return InvalidArgument(name + ": " + XgrammarMessage(error));
    }
  }

  static xgrammar::CompiledGrammar Compiled(xgrammar::GrammarCompiler& compiler, Kind kind,
                                            const std::string& text) {
    if (kind == Kind::kGbnf) return compiler.CompileGrammar(text);
    if (kind == Kind::kRegex) return compiler.CompileRegex(text);
    if (kind == Kind::kStructuralTag) return compiler.CompileStructuralTag(text);
    return compiler.CompileJSONSchema(text, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                                      /*strict_mode=*/true, kMostWhiteSpace);
  }

  // Some token must be able to begin an answer.
  static Status CheckBeginning(const Grammar& grammar, const std::string& name) {
    LS_ASSIGN(const std::unique_ptr<Constraint> constraint, grammar.NewConstraint());
    LS_ASSIGN(const auto mask, constraint->Mask());
    if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) return {};
    return InvalidArgument(name + ": no answer could satisfy it");
  }

  std::shared_ptr<const Grammar> Known(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto at = known_.find(key);
    if (at == known_.end()) return nullptr;
    auto grammar = at->second.lock();
    if (grammar == nullptr) {
      known_.erase(at);
      return nullptr;
    }
    const auto used = std::ranges::find(recent_, grammar);
    if (used != recent_.end()) recent_.erase(used);
    recent_.push_front(grammar);
    return grammar;
  }

  // What was used last is kept, up to a limit; what is in use is known in any case.
  void Keep(const std::string& key, const std::shared_ptr<const Grammar>& grammar) {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    known_[key] = grammar;
    recent_.push_front(grammar);
    size_t bytes = 0;
    std::erase_if(recent_, [&](const auto& kept) { return (bytes += kept->bytes()) > limits_.cached_bytes; });
  }

  const xgrammar::TokenizerInfo tokens_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const GrammarLimits limits_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const Grammar>> known_;  // by kind and text
  std::list<std::shared_ptr<const Grammar>> recent_;           // the last used first
};

}  // namespace

Result<std::unique_ptr<GrammarCompiler>> GrammarCompiler::Create(GrammarVocabulary vocabulary,
                                                                 const GrammarLimits& limits) {
  if (vocabulary.end_tokens.empty())
    return Unsupported("the model has no end token, so an answer with a grammar could not end");
  if (vocabulary.tokens.size() > static_cast<size_t>(vocabulary.n_logits))
    return InvalidArgument("the vocabulary has more tokens than a row has logits");
  try {
    xgrammar::TokenizerInfo tokens(vocabulary.tokens, xgrammar::VocabType::RAW, vocabulary.n_logits,
                                   vocabulary.end_tokens);
    return std::unique_ptr<GrammarCompiler>(std::make_unique<XgrammarCompiler>(
        std::move(tokens), std::make_shared<const GrammarVocabulary>(std::move(vocabulary)), limits));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory while preparing the vocabulary for grammars");
  } catch (const std::exception& error) {
    return InvalidArgument("the vocabulary cannot be used for grammars: " + XgrammarMessage(error));
  }
}

bool HasGrammars() { return true; }

}  // namespace longspec
