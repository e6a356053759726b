// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_matcher.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace longspec {
namespace {

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) LS_CHECK(!stop.empty());
}

std::string StopMatcher::PushControl(std::string_view name) {
  names_.push_back({pending_.size(), pending_.size() + name.size()});
  return Push(name);
}

std::string StopMatcher::Push(std::string_view piece) {
  LS_CHECK(!stopped_);
  pending_ += piece;
  size_t first_end = std::string::npos;
  size_t begin = 0;
  for (const std::string& stop : stops_) {
    const size_t at = Find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < begin)) {
      first_end = end;
      begin = at;
      matched_ = stop;
    }
  }
  if (first_end != std::string::npos) stopped_ = true;
  std::string text = TakeText(stopped_ ? begin : HoldBegin());
  if (stopped_) pending_.clear();
  return text;
}

size_t StopMatcher::Find(const std::string& stop) const {
  size_t at = pending_.find(stop);
  while (at != std::string::npos && !(MayBegin(at) && !IsInName(at + stop.size())))
    at = pending_.find(stop, at + 1);
  return at;
}

bool StopMatcher::IsInName(size_t at) const {
  const auto inside = [at](Range name) { return name.begin < at && at < name.end; };
  return std::any_of(names_.begin(), names_.end(), inside);
}

bool StopMatcher::MayBegin(size_t at) const { return BeginsCharacter(pending_[at]) && !IsInName(at); }

size_t StopMatcher::HoldBegin() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) longest = std::max(longest, stop.size() - 1);
  for (size_t n = std::min(longest, pending_.size()); n > 0; --n) {
    const size_t begin = pending_.size() - n;
    if (!MayBegin(begin)) continue;
    const std::string_view suffix = std::string_view(pending_).substr(begin);
    const auto may_begin = [suffix](const std::string& stop) { return stop.starts_with(suffix); };
    if (std::any_of(stops_.begin(), stops_.end(), may_begin)) return begin;
  }
  return pending_.size();
}

std::string StopMatcher::TakeText(size_t n) {
  std::string text;
  size_t done = 0;
  auto name = names_.begin();
  for (; name != names_.end() && name->begin < n; ++name) {
    text += pending_.substr(done, name->begin - done);
    done = name->end;
  }
  text += pending_.substr(done, n - done);
  names_.erase(names_.begin(), name);
  for (Range& left : names_) left = {left.begin - n, left.end - n};
  pending_.erase(0, n);
  return text;
}

std::string StopMatcher::Finish() { return TakeText(pending_.size()); }

}  // namespace longspec
