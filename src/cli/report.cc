// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <array>
#include <cstdio>

#include "api/statistics.h"
#include "base/print.h"
#include "base/utf8.h"
#include "cli/exit_code.h"
#include "engine/memory_plan.h"
#include "json/json_text.h"

namespace longspec::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string TimeLine(const char* label, double ms, int64_t n) {
  const double each = n > 0 ? ms / static_cast<double>(n) : 0.0;
  return Print("%16s = %10.2f ms / %5lld tokens (%8.2f ms per token, %8.2f tokens per second)\n", label, ms,
               static_cast<long long>(n), each, api::PerSecond(n, ms));
}

std::string AcceptanceLine(const GenerationResult& result) {
  const Timings& t = result.timings;
  const double share =
      t.draft_n > 0 ? static_cast<double>(t.draft_n_accepted) / static_cast<double>(t.draft_n) : 0.0;
  std::string line = Print(
      "draft acceptance = %.5f (%5lld accepted / %5lld generated), mean acceptance length = %.2f, acceptance "
      "rate per "
      "position = (",
      share, static_cast<long long>(t.draft_n_accepted), static_cast<long long>(t.draft_n),
      result.speculative.mean_acceptance_length);
  const std::vector<double>& rates = result.speculative.acceptance_per_position;
  for (size_t i = 0; i < rates.size(); ++i) line += Print(i == 0 ? "%.3f" : ", %.3f", rates[i]);
  return line + ")\n";
}

// A model file may name itself with an escape sequence, which must not reach the terminal.
std::string Row(const char* label, const std::string& value) {
  return Print("%-12s ", label) + OneLine(value) + "\n";
}

Json MemoryJson(const MemoryPlan& plan) {
  Json json = {{"ctx_size", plan.ctx_size},
               {"weights", plan.weights},
               {"kv_at_context", plan.kv_at_context},
               {"kv_in_file", plan.kv_in_file},
               {"kv_on_host", plan.kv_on_host},
               {"kv_from_disk", plan.kv_from_disk},
               {"disk_bytes_per_second", plan.disk_bytes_per_second},
               {"scratch", plan.scratch},
               {"draft", plan.draft},
               {"draft_states", plan.draft_keys},
               {"working_set", plan.working_set},
               {"total", plan.total()},
               {"prompt_cache", plan.prompt_cache},
               {"available", plan.available}};
  if (const uint64_t total = HostTotal(plan); total > 0) {
    json["host_draft"] = plan.host_draft;
    json["host_total"] = total;
    json["host_available"] = plan.host_available;
  }
  return json;
}

// What the approximation did.
std::string PartialLine(const PartialVerificationStats& p) {
  return Print(
      "partial verification (approximate): %lld refreshes; of %lld tokens that were checked the whole cache "
      "would "
      "have chosen %lld otherwise\n",
      static_cast<long long>(p.refreshes), static_cast<long long>(p.checked),
      static_cast<long long>(p.differing));
}

// Only what is known.
std::string FormatDisk(const MemoryPlan& plan) {
  if (plan.disk_bytes_per_second <= 0.0) return "";
  std::string text = Print(" (read at %.0f MB/s", plan.disk_bytes_per_second / 1e6);
  if (plan.kv_from_disk > 0) {
    text += "; " + FormatBytes(plan.kv_from_disk) + " have no room in memory" +
            Print(": %.2g s a step", static_cast<double>(plan.kv_from_disk) / plan.disk_bytes_per_second);
  }
  return text + ")";
}

std::string DescribeTemplate(const ModelInfo& info) {
  if (!info.has_chat_template) return "no";
  return info.chat_template_error.empty() ? "yes" : "cannot be used (" + info.chat_template_error + ")";
}

}  // namespace

std::string FormatStatistics(const GenerationResult& result) {
  const Timings& t = result.timings;
  std::string text = TimeLine("prompt eval time", t.prompt_ms, t.prompt_n);
  text += TimeLine("eval time", t.predicted_ms, t.predicted_n);
  text += Print("%16s = %10.2f ms / %5lld tokens", "total time", t.prompt_ms + t.predicted_ms,
                static_cast<long long>(t.prompt_n + t.predicted_n));
  text += t.cache_n > 0 ? Print(" (%lld more from the cache)\n", static_cast<long long>(t.cache_n)) : "\n";
  if (result.speculative.type != "none") text += AcceptanceLine(result);
  text += Print("distinct 4-gram share = %.2f\n", result.distinct_4gram);
  text += "speculation: " + result.speculative.type +
          " (exactness: " + api::ExactnessName(result.speculative.lossless) + ")\n";
  if (result.partial_verification.enabled) text += PartialLine(result.partial_verification);
  if (!result.speculative.notice.empty()) text += "note: " + result.speculative.notice + "\n";
  return text;
}

std::string FormatPolicy(const SpeculativeStats& s) {
  std::string text = "policy: " + s.policy;
  const char* separator = " (";
  for (const auto& [name, rounds] : s.decisions) {
    text += separator + name + Print(" %lld", static_cast<long long>(rounds));
    separator = ", ";
  }
  text += s.decisions.empty() ? "" : " rounds)";
  if (!s.last_decision.empty()) text += ", last " + s.last_decision;
  text += "\n";
  if (s.dice) text += "dice: used\n";
  for (const auto& [name, value] : s.uses) text += name + ": " + value + "\n";
  if (!s.costs.empty()) text += "costs of forward passes: " + s.costs + "\n";
  if (s.draft_bytes > 0) text += "memory for drafting: " + FormatBytes(s.draft_bytes) + "\n";
  for (const AcceptanceCounts& c : s.by_drafter) {
    text += Print("drafter %s: %lld of %lld verified tokens accepted\n", c.name.c_str(),
                  static_cast<long long>(c.accepted), static_cast<long long>(c.drafted));
  }
  for (const AcceptanceCounts& c : s.by_context) {
    text += Print("context %s: %lld rounds of %.2f ms, %lld of %lld verified tokens accepted\n",
                  c.name.c_str(), static_cast<long long>(c.steps), c.target_ms / static_cast<double>(c.steps),
                  static_cast<long long>(c.accepted), static_cast<long long>(c.drafted));
  }
  return text;
}

std::string FormatBriefStatistics(const GenerationResult& result) {
  const Timings& t = result.timings;
  return Print("[%lld tokens, %.1f tokens per second, %.2f per step]\n",
               static_cast<long long>(t.predicted_n), api::PerSecond(t.predicted_n, t.predicted_ms),
               result.speculative.mean_acceptance_length);
}

Json GenerationJson(const GenerationResult& result, const std::string& model) {
  Json json;
  json["text"] = result.text;
  json["tokens"] = result.tokens;
  json["finish_reason"] = ToString(result.finish_reason);
  json["seed"] = result.seed;
  json["timings"] = api::TimingsJson(result.timings);
  json["speculative"] = api::FullSpeculationJson(result);
  if (const PartialVerificationStats& p = result.partial_verification; p.enabled) {
    json["partial_verification"] = {{"approximate", true},
                                    {"refreshes", p.refreshes},
                                    {"checked", p.checked},
                                    {"differing", p.differing},
                                    {"bytes", p.bytes}};
  }
  json["model"] = model;
  return json;
}

std::string FormatMemoryPlan(const MemoryPlan& plan) {
  std::string text =
      FormatBytes(plan.total()) + ": weights " + FormatBytes(plan.weights) + ", KV cache " +
      FormatBytes(plan.kv_at_context) +
      (plan.kv_in_file == 0 ? std::string()
                            : " and " + FormatBytes(plan.kv_in_file) +
                                  (plan.kv_on_host ? " in host memory" : " in a file" + FormatDisk(plan))) +
      " at a context of " + std::to_string(plan.ctx_size) + ", scratch " + FormatBytes(plan.scratch);
  if (plan.draft > 0) text += ", draft model " + FormatBytes(plan.draft);
  if (plan.draft_keys > 0) text += ", texts it keeps " + FormatBytes(plan.draft_keys);
  if (plan.working_set > 0) text += ", working set " + FormatBytes(plan.working_set);
  if (plan.prompt_cache > 0)
    text += "; up to " + FormatBytes(plan.prompt_cache) + " more for earlier prompts";
  if (plan.available > 0) text += "; " + FormatBytes(plan.available) + " available";
  if (const uint64_t kv = HostTotal(plan) - plan.host_draft; plan.host_draft + kv > 0) {
    text += "; in the host's memory: ";
    if (kv > 0) text += "KV cache " + FormatBytes(kv);
    if (plan.host_draft > 0)
      text += (kv > 0 ? ", draft model " : "draft model ") + FormatBytes(plan.host_draft);
    if (plan.host_available > 0) text += ", " + FormatBytes(plan.host_available) + " available";
  }
  return text;
}

std::string FormatInfo(const ModelInfo& info) {
  std::string text = Row("file", info.path + " (" + FormatBytes(info.file_bytes) + ")");
  text += Row("model", info.name + " (" + info.architecture + ", " +
                           Print("%.1f M parameters, ", static_cast<double>(info.n_parameters) / 1e6) +
                           info.file_type + ")");
  text += Row("shape", Print("%d layers, width %d, %d heads over %d KV heads of %d, MLP %d, vocabulary %d",
                             info.n_layer, info.n_embd, info.n_head, info.n_head_kv, info.head_dim, info.n_ff,
                             info.n_vocab));
  const bool is_planned = info.memory.ctx_size > 0;  // else its network does not run
  text += Row("context", is_planned ? Print("%d (trained for %d), RoPE base %.0f, scaling %s", info.n_ctx,
                                            info.n_ctx_train, info.rope_freq_base, info.rope_scaling.c_str())
                                    : Print("trained for %d", info.n_ctx_train));
  text += Row("tokenizer", info.tokenizer_model + ", " + info.tokenizer_pre +
                               ", chat template: " + DescribeTemplate(info));
  text += Row("runs", info.missing.empty() ? "yes" : "no: " + info.missing);
  std::string weights;
  for (const auto& [type, bytes] : info.weight_bytes_by_type) {
    weights += (weights.empty() ? "" : ", ") + type + " " + FormatBytes(bytes);
  }
  text += Row("weights", weights);
  if (!is_planned) return text;
  const bool on_cpu = info.device == "cpu";
  text += Row(on_cpu ? "cpu" : "device", info.cpu);
  std::string tables;
  for (const std::string& name : info.kernels_available) tables += (tables.empty() ? "" : ", ") + name;
  text += Row("kernels", info.kernels + (on_cpu ? " (this CPU has: " + tables + ")" : "") + ", " +
                             std::to_string(info.threads) + (info.threads == 1 ? " thread" : " threads"));
  for (size_t i = 0; i < info.arithmetic.size(); ++i) {
    text += Row(i == 0 ? "arithmetic" : "", info.arithmetic[i].first + ": " + info.arithmetic[i].second);
  }
  return text + Row("memory", FormatMemoryPlan(info.memory));
}

std::string FormatLoad(const ModelInfo& info, double ms) {
  return Row("loaded", Print("in %.2f s, weights ", ms / 1000) + info.weights_origin);
}

Json InfoJson(const ModelInfo& info) {
  Json json = {{"path", info.path},
               {"architecture", info.architecture},
               {"name", info.name},
               {"file_type", info.file_type},
               {"file_bytes", info.file_bytes},
               {"n_parameters", info.n_parameters},
               {"n_layer", info.n_layer},
               {"n_embd", info.n_embd},
               {"n_head", info.n_head},
               {"n_head_kv", info.n_head_kv},
               {"head_dim", info.head_dim},
               {"n_ff", info.n_ff},
               {"n_vocab", info.n_vocab},
               {"n_ctx_train", info.n_ctx_train},
               {"n_ctx", info.n_ctx},
               {"rope_freq_base", info.rope_freq_base},
               {"rope_scaling", info.rope_scaling},
               {"tokenizer_model", info.tokenizer_model},
               {"tokenizer_pre", info.tokenizer_pre},
               {"runs", info.missing.empty()},
               {"missing", info.missing},
               {"has_chat_template", info.has_chat_template},
               {"chat_template_error", info.chat_template_error},
               {"device", info.device},
               {"cpu", info.cpu},
               {"kernels", info.kernels},
               {"kernels_available", info.kernels_available},
               {"threads", info.threads}};
  Json& arithmetic = json["arithmetic"] = Json::object();
  for (const auto& [operation, name] : info.arithmetic) arithmetic[operation] = name;
  Json& weights = json["weight_bytes_by_type"] = Json::object();
  for (const auto& [type, bytes] : info.weight_bytes_by_type) weights[type] = bytes;
  json["memory"] = MemoryJson(info.memory);
  return json;
}

std::string JsonLine(const Json& json) { return WriteJson(json) + "\n"; }

std::string EscapeText(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto byte = static_cast<unsigned char>(bytes[0]);
    const Utf8Step step = ScanUtf8(bytes);
    const size_t length = step.kind == Utf8Kind::kCharacter ? step.length : 0;
    if (length > 1) {
      text += bytes.substr(0, length);
    } else if (bytes[0] == '\n') {
      text += "\\n";
    } else if (bytes[0] == '\t') {
      text += "\\t";
    } else if (bytes[0] == '\r') {
      text += "\\r";
    } else if (bytes[0] == '\\') {
      text += "\\\\";
    } else if (length == 0 || byte < 0x20 || byte == 0x7F) {
      text += Print("\\x%02x", byte);
    } else {
      text += bytes[0];
    }
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return text;
}

}  // namespace longspec::cli
