// SPDX-License-Identifier: Apache-2.0
#include "eval/method.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <variant>

#include "base/status_macros.h"
#include "draft/drafter.h"
#include "draft_model/draft_files.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"

namespace longspec {
namespace {

using Members = std::vector<DrafterOption::Member>;

// What "/WORD" or "/WORD=VALUE" does. `set` is false for a value that cannot be, of which `right` says what
// could.
struct Part {
  std::string_view word;
  bool takes_value = true;
  std::string_view right = {};
  std::function<bool(std::string_view value, Method& method)> set;
  Members options = {};  // of drafters, one of which has to read one of these; none: not asked
};

template <typename Number>
bool Read(std::string_view text, Number least, Number most, Number* number) {
  Number value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size() || !(value >= least && value <= most))
    return false;
  *number = value;
  return true;
}
bool ReadCount(std::string_view text, int* count) {
  return Read(text, 1, std::numeric_limits<int>::max(), count);
}
bool ReadShare(std::string_view text, double* share) { return Read(text, 0.0, 1.0, share); }

bool ReadRefresh(std::string_view text, int* refresh) {
  if (text != "paper") return ReadCount(text, refresh);
  *refresh = 0;
  return true;
}

constexpr std::string_view kCount = "a whole number from 1 on";
constexpr std::string_view kShare = "a number from 0 to 1";

const std::vector<Part>& Parts() {
  using S = SpeculationOptions;
  static const std::vector<Part> parts = {
      {.word = "no-dice",
       .takes_value = false,
       .set = [](auto, Method& m) { return !(m.speculation.dice = false); }},
      {.word = "no-prior",
       .takes_value = false,
       .set =
           [](auto, Method& m) {
             m.speculation.ppm.prior = "none";
             return true;
           },
       .options = {At<&S::ppm, &PpmDraftOptions::prior>}},
      {.word = "extend",
       .takes_value = false,
       .set = [](auto, Method& m) { return m.speculation.spec_extend.enabled = true; },
       .options = {At<&S::spec_extend, &SpecExtendOptions::enabled>}},
      {.word = "extend",
       .right = kCount,
       .set = [](auto text, Method& m) { return ReadCount(text, &m.speculation.spec_extend.chunks); },
       .options = {At<&S::spec_extend, &SpecExtendOptions::chunks>}},
      {.word = "extend-from",
       .right = kCount,
       .set = [](auto text, Method& m) { return ReadCount(text, &m.speculation.spec_extend.from); },
       .options = {At<&S::spec_extend, &SpecExtendOptions::from>}},
      {.word = "budget",
       .right = kCount,
       .set = [](auto text, Method& m) { return ReadCount(text, &m.speculation.partial.budget); },
       .options = {At<&S::partial, &PartialDraftOptions::budget>}},
      {.word = "partial",
       .right = kCount,
       .set = [](auto text, Method& m) { return m.partial.enabled = ReadCount(text, &m.partial.budget); }},
      {.word = "refresh",
       .right = "a whole number from 1 on, or paper",
       .set = [](auto text, Method& m) { return ReadRefresh(text, &m.partial.refresh); }},
      {.word = "reduce",
       .right = "mean, max or last",
       .set =
           [](auto text, Method& m) {
             m.partial.reduce = text;
             return text == "mean" || text == "max" || text == "last";
           }},
      {.word = "accept",
       .right = kShare,
       .set = [](auto text, Method& m) { return ReadShare(text, &m.played.accept); }},
      {.word = "cost",
       .right = kShare,
       .set = [](auto text, Method& m) { return ReadShare(text, &m.played.cost); }},
  };
  return parts;
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> pieces;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    pieces.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

bool Reads(const DrafterEntry& entry, const Members& members) {
  return std::ranges::any_of(entry.options, [&](const DrafterOption& option) {
    return std::ranges::find(members, option.member) != members.end();
  });
}

// The drafters that these options name.
Result<std::vector<const DrafterEntry*>> EntriesOf(const SpeculationOptions& options) {
  std::vector<const DrafterEntry*> entries;
  if (!kPortfolioDrafter.Answers(options.type)) {
    for (const std::string_view name : Split(options.type, ',')) {
      if (const DrafterEntry* entry = FindDrafter(name); entry != nullptr) entries.push_back(entry);
    }
    return entries;
  }
  const DrafterEntry* reader = nullptr;
  if (!options.draft_model.empty()) {
    DraftFiles files;
    LS_ASSIGN(const std::string architecture, files.Architecture(options.draft_model));
    reader = FindReader(architecture);
  }
  for (const DrafterEntry* entry : Drafters()) {
    if (entry->in_auto != nullptr && entry->in_auto(options) && (entry->reads == nullptr || entry == reader))
      entries.push_back(entry);
  }
  return entries;
}

// TYPE[@POLICY][:NODES]
void ReadType(std::string_view name, SpeculationOptions& options) {
  if (const size_t colon = name.rfind(':'); colon != std::string::npos) {
    int nodes = 0;
    if (ReadCount(name.substr(colon + 1), &nodes)) {
      options.draft_n_max = options.adaptive_n_max = nodes;
      name = name.substr(0, colon);
    }
  }
  const size_t at = name.find('@');
  options.type = name.substr(0, at);
  std::ranges::replace(options.type, '+', ',');
  options.policy = at == std::string::npos ? std::string() : name.substr(at + 1);
}

}  // namespace

Result<Method> ReadMethod(const std::string& name, const SpeculationOptions& base) {
  const auto fail = [&](std::string_view piece, const std::string& what) {
    return InvalidArgument("--methods " + name + ": " + std::string(piece) + ": " + what);
  };
  Method method = {.speculation = base, .partial = {}, .played = {}};
  const std::vector<std::string_view> pieces = Split(name, '/');
  ReadType(pieces[0], method.speculation);
  const bool plays = std::ranges::count(Split(method.speculation.type, ','), "replay") > 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i], word = piece.substr(0, piece.find('='));
    const bool has_value = word.size() < piece.size();
    const auto part = std::ranges::find_if(
        Parts(), [&](const Part& p) { return p.word == word && p.takes_value == has_value; });
    if (part == Parts().end()) return fail(piece, "unknown; eval --help says what may follow a drafter");
    if (!part->set(has_value ? piece.substr(word.size() + 1) : "", method))
      return fail(piece, "must be " + std::string(part->right));
    if ((word == "accept" || word == "cost") && !plays)
      return fail(piece, "is of replay, which is not named");
    if (part->options.empty()) continue;
    LS_ASSIGN(const auto entries, EntriesOf(method.speculation));
    if (std::ranges::none_of(entries, [&](const auto* entry) { return Reads(*entry, part->options); }))
      return fail(piece, "is nothing to " + std::string(pieces[0]));
  }
  const PartialVerificationOptions usual;
  if (!method.partial.enabled &&
      (method.partial.refresh != usual.refresh || method.partial.reduce != usual.reduce))
    return fail("refresh and reduce", "are of /partial=BUDGET, which is missing");
  if (method.partial.refresh != 0 && method.partial.reduce != usual.reduce)
    return fail("reduce=" + method.partial.reduce, "is of /refresh=paper: else one query chooses");
  method.speculation = WithoutUnread(method.speculation, base);
  return method;
}

std::string RuleOf(const PartialVerificationOptions& partial) {
  if (!partial.enabled) return "";
  if (partial.refresh == 0) {
    const std::string of = partial.reduce == "last" ? "root's query" : "queries, " + partial.reduce;
    return "SpecPV's modes: chosen by a tree's " + of;
  }
  return "not SpecPV's rule: chosen by one query, every " + std::to_string(partial.refresh) + " positions";
}

std::string RuleOf(const std::string& method) {
  Method read;
  const std::vector<std::string_view> pieces = Split(method, '/');
  for (size_t i = 1; i < pieces.size(); ++i) {
    const std::string_view word = pieces[i].substr(0, pieces[i].find('='));
    for (const Part& part : Parts()) {
      if (part.word == word && word.size() < pieces[i].size())
        static_cast<void>(part.set(pieces[i].substr(word.size() + 1), read));
    }
  }
  return RuleOf(read.partial);
}

}  // namespace longspec
