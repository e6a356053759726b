// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp's view of what runs: numbered places. The scheduler knows no such places; here an answer takes
// one when it starts and leaves it its tokens, so that they can be saved, shown and erased by number. A place
// that is asked for by its number may have several answers at once, since nobody has to wait for it; it shows
// the last that began and keeps the tokens of the last that ends. Thread-safe.
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
  // The slot `wanted`, counted round and round as llama.cpp does; -1: a free one if there is one, best one
  // whose tokens begin alike. `prompt` becomes its tokens.
  int Take(int wanted, std::vector<int32_t> prompt, const std::string& task, nlohmann::ordered_json params);
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
    int n_running = 0;  // answers
    std::vector<int32_t> tokens;
    bool busy() const { return n_running > 0; }
    std::string task;
    nlohmann::ordered_json params;
    int n_processed = 0, n_decoded = 0;
    uint64_t used = 0;
  };
  Slot& At(int slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& At(int slot) const { return slots_[static_cast<size_t>(slot)]; }
  int BestFor(const std::vector<int32_t>& prompt) const;

  const int n_ctx_;
  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  uint64_t now_ = 0;
};

}  // namespace longspec::server
