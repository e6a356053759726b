// SPDX-License-Identifier: Apache-2.0
#include "jinja/sort.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

struct Keyed {
  Value key;
  size_t position;
};

// Merges the sorted runs [begin, middle) and [middle, end).
Status Merge(Runtime& runtime, bool reverse, const std::vector<Keyed>& from, size_t begin, size_t middle,
             size_t end, std::vector<Keyed>* to) {
  size_t left = begin;
  size_t right = middle;
  for (size_t out = begin; out < end; ++out) {
    bool take_right = left == middle;
    if (left < middle && right < end) {
      const Value& a = from[left].key;
      const Value& b = from[right].key;
      LS_ASSIGN(const std::partial_ordering order, reverse ? Order(runtime, a, b) : Order(runtime, b, a));
      take_right = order < 0;
    }
    (*to)[out] = from[take_right ? right++ : left++];
  }
  return {};
}

}  // namespace

Status SortValues(Runtime& runtime, bool reverse, const SortKey& key, std::vector<Value>* values) {
  std::vector<Keyed> keyed;
  if (!runtime.Charge(4 * values->size())) return runtime.status();
  for (const Value& value : *values) {
    LS_ASSIGN(Value k, key(value));
    keyed.push_back({std::move(k), keyed.size()});
  }
  std::vector<Keyed> merged = keyed;
  for (size_t width = 1; width < keyed.size(); width *= 2) {
    for (size_t begin = 0; begin < keyed.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, keyed.size());
      const size_t end = std::min(begin + 2 * width, keyed.size());
      LS_TRY(Merge(runtime, reverse, keyed, begin, middle, end, &merged));
    }
    std::swap(keyed, merged);
  }
  std::vector<Value> sorted;
  sorted.reserve(values->size());
  for (const Keyed& item : keyed) sorted.push_back((*values)[item.position]);
  *values = std::move(sorted);
  return {};
}

}  // namespace longspec::jinja
