// SPDX-License-Identifier: Apache-2.0
//
// A session of an engine, and the file that it is saved in: tokens, keys and values, what drafts have learned
// of them, the conversation.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/generation.h"
#include "kv/chunk_pool.h"
#include "kv/full_cache.h"
#include "longspec/engine.h"
#include "longspec/status.h"

namespace longspec {

class EngineSession final : public Session {
 public:
  EngineSession(const Engine* engine, std::unique_ptr<FullCache> cache) : engine_(engine) {
    state_.cache = std::move(cache);
  }
  const std::vector<int32_t>& tokens() const override { return state_.tokens; }
  std::vector<Message>& messages() override { return messages_; }
  const std::vector<Message>& messages() const override { return messages_; }
  void Clear() override {
    state_.Clear();
    messages_.clear();
  }

  const Engine* engine() const { return engine_; }
  SessionState& state() { return state_; }
  const SessionState& state() const { return state_; }

 private:
  const Engine* engine_;
  SessionState state_;
  std::vector<Message> messages_;
};

// All that keys and values depend on besides the tokens, by name.
using SessionOwner = std::vector<std::pair<std::string, std::string>>;

Status SaveSessionFile(const EngineSession& session, const SessionOwner& owner, const ChunkPool& pool,
                       const std::string& path);

// Into a session that is empty. Refuses, by what differs, one of another owner or vocabulary, and what its
// cache has no room for.
Status LoadSessionFile(const std::string& path, const SessionOwner& owner, ChunkPool& pool, int n_vocab,
                       EngineSession* session);

}  // namespace longspec
