// SPDX-License-Identifier: Apache-2.0
#include "policy/pass_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"

namespace longspec {
namespace {

constexpr int kKnownRows = 64;  // of a curve; passes of more are asked for one by one

}  // namespace

PassPart ChainPart(int rows, int computed) { return {.rows = rows, .keys = computed + 1 + (rows - 1) / 2}; }

double PassCost::Curve::Ms(int rows) const {
  if (rows > kKnownRows) return costs_->TargetMs(rows, keys_);
  if (ms_.empty()) {
    ms_.resize(kKnownRows);
    costs_->TargetMs(keys_, ms_);
  }
  return ms_[static_cast<size_t>(rows) - 1];
}

const PassCost::Curve& PassCost::After(int keys) const {
  return curves_.try_emplace(keys, costs_, keys).first->second;
}

double PassCost::Attention(const Curve& after, int rows) const {
  return std::max(0.0, after.Ms(rows) - After(0).Ms(rows));
}

double PassCost::Ms(std::span<const PassPart> parts) const { return GrowingPass(*this, parts).ms(); }

GrowingPass::GrowingPass(const PassCost& cost, std::span<const PassPart> parts)
    : cost_(cost), parts_(parts.begin(), parts.end()), paths_(parts.size()) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    PassPart& part = parts_[i];
    LS_CHECK(part.shared_with < static_cast<int>(i) && part.rows >= 0 && part.keys >= 0);
    int begin = 0;
    if (part.shared_with >= 0) {
      begin = std::min({part.shared_keys, part.keys, parts_[static_cast<size_t>(part.shared_with)].keys});
      const size_t n = PathUpTo(part.shared_with, begin);
      const std::vector<size_t>& other = paths_[static_cast<size_t>(part.shared_with)];
      paths_[i].assign(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(n));
    }
    if (part.keys > begin) {
      paths_[i].push_back(stretches_.size());
      stretches_.push_back({.begin = &cost_.After(begin), .end = &cost_.After(part.keys), .rows = 0});
    }
    CountRows(static_cast<int>(i), part.rows);
  }
}

// The number of stretches of a part's path that end at `keys`, where one is made to end.
size_t GrowingPass::PathUpTo(int part, int keys) {
  const std::vector<size_t>& path = paths_[static_cast<size_t>(part)];
  size_t n = 0;
  while (n < path.size() && stretches_[path[n]].begin->keys() < keys) {
    if (stretches_[path[n]].end->keys() > keys) Split(path[n], keys);
    ++n;
  }
  return n;
}

void GrowingPass::Split(size_t stretch, int at) {
  const size_t rest = stretches_.size();
  stretches_.push_back(stretches_[stretch]);
  stretches_[stretch].end = stretches_[rest].begin = &cost_.After(at);
  for (std::vector<size_t>& path : paths_) {
    const auto found = std::find(path.begin(), path.end(), stretch);
    if (found != path.end()) path.insert(found + 1, rest);
  }
}

void GrowingPass::CountRows(int part, int rows) {
  for (const size_t stretch : paths_[static_cast<size_t>(part)]) stretches_[stretch].rows += rows;
  rows_ += rows;
  if (rows > 0) ++parts_with_rows_;
}

double GrowingPass::Ms(const Stretch& stretch, int rows) const {
  if (rows == 0) return 0;
  return std::max(0.0, cost_.Attention(*stretch.end, rows) - cost_.Attention(*stretch.begin, rows));
}

double GrowingPass::ms() const {
  if (rows_ == 0) return 0;
  if (parts_with_rows_ == 1) {
    const auto part =
        std::find_if(parts_.begin(), parts_.end(), [](const PassPart& p) { return p.rows > 0; });
    return cost_.After(part->keys).Ms(part->rows);
  }
  double ms = cost_.After(0).Ms(rows_);
  for (const Stretch& stretch : stretches_) ms += Ms(stretch, stretch.rows);
  return ms;
}

double GrowingPass::ProductsMs(int more_rows) const {
  if (more_rows <= 0) return 0;
  const PassCost::Curve& products = cost_.After(0);
  return (products.Ms(rows_ + more_rows) - (rows_ == 0 ? 0.0 : products.Ms(rows_))) / more_rows;
}

double GrowingPass::NextAttentionMs(int part) const {
  double ms = 0;
  for (const size_t i : paths_[static_cast<size_t>(part)]) {
    ms += Ms(stretches_[i], stretches_[i].rows + 1) - Ms(stretches_[i], stretches_[i].rows);
  }
  return std::max(0.0, ms);
}

void GrowingPass::AddRow(int part) {
  PassPart& grown = parts_[static_cast<size_t>(part)];
  if (grown.rows++ > 0) --parts_with_rows_;  // counted again
  CountRows(part, 1);
}

bool GrowingPass::Share(int a, int b) const {
  const std::vector<size_t>&x = paths_[static_cast<size_t>(a)], &y = paths_[static_cast<size_t>(b)];
  return !x.empty() && !y.empty() && x.front() == y.front();
}

void ObservePass(std::span<const PassPart> parts, double ms, CostModel* costs) {
  int64_t rows = 0, row_keys = 0;
  for (const PassPart& part : parts) {
    rows += part.rows;
    row_keys += static_cast<int64_t>(part.rows) * part.keys;
  }
  if (rows == 0) return;
  const auto n = static_cast<int>(rows);
  const auto keys = static_cast<int>(std::llround(static_cast<double>(row_keys) / static_cast<double>(rows)));
  const bool alone =
      std::any_of(parts.begin(), parts.end(), [&](const PassPart& part) { return part.rows == n; });
  const double believed = alone ? 1.0 : PassCost(*costs).Ms(parts) / costs->TargetMs(n, keys);
  costs->Observe(n, keys, ms / believed);
}

}  // namespace longspec
