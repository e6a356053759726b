// SPDX-License-Identifier: Apache-2.0
//
// Counters, gauges and histograms in Prometheus' text format (exposition format 0.0.4). Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace longspec::server {

// {{"drafter", "ngram"}}
using Labels = std::vector<std::pair<std::string, std::string>>;

class Metrics {
 public:
  enum class Kind { kCounter, kGauge, kHistogram };

  // Declared once, before any value is given; shown in this order. `bounds`: of a histogram's buckets,
  // ascending. A metric with no labels is shown from the beginning, as 0.
  void Declare(Kind kind, std::string name, std::string help, std::vector<double> bounds = {},
               bool labelled = false);

  void Add(std::string_view counter, double amount = 1, const Labels& labels = {});
  void Set(std::string_view gauge, double value, const Labels& labels = {});
  void Observe(std::string_view histogram, double value, const Labels& labels = {});

  // REQUIRES: it was declared, and so above.
  double Value(std::string_view name, const Labels& labels = {}) const;  // a histogram's count

  std::string Text() const;

 private:
  struct Series {
    double value = 0;  // a histogram's sum
    std::vector<uint64_t> buckets;
    uint64_t count = 0;
  };
  struct Family {
    Kind kind;
    std::string name, help;
    std::vector<double> bounds;
    std::map<std::string, Series> series;  // by the labels as they are written
  };
  Family& Find(std::string_view name);
  const Family& Find(std::string_view name) const;
  static void Write(const Family& family, std::string* text);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Family>> families_;
  std::map<std::string, Family*, std::less<>> by_name_;
};

// All that the server measures: vLLM's names where it has them, llama.cpp's for speculation, our prefix.
void DeclareServerMetrics(Metrics& metrics);

}  // namespace longspec::server
