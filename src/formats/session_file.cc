// SPDX-License-Identifier: Apache-2.0
#include "formats/session_file.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/hash.h"
#include "base/status_macros.h"
#include "formats/atomic_file.h"

namespace longspec {
namespace {

constexpr char kMagic[] = "longspec session";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr uint32_t kVersion = 2;  // 1 knew no sections, and is read as one that has none
constexpr uint32_t kMostText = 1 << 20;
constexpr uint64_t kAlignment = 64;  // of the chunks in the file

// Then the text, the tokens, a record for each section, zeros up to a multiple of 64, the chunks, and the
// bytes of the sections.
struct Header {
  char magic[kMagicBytes];
  uint32_t version, text_bytes;
  uint32_t n_tokens, n_positions;
  uint64_t chunk_bytes;
  uint32_t chunk_positions, n_sections;
  Hash128 rest_hash;    // of all after the header but the bytes of sections
  Hash128 header_hash;  // of all before it
};
static_assert(sizeof(Header) == 80);

struct SectionRecord {
  char name[kMostSectionName + 1];  // ends with a 0
  uint32_t version;
  uint64_t bytes;
  Hash128 hash;
};
static_assert(sizeof(SectionRecord) == 64);

Hash128 HeaderHash(const Header& header) {
  return HashOf(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_hash)));
}

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Of all between the header and the chunks.
uint64_t PrefixBytes(const Header& h) {
  const uint64_t bytes = h.text_bytes + uint64_t{4} * h.n_tokens + sizeof(SectionRecord) * h.n_sections;
  return Aligned(sizeof(Header) + bytes) - sizeof(Header);
}

uint64_t NumberOfChunks(const Header& h) {
  return h.chunk_positions == 0 ? 0 : (uint64_t{h.n_positions} + h.chunk_positions - 1) / h.chunk_positions;
}

// Between the header and the chunks.
uint64_t RecordAt(const Header& h, uint32_t section) {
  return h.text_bytes + uint64_t{4} * h.n_tokens + sizeof(SectionRecord) * section;
}

// A hash of hashes, so that gigabytes need not lie together.
class PartsHash {
 public:
  void Add(std::span<const std::byte> bytes) { parts_.push_back(HashOf(bytes)); }
  Hash128 Value() const { return HashOf(std::as_bytes(std::span(parts_))); }

 private:
  std::vector<Hash128> parts_;
};

Status Damaged(const std::string& name, const std::string& what) {
  return Corrupt(name + ": " + what + "; delete it, or name another session file");
}

// The sections' names and sizes, without their bytes. `most`: bytes that the file has for them.
Result<std::vector<SectionRecord>> ReadRecords(const Header& h, std::span<const std::byte> prefix,
                                               uint64_t most, const std::string& name) {
  std::vector<SectionRecord> records(h.n_sections);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < h.n_sections; ++i) {
    SectionRecord& record = records[i];
    std::memcpy(&record, prefix.data() + RecordAt(h, i), sizeof(record));
    const bool named = record.name[0] != 0 && record.name[kMostSectionName] == 0;
    const bool again = std::any_of(records.begin(), records.begin() + i, [&](const SectionRecord& other) {
      return std::strcmp(other.name, record.name) == 0;
    });
    if (!named || again || record.bytes > most - bytes) {
      return Damaged(name, "the session file says impossible sections");
    }
    bytes += record.bytes;
  }
  return records;
}

// kInvalidArgument if the format has no room for it.
Result<SectionRecord> RecordOf(const SessionSection& section, const std::string& path) {
  if (section.name.empty() || section.name.size() > kMostSectionName) {
    return InvalidArgument(path + ": a session section's name has " + std::to_string(section.name.size()) +
                           " bytes, and may have 1 to " + std::to_string(kMostSectionName));
  }
  SectionRecord record{
      .name = {}, .version = section.version, .bytes = section.bytes.size(), .hash = HashOf(section.bytes)};
  std::ranges::copy(section.name, record.name);
  return record;
}

}  // namespace

const SessionSection* SessionContents::Find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(sections, [name](const SessionSection& s) { return s.name == name; });
  return found == sections.end() ? nullptr : &*found;
}

Status WriteSessionFile(const std::string& path, const SessionContents& contents) {
  std::string text;
  for (const auto& [key, value] : contents.belongs_to) text += key + "\n" + value + "\n";
  if (text.size() > kMostText || contents.tokens.size() > std::numeric_limits<int32_t>::max() ||
      contents.sections.size() > kMostSections) {
    return InvalidArgument(path + ": the session is too large for its format");
  }
  uint64_t section_bytes = 0;
  std::vector<SectionRecord> records;
  for (const SessionSection& section : contents.sections) {
    LS_ASSIGN(SectionRecord record, RecordOf(section, path));
    section_bytes += record.bytes;
    records.push_back(record);
  }
  Header header{};
  std::memcpy(header.magic, kMagic, kMagicBytes);
  header.version = kVersion;
  header.text_bytes = static_cast<uint32_t>(text.size());
  header.n_tokens = static_cast<uint32_t>(contents.tokens.size());
  header.n_positions = static_cast<uint32_t>(contents.n_positions);
  header.chunk_bytes = contents.chunk_bytes;
  header.chunk_positions = static_cast<uint32_t>(contents.chunk_positions);
  header.n_sections = static_cast<uint32_t>(records.size());
  std::vector<std::byte> prefix(PrefixBytes(header));
  auto end = prefix.begin();
  for (const auto part : {std::as_bytes(std::span(text)), std::as_bytes(std::span(contents.tokens)),
                          std::as_bytes(std::span(records))}) {
    end = std::ranges::copy(part, end).out;
  }
  PartsHash hash;
  hash.Add(prefix);
  for (const auto& chunk : contents.chunks) hash.Add(chunk);
  header.rest_hash = hash.Value();
  header.header_hash = HeaderHash(header);

  const uint64_t bytes =
      sizeof(Header) + prefix.size() + contents.chunks.size() * contents.chunk_bytes + section_bytes;
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(path, bytes));
  LS_TRY(file.Write(std::as_bytes(std::span(&header, 1))));
  LS_TRY(file.Write(prefix));
  for (const auto& chunk : contents.chunks) LS_TRY(file.Write(chunk));
  for (const SessionSection& section : contents.sections) LS_TRY(file.Write(section.bytes));
  return file.Commit();
}

Result<SessionContents> ParseSession(std::span<const std::byte> bytes, const std::string& name) {
  Header h;
  if (bytes.size() < sizeof(h)) return Damaged(name, "is no session file");
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (std::memcmp(h.magic, kMagic, kMagicBytes) != 0) return Damaged(name, "is no session file");
  if (h.version < 1 || h.version > kVersion) {
    return Damaged(name, "is a session file of format version " + std::to_string(h.version) +
                             ", and this program reads 1 to " + std::to_string(kVersion));
  }
  if (h.header_hash != HeaderHash(h)) return Damaged(name, "the header of the session file is damaged");
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  if (h.version == 1) h.n_sections = 0;
  const uint64_t n_chunks = NumberOfChunks(h);
  if (h.text_bytes > kMostText || h.n_tokens > kMost || h.n_positions > h.n_tokens ||
      h.chunk_positions == 0 || h.chunk_positions > kMost || h.n_sections > kMostSections ||
      (n_chunks > 0 && h.chunk_bytes > bytes.size() / n_chunks)) {
    return Damaged(name, "the session file says impossible sizes");
  }
  const uint64_t prefix_bytes = PrefixBytes(h),
                 before_sections = sizeof(h) + prefix_bytes + n_chunks * h.chunk_bytes;
  uint64_t expected = before_sections;
  std::vector<SectionRecord> records;
  if (h.n_sections > 0 && before_sections <= bytes.size()) {
    LS_ASSIGN(records,
              ReadRecords(h, bytes.subspan(sizeof(h), prefix_bytes), bytes.size() - before_sections, name));
    for (const SectionRecord& record : records) expected += record.bytes;
  }
  if (expected != bytes.size()) {
    return Damaged(name, "the session file has " + std::to_string(bytes.size()) + " bytes instead of " +
                             std::to_string(expected));
  }
  SessionContents contents;
  contents.n_positions = static_cast<int>(h.n_positions);
  contents.chunk_bytes = h.chunk_bytes;
  contents.chunk_positions = static_cast<int>(h.chunk_positions);
  const auto prefix = bytes.subspan(sizeof(h), prefix_bytes);
  PartsHash hash;
  hash.Add(prefix);
  for (uint64_t i = 0; i < n_chunks; ++i) {
    contents.chunks.push_back(bytes.subspan(sizeof(h) + prefix_bytes + i * h.chunk_bytes, h.chunk_bytes));
    hash.Add(contents.chunks.back());
  }
  if (hash.Value() != h.rest_hash) return Damaged(name, "the session file is damaged");
  const std::string text(reinterpret_cast<const char*>(prefix.data()), h.text_bytes);
  for (size_t at = 0; at < text.size();) {
    const size_t key_end = text.find('\n', at);
    const size_t value_end = key_end == std::string::npos ? key_end : text.find('\n', key_end + 1);
    if (value_end == std::string::npos)
      return Damaged(name, "the session file does not say what it belongs to");
    contents.belongs_to.emplace_back(text.substr(at, key_end - at),
                                     text.substr(key_end + 1, value_end - key_end - 1));
    at = value_end + 1;
  }
  uint64_t at = before_sections;
  for (const SectionRecord& record : records) {
    const auto section = bytes.subspan(at, record.bytes);
    contents.sections.push_back({.name = record.name,
                                 .version = record.version,
                                 .bytes = section,
                                 .damaged = HashOf(section) != record.hash});
    at += record.bytes;
  }
  contents.tokens.resize(h.n_tokens);
  std::ranges::copy(prefix.subspan(h.text_bytes, uint64_t{4} * h.n_tokens),
                    std::as_writable_bytes(std::span(contents.tokens)).begin());
  return contents;
}

void SealSession(std::span<std::byte> bytes) {
  Header h;
  if (bytes.size() < sizeof(h)) return;
  std::memcpy(&h, bytes.data(), sizeof(h));
  std::memcpy(h.magic, kMagic, kMagicBytes);
  if (h.version != 1) h.version = kVersion;
  Header as_read = h;
  if (h.version == 1) as_read.n_sections = 0;
  const std::span<std::byte> rest = bytes.subspan(sizeof(h));
  const uint64_t prefix_bytes = std::min<uint64_t>(PrefixBytes(as_read), rest.size());
  std::vector<std::span<const std::byte>> chunks;
  const uint64_t n_chunks = NumberOfChunks(h);
  uint64_t at = prefix_bytes;
  while (chunks.size() < n_chunks && at < rest.size()) {
    chunks.push_back(rest.subspan(at, std::min<uint64_t>(h.chunk_bytes, rest.size() - at)));
    at += std::max<uint64_t>(chunks.back().size(), 1);
  }
  for (uint32_t i = 0; i < as_read.n_sections; ++i) {
    const uint64_t record_at = RecordAt(h, i);
    if (record_at + sizeof(SectionRecord) > prefix_bytes || at >= rest.size()) break;
    SectionRecord record;
    std::memcpy(&record, rest.data() + record_at, sizeof(record));
    record.hash = HashOf(rest.subspan(at, std::min<uint64_t>(record.bytes, rest.size() - at)));
    std::memcpy(rest.data() + record_at, &record, sizeof(record));
    at += std::min<uint64_t>(record.bytes, rest.size() - at);
  }
  PartsHash hash;
  hash.Add(rest.first(prefix_bytes));
  for (const auto& chunk : chunks) hash.Add(chunk);
  h.rest_hash = hash.Value();
  h.header_hash = HeaderHash(h);
  std::memcpy(bytes.data(), &h, sizeof(h));
}

Result<SessionFile> ReadSessionFile(const std::string& path) {
  LS_ASSIGN(MappedFile file, MappedFile::Open(path));
  LS_ASSIGN(SessionContents contents, ParseSession(file.bytes(), path));
  return SessionFile{.file = std::move(file), .contents = std::move(contents)};
}

Status CheckBelongs(const SessionContents& contents,
                    const std::vector<std::pair<std::string, std::string>>& to, const std::string& path) {
  for (size_t i = 0; i < std::max(to.size(), contents.belongs_to.size()); ++i) {
    const auto none = std::pair<std::string, std::string>("", "");
    const auto& [want, value] = i < to.size() ? to[i] : none;
    const auto& [has, saved] = i < contents.belongs_to.size() ? contents.belongs_to[i] : none;
    if (want == has && value == saved) continue;
    const std::string& what = want.empty() ? has : want;
    return InvalidArgument(path + ": the session was saved with " +
                           (has == want ? what + " " + saved : has + " " + saved) + ", and here it is " +
                           want + " " + value + "; use the model and options it was saved with");
  }
  return {};
}

}  // namespace longspec
