// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/status_macros.h"
#include "draft/drafter.h"
#include "engine/drafter_snapshots.h"
#include "formats/session_file.h"
#include "formats/string_list.h"
#include "kernels/ops.h"

namespace longspec {
namespace {

constexpr char kMessagesSection[] = "messages";
constexpr uint32_t kMessagesVersion = 1;

std::vector<std::byte> PackMessages(const std::vector<Message>& messages) {
  std::vector<std::string> strings;
  for (const Message& message : messages) {
    strings.push_back(message.role);
    strings.push_back(message.content);
  }
  return PackStrings(strings);
}

// Those of a session file; none if it has none.
Result<std::vector<Message>> MessagesOf(const SessionContents& saved, const std::string& path) {
  std::vector<Message> messages;
  const SessionSection* section = saved.Find(kMessagesSection);
  if (section == nullptr) return messages;
  const std::string name = path + ": the conversation of the session file";
  if (section->damaged) return Corrupt(name + " is damaged; delete the file, or name another session file");
  if (section->version != kMessagesVersion) {
    return Corrupt(name + " is of version " + std::to_string(section->version) + ", and this program reads " +
                   std::to_string(kMessagesVersion));
  }
  LS_ASSIGN(std::vector<std::string> strings, UnpackStrings(section->bytes, name));
  if (strings.size() % 2 != 0) return Corrupt(name + " ends with a role");
  for (size_t i = 0; i < strings.size(); i += 2) {
    messages.push_back({std::move(strings[i]), std::move(strings[i + 1])});
  }
  return messages;
}

// Of so many positions. Once all chunks of a row were merged one by one, which is the same within a stretch.
SessionOwner OwnerOf(const SessionOwner& owner, int n_positions) {
  SessionOwner of = owner;
  constexpr int kStretch = kernels::kStretchChunks * kernels::kChunk;
  if (n_positions > kStretch) of.emplace_back("attention", "merged by " + std::to_string(kStretch));
  return of;
}

}  // namespace

Status SaveSessionFile(const EngineSession& session, const SessionOwner& owner, const ChunkPool& pool,
                       const std::string& path) {
  const SessionState& state = session.state();
  SessionContents contents{.belongs_to = OwnerOf(owner, state.cache->length()),
                           .tokens = state.tokens,
                           .n_positions = state.cache->length(),
                           .chunk_bytes = pool.chunk_bytes(),
                           .chunk_positions = kKvChunk,
                           .chunks = {},
                           .sections = {}};
  std::vector<std::vector<std::byte>> copies(state.cache->chunks().size());  // of what the host cannot read
  for (size_t i = 0; i < copies.size(); ++i) {
    contents.chunks.push_back(
        pool.mover().Read(state.cache->chunks()[i]->data(), pool.chunk_bytes(), &copies[i]));
  }
  std::vector<DrafterSnapshot> snapshots = state.snapshots;
  if (state.drafter != nullptr && state.drafter->Follow(state.tokens).ok())
    snapshots = state.drafter->Snapshots();
  contents.sections = SectionsOf(snapshots);
  const std::vector<std::byte> messages = PackMessages(session.messages());
  if (!session.messages().empty()) {
    contents.sections.push_back({.name = kMessagesSection, .version = kMessagesVersion, .bytes = messages});
  }
  return WriteSessionFile(path, contents);
}

Status LoadSessionFile(const std::string& path, const SessionOwner& owner, ChunkPool& pool, int n_vocab,
                       EngineSession* session) {
  LS_ASSIGN(const SessionFile file, ReadSessionFile(path));
  const SessionContents& saved = file.contents;
  LS_TRY(CheckBelongs(saved, OwnerOf(owner, saved.n_positions), path));
  const auto n_tokens = static_cast<int>(saved.tokens.size());
  const int n_ctx = session->state().cache->capacity();
  if (n_tokens > n_ctx) {
    return ResourceExhausted(path + ": the session has " + std::to_string(n_tokens) +
                             " tokens, and the context holds " + std::to_string(n_ctx) +
                             ": load with a context size (-c) of at least " + std::to_string(n_tokens));
  }
  const bool fits =
      saved.chunk_bytes == pool.chunk_bytes() && saved.chunk_positions == kKvChunk &&
      std::ranges::all_of(saved.tokens, [n_vocab](int32_t token) { return token >= 0 && token < n_vocab; });
  if (!fits) return Corrupt(path + ": the session's tokens or chunks are none of this model's");
  LS_ASSIGN(session->messages(), MessagesOf(saved, path));
  std::vector<KvChunkRef> chunks;
  for (const auto& bytes : saved.chunks) {
    LS_ASSIGN(KvChunkRef chunk, pool.Take());
    pool.mover().Write(bytes, chunk->data());
    chunks.push_back(std::move(chunk));
  }
  SessionState& state = session->state();
  state.tokens = saved.tokens;
  state.snapshots = SnapshotsOf(saved, &state.draft_notice);
  state.cache->Adopt(chunks, saved.n_positions);
  return {};
}

}  // namespace longspec
