// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/print.h"

namespace longspec::server {
namespace {

std::string Escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

// drafter="ngram"
std::string Written(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels)
    text += (text.empty() ? "" : ",") + name + "=\"" + Escaped(value) + "\"";
  return text;
}

std::string InBraces(const std::string& labels) { return labels.empty() ? "" : "{" + labels + "}"; }

std::string Number(double value) { return Print("%.17g", value); }
std::string ShortNumber(double value) { return Print("%g", value); }

}  // namespace

void Metrics::Declare(Kind kind, std::string name, std::string help, std::vector<double> bounds,
                      bool labelled) {
  auto family = std::make_unique<Family>();
  family->kind = kind;
  family->name = std::move(name);
  family->help = std::move(help);
  family->bounds = std::move(bounds);
  if (!labelled) family->series[""].buckets.resize(family->bounds.size());
  const std::lock_guard lock(mutex_);
  LS_CHECK(by_name_.emplace(family->name, family.get()).second);
  families_.push_back(std::move(family));
}

const Metrics::Family& Metrics::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  LS_CHECK(found != by_name_.end());
  return *found->second;
}
Metrics::Family& Metrics::Find(std::string_view name) {
  return const_cast<Family&>(std::as_const(*this).Find(name));
}

void Metrics::Add(std::string_view counter, double amount, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Find(counter).series[Written(labels)].value += amount;
}

void Metrics::Set(std::string_view gauge, double value, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Find(gauge).series[Written(labels)].value = value;
}

void Metrics::Observe(std::string_view histogram, double value, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Family& family = Find(histogram);
  Series& series = family.series[Written(labels)];
  series.buckets.resize(family.bounds.size());
  const auto bucket = std::ranges::lower_bound(family.bounds, value) - family.bounds.begin();
  if (bucket < static_cast<std::ptrdiff_t>(family.bounds.size()))
    ++series.buckets[static_cast<size_t>(bucket)];
  ++series.count;
  series.value += value;
}

double Metrics::Value(std::string_view name, const Labels& labels) const {
  const std::lock_guard lock(mutex_);
  const Family& family = Find(name);
  const auto series = family.series.find(Written(labels));
  if (series == family.series.end()) return 0;
  return family.kind == Kind::kHistogram ? static_cast<double>(series->second.count) : series->second.value;
}

void Metrics::Write(const Family& family, std::string* text) {
  const char* kinds[] = {"counter", "gauge", "histogram"};
  *text += "# HELP " + family.name + " " + family.help + "\n# TYPE " + family.name + " " +
           kinds[static_cast<int>(family.kind)] + "\n";
  for (const auto& [labels, series] : family.series) {
    if (family.kind != Kind::kHistogram) {
      *text += family.name + InBraces(labels) + " " + Number(series.value) + "\n";
      continue;
    }
    const std::string before = labels.empty() ? "" : labels + ",";
    uint64_t sum = 0;
    for (size_t i = 0; i < family.bounds.size(); ++i) {
      sum += series.buckets[i];
      *text += family.name + "_bucket{" + before + "le=\"" + ShortNumber(family.bounds[i]) + "\"} " +
               std::to_string(sum) + "\n";
    }
    *text += family.name + "_bucket{" + before + "le=\"+Inf\"} " + std::to_string(series.count) + "\n";
    *text += family.name + "_sum" + InBraces(labels) + " " + Number(series.value) + "\n";
    *text += family.name + "_count" + InBraces(labels) + " " + std::to_string(series.count) + "\n";
  }
}

std::string Metrics::Text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& family : families_) Write(*family, &text);
  return text;
}

void DeclareServerMetrics(Metrics& metrics) {
  using Kind = Metrics::Kind;
  const std::vector<double> seconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                       0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
  const std::vector<double> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  const auto counter = [&](const char* name, const char* help, bool labelled = false) {
    metrics.Declare(Kind::kCounter, name, help, {}, labelled);
  };
  const auto gauge = [&](const char* name, const char* help) { metrics.Declare(Kind::kGauge, name, help); };
  const auto histogram = [&](const char* name, const char* help, const std::vector<double>& bounds) {
    metrics.Declare(Kind::kHistogram, name, help, bounds);
  };
  gauge("longspec:num_requests_running", "Answers that are being written or whose prompts are evaluated");
  gauge("longspec:num_requests_waiting", "Answers that wait for their turn");
  gauge("longspec:kv_cache_usage_perc", "Share of the key-value cache that answers hold");
  counter("longspec:prompt_tokens_total", "Prompt tokens of requests that began");
  counter("longspec:generation_tokens_total", "Generated tokens");
  counter("longspec:prefix_cache_queries_total", "Prompt tokens looked up among those evaluated before");
  counter("longspec:prefix_cache_hits_total", "Prompt tokens found there");
  counter("longspec:num_preemptions_total", "Answers that gave way and computed their keys again");
  counter("longspec:request_success_total", "Answers that ended, by finished_reason", true);
  counter("longspec:request_failure_total", "Requests that were not answered, by HTTP status", true);
  histogram("longspec:time_to_first_token_seconds", "From the request's arrival to its first token", seconds);
  histogram("longspec:inter_token_latency_seconds", "Between two tokens of an answer", seconds);
  histogram("longspec:e2e_request_latency_seconds", "From the request's arrival to the end of an answer",
            seconds);
  histogram("longspec:request_queue_time_seconds", "From the request's arrival to its start", seconds);
  histogram("longspec:request_prompt_tokens", "Tokens of a prompt",
            {1, 16, 64, 256, 1024, 4096, 16384, 65536});
  histogram("longspec:request_generation_tokens", "Tokens of an answer", {1, 16, 64, 256, 1024, 4096, 16384});
  counter("longspec:spec_decode_num_drafts_total", "Rounds in which an answer was written");
  counter("longspec:spec_decode_num_draft_tokens_total", "Guessed tokens that were verified");
  counter("longspec:spec_decode_num_accepted_tokens_total", "Guessed tokens that were accepted");
  counter("longspec:spec_decode_num_accepted_tokens_per_pos_total",
          "Rounds that accepted a guess at this place, by position", true);
  counter("longspec:draft_tokens_total", "Guessed tokens that were verified, by drafter", true);
  counter("longspec:accepted_tokens_total", "Guessed tokens that were accepted, by drafter", true);
  counter("longspec:context_draft_tokens_total", "Guessed tokens that were verified, by context length",
          true);
  counter("longspec:context_accepted_tokens_total", "Guessed tokens that were accepted, by context length",
          true);
  counter("longspec:speculation_rounds_total", "Rounds of answers, by what was decided to guess, and why",
          true);
  histogram("longspec:step_rows", "Rows of a forward pass: prompt tokens, last tokens and guesses", rows);
  histogram("longspec:step_sequences", "Answers in a forward pass", {1, 2, 4, 8, 16, 32, 64});
  histogram("longspec:iteration_tokens_total", "Tokens generated by a forward pass", rows);
  histogram("longspec:step_cost_actual_seconds", "What a forward pass took", seconds);
  histogram("longspec:step_cost_predicted_seconds", "What it was expected to take", seconds);
  gauge("longspec:http_connections", "Open connections");
}

}  // namespace longspec::server
