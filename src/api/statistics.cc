// SPDX-License-Identifier: Apache-2.0
#include "api/statistics.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

double PerToken(int64_t n, double ms) { return n > 0 ? ms / static_cast<double>(n) : 0.0; }

Json CountsJson(const std::vector<AcceptanceCounts>& counts, bool with_steps) {
  Json json = Json::object();
  for (const AcceptanceCounts& c : counts) {
    Json& entry = json[c.name];
    if (with_steps) entry["steps"] = c.steps;
    entry["drafted"] = c.drafted;
    entry["accepted"] = c.accepted;
    if (with_steps) entry["target_ms"] = c.target_ms;
  }
  return json;
}

Json PolicyJson(const SpeculativeStats& s) {
  return {{"name", s.policy},
          {"decisions", NamedJson(s.decisions)},
          {"last_decision", s.last_decision},
          {"costs", s.costs}};
}

}  // namespace

double PerSecond(int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) * 1000.0 / ms : 0.0; }

const char* ExactnessName(bool lossless) { return lossless ? "lossless" : "approximate"; }

Json TimingsJson(const Timings& t) {
  return {{"cache_n", t.cache_n},
          {"prompt_n", t.prompt_n},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_token_ms", PerToken(t.prompt_n, t.prompt_ms)},
          {"prompt_per_second", PerSecond(t.prompt_n, t.prompt_ms)},
          {"prompt_draft_ms", t.prompt_draft_ms},
          {"predicted_n", t.predicted_n},
          {"predicted_ms", t.predicted_ms},
          {"predicted_per_token_ms", PerToken(t.predicted_n, t.predicted_ms)},
          {"predicted_per_second", PerSecond(t.predicted_n, t.predicted_ms)},
          {"draft_n", t.draft_n},
          {"draft_n_accepted", t.draft_n_accepted}};
}

Json SpeculationJson(const SpeculativeStats& stats) {
  Json json = {{"type", stats.type},
               {"rounds", stats.steps},
               {"mean_acceptance_length", stats.mean_acceptance_length},
               {"by_drafter", Json::array()}};
  for (const AcceptanceCounts& counts : stats.by_drafter) {
    json["by_drafter"].push_back(
        {{"name", counts.name}, {"drafted", counts.drafted}, {"accepted", counts.accepted}});
  }
  if (!stats.notice.empty()) json["notice"] = stats.notice;
  return json;
}

Json FullSpeculationJson(const GenerationResult& result) {
  const SpeculativeStats& s = result.speculative;
  Json json = {{"type", s.type},
               {"steps", s.steps},
               {"mean_acceptance_length", s.mean_acceptance_length},
               {"acceptance_per_position", s.acceptance_per_position},
               {"exactness", ExactnessName(s.lossless)},
               {"distinct_4gram", result.distinct_4gram}};
  AddRoundTimes(s, &json);
  json["proposed"] = s.proposed;
  json["draft_bytes"] = s.draft_bytes;
  json["dice"] = s.dice;
  json["uses"] = NamedJson(s.uses);
  json["policy"] = PolicyJson(s);
  json["by_drafter"] = CountsJson(s.by_drafter, false);
  json["by_context"] = CountsJson(s.by_context, true);
  if (!s.notice.empty()) json["notice"] = s.notice;
  return json;
}

}  // namespace longspec::api
