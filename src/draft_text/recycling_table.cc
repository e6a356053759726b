// SPDX-License-Identifier: Apache-2.0
#include "draft_text/recycling_table.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "draft/top_logits.h"
#include "formats/atomic_file.h"

namespace longspec {
namespace {

constexpr char kTableMagic[8] = {'L', 'S', 'R', 'E', 'C', 'Y', 'C', 'L'};
constexpr uint32_t kTableVersion = 1;

struct TableHeader {
  char magic[8];
  uint32_t version;
  uint32_t n_candidates;
  uint64_t vocab_size;
};
static_assert(sizeof(TableHeader) == 24);

Status CheckHeader(const std::string& path, std::span<const std::byte> bytes, int vocab_size) {
  TableHeader header = {};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kTableMagic, sizeof(kTableMagic)) != 0) {
    return Corrupt(path + ": not a file that --spec-recycling-file wrote");
  }
  if (header.version != kTableVersion || header.n_candidates != kRecycledCandidates) {
    return Unsupported(path + ": version " + std::to_string(header.version) + " with " +
                       std::to_string(header.n_candidates) +
                       " candidates a token; this program reads version " + std::to_string(kTableVersion) +
                       " with " + std::to_string(kRecycledCandidates));
  }
  if (header.vocab_size != static_cast<uint64_t>(vocab_size)) {
    return InvalidArgument(path + ": made for a vocabulary of " + std::to_string(header.vocab_size) +
                           " tokens; this model has " + std::to_string(vocab_size) +
                           ": name another --spec-recycling-file");
  }
  const size_t expected =
      sizeof(header) + static_cast<size_t>(vocab_size) * kRecycledCandidates * sizeof(int32_t);
  if (bytes.size() != expected) {
    return Corrupt(path + ": " + std::to_string(bytes.size()) + " bytes; must be " +
                   std::to_string(expected));
  }
  return {};
}

}  // namespace

Result<RecyclingTable> RecyclingTable::Load(const std::string& path, int vocab_size) {
  LS_ASSIGN(const MappedFile file, MappedFile::Open(path));
  return Parse(file.bytes(), path, vocab_size);
}

Result<RecyclingTable> RecyclingTable::Parse(std::span<const std::byte> bytes, const std::string& name,
                                             int vocab_size) {
  LS_TRY(CheckHeader(name, bytes, vocab_size));
  RecyclingTable table(vocab_size);
  std::memcpy(table.candidates_.data(), bytes.data() + sizeof(TableHeader),
              table.candidates_.size() * sizeof(int32_t));
  for (const int32_t token : table.candidates_) {
    if (token < kUnknown || token >= vocab_size) {
      return Corrupt(name + ": names token " + std::to_string(token) + ", outside the vocabulary of " +
                     std::to_string(vocab_size));
    }
  }
  return table;
}

std::vector<std::byte> RecyclingTable::Bytes() const {
  TableHeader header = {};
  std::memcpy(header.magic, kTableMagic, sizeof(kTableMagic));
  header.version = kTableVersion;
  header.n_candidates = kRecycledCandidates;
  header.vocab_size = static_cast<uint64_t>(vocab_size());
  const auto candidates = std::as_bytes(std::span(candidates_));
  std::vector<std::byte> bytes(sizeof(header) + candidates.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::ranges::copy(candidates, bytes.begin() + sizeof(header));
  return bytes;
}

Status RecyclingTable::Save(const std::string& path) const {
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  LS_TRY(file.Write(Bytes()));
  return file.Commit();
}

void RecyclingTable::Update(int32_t token, std::span<const float> logits) {
  LS_CHECK(static_cast<int>(logits.size()) == vocab_size() && token >= 0 && token < vocab_size());
  const auto row =
      std::span(candidates_).subspan(static_cast<size_t>(token) * kRecycledCandidates, kRecycledCandidates);
  const int n = TopLogits(logits, row);
  std::fill(row.begin() + n, row.end(), kUnknown);
}

}  // namespace longspec
