// SPDX-License-Identifier: Apache-2.0
#include "eval/cell.h"

#include <algorithm>
#include <utility>

#include "api/statistics.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
std::vector<std::pair<std::string, T>> NamedFrom(const Json& json) {
  std::vector<std::pair<std::string, T>> values;
  for (const auto& item : json.items()) values.emplace_back(item.key(), item.value().template get<T>());
  return values;
}

// What an item and the sums of a cell have in common.
template <typename Counts>
void AddCounts(const Counts& of, const std::vector<double>& acceptance_per_position, Json* json) {
  Json& to = *json;
  to["drafted"] = of.drafted;
  to["accepted"] = of.accepted;
  to["ms"] = of.ms;
  to["plain_ms"] = of.plain_ms;
  api::AddRoundTimes(of, json);
  to["draft_bytes"] = of.draft_bytes;
  to["kv_bytes"] = of.kv_bytes;
  to["drafted_at"] = of.drafted_at;
  to["accepted_at"] = of.accepted_at;
  to["acceptance_per_position"] = acceptance_per_position;
}

Json ItemJson(const EvalItem& item) {
  Json json = {{"id", item.id},
               {"subset", item.subset},
               {"prompt_tokens", item.prompt_tokens},
               {"prompt_ms", item.prompt_ms},
               {"plain_prompt_ms", item.plain_prompt_ms},
               {"tokens", item.tokens},
               {"steps", item.steps},
               {"proposed", item.proposed}};
  AddCounts(item, item.acceptance_per_position, &json);
  json["identical"] = item.identical;
  json["approximate"] = item.approximate;
  json["rouge_l_to_exact"] = item.rouge_l_to_exact;
  json["checked"] = item.checked;
  json["differing"] = item.differing;
  json["distinct_4gram"] = item.distinct_4gram;
  json["loops"] = item.loops();
  json["quality"] = api::NamedJson(item.quality);
  json["decisions"] = api::NamedJson(item.decisions);
  json["last_decision"] = item.last_decision;
  json["dice"] = item.dice;
  json["uses"] = api::NamedJson(item.uses);
  return json;
}

EvalItem ItemFrom(const Json& json) {
  EvalItem item;
  json.at("id").get_to(item.id);
  item.subset = json.value("subset", "");  // not in folders of earlier versions
  json.at("prompt_tokens").get_to(item.prompt_tokens);
  json.at("prompt_ms").get_to(item.prompt_ms);
  item.plain_prompt_ms = json.value("plain_prompt_ms", item.prompt_ms);
  json.at("tokens").get_to(item.tokens);
  json.at("steps").get_to(item.steps);
  json.at("proposed").get_to(item.proposed);
  json.at("drafted").get_to(item.drafted);
  json.at("accepted").get_to(item.accepted);
  json.at("ms").get_to(item.ms);
  json.at("plain_ms").get_to(item.plain_ms);
  json.at("draft_ms").get_to(item.draft_ms);
  json.at("target_ms").get_to(item.target_ms);
  json.at("verify_ms").get_to(item.verify_ms);
  json.at("commit_ms").get_to(item.commit_ms);
  json.at("draft_bytes").get_to(item.draft_bytes);
  item.kv_bytes = json.value("kv_bytes", uint64_t{0});
  json.at("acceptance_per_position").get_to(item.acceptance_per_position);
  if (json.contains("drafted_at")) {  // not in folders of earlier versions
    json.at("drafted_at").get_to(item.drafted_at);
    json.at("accepted_at").get_to(item.accepted_at);
  }
  json.at("identical").get_to(item.identical);
  item.approximate = json.value("approximate", false);  // nor these
  item.rouge_l_to_exact = json.value("rouge_l_to_exact", 0.0);
  item.checked = json.value("checked", int64_t{0});
  item.differing = json.value("differing", int64_t{0});
  json.at("distinct_4gram").get_to(item.distinct_4gram);
  json.at("last_decision").get_to(item.last_decision);
  item.quality = NamedFrom<double>(json.at("quality"));
  item.decisions = NamedFrom<int64_t>(json.at("decisions"));
  if (json.contains("dice")) {
    json.at("dice").get_to(item.dice);
    item.uses = NamedFrom<std::string>(json.at("uses"));
  }
  return item;
}

}  // namespace

bool CellKey::is_fixed() const {
  if (const size_t at = method.find('@'); at != std::string::npos)
    return method.compare(at, 6, "@fixed") == 0;
  const std::string_view type = std::string_view(method).substr(0, method.find_first_of(":/"));
  return type != "auto" && type.find('+') == std::string_view::npos;
}

void CellSums::Add(const EvalItem& item, int runs) {
  ++prompts;
  looping += item.loops() ? 1 : 0;
  identical += item.identical ? 1 : 0;
  approximate += item.approximate ? 1 : 0;
  rouge_l_to_exact += item.rouge_l_to_exact;
  checked += item.checked;
  differing += item.differing;
  tokens += item.tokens * runs;
  steps += item.steps;
  drafted += item.drafted;
  accepted += item.accepted;
  ms += item.ms;
  plain_ms += item.plain_ms;
  draft_ms += item.draft_ms;
  target_ms += item.target_ms;
  verify_ms += item.verify_ms;
  commit_ms += item.commit_ms;
  prompt_ms += item.prompt_ms * runs;
  plain_prompt_ms += item.plain_prompt_ms * runs;
  distinct_4gram += item.distinct_4gram;
  speedups += item.speedup();
  acceptance_lengths += item.mean_acceptance_length();
  draft_bytes = std::max(draft_bytes, item.draft_bytes);
  kv_bytes = std::max(kv_bytes, item.kv_bytes);
  AddByPosition(item.drafted_at, drafted_at);
  AddByPosition(item.accepted_at, accepted_at);
}

std::vector<double> CellSums::acceptance_per_position() const {
  return AcceptancePerPosition(drafted_at, accepted_at);
}

void AddByPosition(const std::vector<int64_t>& more, std::vector<int64_t>& sums) {
  sums.resize(std::max(sums.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

Json CellJson(const Cell& cell) {
  CellSums sums;
  Json items = Json::array();
  for (const EvalItem& item : cell.items) {
    sums.Add(item, cell.runs);
    items.push_back(ItemJson(item));
  }
  const auto n = static_cast<double>(cell.items.empty() ? 1 : cell.items.size());
  Json json = {
      {"family", cell.key.family},
      {"length", cell.key.length},
      {"temperature", cell.key.temperature},
      {"method", cell.key.method},
      {"runs", cell.runs},
      {"speedup", sums.speedup()},
      {"macro_speedup", sums.macro_speedup()},
      {"mean_acceptance_length", sums.mean_acceptance_length()},
      {"macro_acceptance_length", sums.macro_acceptance_length()},
      {"tokens_per_second", sums.tokens_per_second()},
      {"plain_tokens_per_second", sums.plain_tokens_per_second()},
      {"prompts", sums.prompts},
      {"identical_share", cell.items.empty() ? Json() : Json(static_cast<double>(sums.identical) / n)},
      {"distinct_4gram", sums.distinct_4gram / n},
      {"looping", sums.looping},
      {"tokens", sums.tokens},
      {"steps", sums.steps}};
  AddCounts(sums, sums.acceptance_per_position(), &json);
  json["items"] = std::move(items);
  return json;
}

Result<Cell> ParseCell(std::string_view line) {
  try {
    const Json json = Json::parse(line);
    Cell cell;
    json.at("family").get_to(cell.key.family);
    json.at("length").get_to(cell.key.length);
    json.at("temperature").get_to(cell.key.temperature);
    json.at("method").get_to(cell.key.method);
    json.at("runs").get_to(cell.runs);
    for (const Json& item : json.at("items")) cell.items.push_back(ItemFrom(item));
    return cell;
  } catch (const Json::exception& error) {
    return Corrupt(std::string("not a cell of an evaluation: ") + error.what());
  }
}

}  // namespace longspec
