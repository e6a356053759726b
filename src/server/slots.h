// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp's view of what runs: numbered places, each with one answer at a time. The scheduler knows no such
// places; here an answer takes a free one when it starts and leaves it its tokens, so that they can be saved,
// shown and erased by number. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace longspec::server {

class SlotTable {
 public:
  SlotTable(int n_slots, int n_ctx) : n_ctx_(n_ctx), slots_(static_cast<size_t>(n_slots)) {}

  int size() const { return static_cast<int>(slots_.size()); }
  // A free slot, best one whose tokens begin alike; -1: none is. `prompt` becomes its tokens.
  int Take(std::vector<int32_t> prompt, const std::string& task, nlohmann::ordered_json params);
  void SetProgress(int slot, int n_processed, int n_decoded);
  void Leave(int slot, std::vector<int32_t> tokens);

  bool IsBusy(int slot) const;
  int n_idle() const;
  // Of a slot at rest; nothing while it is busy.
  std::optional<std::vector<int32_t>> Tokens(int slot) const;
  bool SetTokens(int slot, std::vector<int32_t> tokens);  // false: it is busy

  nlohmann::ordered_json Json() const;

 private:
  struct Slot {
    bool busy = false;
    std::vector<int32_t> tokens;
    std::string task;
    nlohmann::ordered_json params;
    int n_processed = 0, n_decoded = 0;
    uint64_t used = 0;
  };
  const int n_ctx_;
  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  uint64_t now_ = 0;
};

}  // namespace longspec::server
