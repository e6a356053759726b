// SPDX-License-Identifier: Apache-2.0
#include "server/slots.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace longspec::server {
namespace {

constexpr std::ptrdiff_t kMostShown = 256;  // entries of a list, such as biases: slots keep what they show

}  // namespace

int SlotTable::Take(std::vector<int32_t> prompt, const std::string& task, nlohmann::ordered_json params) {
  const std::lock_guard lock(mutex_);
  int best = -1;
  std::ptrdiff_t best_common = -1;
  for (int i = 0; i < size(); ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot.busy) continue;
    const auto common = std::ranges::mismatch(slot.tokens, prompt).in1 - slot.tokens.begin();
    // Of equals the one that has rested longest, so that what others left stays there.
    const bool older =
        best >= 0 && common == best_common && slot.used < slots_[static_cast<size_t>(best)].used;
    if (best < 0 || common > best_common || older) {
      best = i;
      best_common = common;
    }
  }
  if (best < 0) return best;
  for (auto& value : params) {
    if (value.is_array() && std::ssize(value) > kMostShown)
      value.erase(value.begin() + kMostShown, value.end());
  }
  Slot& slot = slots_[static_cast<size_t>(best)];
  slot = {
      .busy = true, .tokens = std::move(prompt), .task = task, .params = std::move(params), .used = ++now_};
  return best;
}

void SlotTable::SetProgress(int slot, int n_processed, int n_decoded) {
  if (slot < 0) return;
  const std::lock_guard lock(mutex_);
  slots_[static_cast<size_t>(slot)].n_processed = n_processed;
  slots_[static_cast<size_t>(slot)].n_decoded = n_decoded;
}

void SlotTable::Leave(int slot, std::vector<int32_t> tokens) {
  if (slot < 0) return;
  const std::lock_guard lock(mutex_);
  Slot& left = slots_[static_cast<size_t>(slot)];
  left.busy = false;
  left.tokens = std::move(tokens);
}

bool SlotTable::IsBusy(int slot) const {
  const std::lock_guard lock(mutex_);
  return slots_[static_cast<size_t>(slot)].busy;
}

int SlotTable::n_idle() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(slots_, [](const Slot& slot) { return !slot.busy; }));
}

std::optional<std::vector<int32_t>> SlotTable::Tokens(int slot) const {
  const std::lock_guard lock(mutex_);
  const Slot& at = slots_[static_cast<size_t>(slot)];
  if (at.busy) return std::nullopt;
  return at.tokens;
}

bool SlotTable::SetTokens(int slot, std::vector<int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  Slot& at = slots_[static_cast<size_t>(slot)];
  if (at.busy) return false;
  at.tokens = std::move(tokens);
  at.n_processed = static_cast<int>(at.tokens.size());
  at.n_decoded = 0;
  return true;
}

nlohmann::ordered_json SlotTable::Json() const {
  const std::lock_guard lock(mutex_);
  auto json = nlohmann::ordered_json::array();
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    json.push_back({{"id", i},
                    {"n_ctx", n_ctx_},
                    {"is_processing", slot.busy},
                    {"id_task", slot.task},
                    {"n_prompt_tokens", slot.tokens.size()},
                    {"n_prompt_tokens_processed", slot.n_processed},
                    {"n_decoded", slot.n_decoded},
                    {"params", slot.params}});
  }
  return json;
}

}  // namespace longspec::server
