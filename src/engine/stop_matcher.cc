// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_matcher.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace longspec {
namespace {

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

// The first occurrence of `stop` that begins at a character, or npos.
size_t FindStop(const std::string& text, const std::string& stop) {
  size_t at = text.find(stop);
  while (at != std::string::npos && !BeginsCharacter(text[at])) at = text.find(stop, at + 1);
  return at;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) LS_CHECK(!stop.empty());
}

std::string StopMatcher::Push(std::string_view piece) {
  LS_CHECK(!stopped_);
  pending_ += piece;
  size_t first_end = std::string::npos;
  size_t begin = 0;
  for (const std::string& stop : stops_) {
    const size_t at = FindStop(pending_, stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < begin)) {
      first_end = end;
      begin = at;
      matched_ = stop;
    }
  }
  if (first_end != std::string::npos) stopped_ = true;
  const size_t n_final = stopped_ ? begin : HoldBegin();
  std::string text = pending_.substr(0, n_final);
  pending_.erase(0, stopped_ ? std::string::npos : n_final);
  return text;
}

size_t StopMatcher::HoldBegin() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) longest = std::max(longest, stop.size() - 1);
  for (size_t n = std::min(longest, pending_.size()); n > 0; --n) {
    const size_t begin = pending_.size() - n;
    if (!BeginsCharacter(pending_[begin])) continue;
    const std::string_view suffix = std::string_view(pending_).substr(begin);
    const auto may_begin = [suffix](const std::string& stop) { return stop.starts_with(suffix); };
    if (std::any_of(stops_.begin(), stops_.end(), may_begin)) return begin;
  }
  return pending_.size();
}

std::string StopMatcher::Finish() { return std::exchange(pending_, std::string()); }

}  // namespace longspec
