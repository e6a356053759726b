// SPDX-License-Identifier: Apache-2.0
#include "server/slots.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tuple>
#include <utility>

namespace longspec::server {

// A free one before a busy one, then the one whose tokens begin most alike; of equals the one that has rested
// longest, so that what others left stays there.
int SlotTable::BestFor(const std::vector<int32_t>& prompt) const {
  const auto rank = [&](int slot) {
    const Slot& at = At(slot);
    const auto common = std::ranges::mismatch(at.tokens, prompt).in1 - at.tokens.begin();
    return std::tuple(at.n_running, -common, at.used);
  };
  int best = 0;
  for (int i = 1; i < size(); ++i) {
    if (rank(i) < rank(best)) best = i;
  }
  return best;
}

int SlotTable::Take(int wanted, std::vector<int32_t> prompt, const std::string& task,
                    nlohmann::ordered_json params) {
  const std::lock_guard lock(mutex_);
  const int taken = wanted >= 0 ? wanted % size() : BestFor(prompt);
  Slot& slot = At(taken);
  slot = {.n_running = slot.n_running + 1,
          .tokens = std::move(prompt),
          .task = task,
          .params = std::move(params),
          .used = ++now_};
  return taken;
}

void SlotTable::SetProgress(int slot, int n_processed, int n_decoded) {
  if (slot < 0) return;
  const std::lock_guard lock(mutex_);
  At(slot).n_processed = n_processed;
  At(slot).n_decoded = n_decoded;
}

void SlotTable::Leave(int slot, std::vector<int32_t> tokens) {
  if (slot < 0) return;
  const std::lock_guard lock(mutex_);
  --At(slot).n_running;
  At(slot).tokens = std::move(tokens);
}

bool SlotTable::IsBusy(int slot) const {
  const std::lock_guard lock(mutex_);
  return At(slot).busy();
}

int SlotTable::n_idle() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(slots_, [](const Slot& slot) { return !slot.busy(); }));
}

std::optional<std::vector<int32_t>> SlotTable::Tokens(int slot) const {
  const std::lock_guard lock(mutex_);
  const Slot& at = At(slot);
  if (at.busy()) return std::nullopt;
  return at.tokens;
}

bool SlotTable::SetTokens(int slot, std::vector<int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  Slot& at = At(slot);
  if (at.busy()) return false;
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
                    {"is_processing", slot.busy()},
                    {"id_task", slot.task},
                    {"n_prompt_tokens", slot.tokens.size()},
                    {"n_prompt_tokens_processed", slot.n_processed},
                    {"n_decoded", slot.n_decoded},
                    {"params", slot.params}});
  }
  return json;
}

}  // namespace longspec::server
