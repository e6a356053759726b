// SPDX-License-Identifier: Apache-2.0
#include "draft_text/suffix_corpus.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/largest.h"
#include "base/status_macros.h"
#include "formats/atomic_file.h"

namespace longspec {
namespace {

constexpr char kCorpusMagic[8] = {'L', 'S', 'C', 'O', 'R', 'P', 'U', 'S'};
constexpr uint32_t kCorpusVersion = 1;
constexpr int32_t kSortedTokens = 128;  // of each place: longer contexts are not looked up
constexpr int64_t kSample = 64;         // places looked at for continuations

struct CorpusHeader {
  char magic[8];
  uint32_t version;
  uint32_t vocab_size;
  uint64_t n_tokens;
};
static_assert(sizeof(CorpusHeader) == 24);

Result<CorpusHeader> ReadCorpusHeader(const std::string& path, std::span<const std::byte> bytes) {
  CorpusHeader header;
  if (bytes.size() < sizeof(header)) {
    return Corrupt(path + ": " + std::to_string(bytes.size()) + " bytes are too few for a corpus file");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kCorpusMagic, sizeof(kCorpusMagic)) != 0) {
    return Corrupt(path + ": not a corpus file; 'longspec corpus' makes them");
  }
  if (header.version != kCorpusVersion) {
    return Unsupported(path + ": corpus file of version " + std::to_string(header.version) +
                       "; this program reads version " + std::to_string(kCorpusVersion));
  }
  const uint64_t room = (bytes.size() - sizeof(header)) / (sizeof(int32_t) + sizeof(uint32_t));
  if (header.n_tokens > room || sizeof(header) + 8 * header.n_tokens != bytes.size() ||
      header.n_tokens > std::numeric_limits<uint32_t>::max()) {
    return Corrupt(path + ": the header promises " + std::to_string(header.n_tokens) +
                   " tokens, but the file has " + std::to_string(bytes.size()) + " bytes");
  }
  return header;
}

// The places of a text, sorted by the tokens that begin there.
std::vector<uint32_t> SortedPlaces(std::span<const int32_t> tokens) {
  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto beginning = [&](uint32_t place) {
    return tokens.subspan(place, std::min<size_t>(kSortedTokens, tokens.size() - place));
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const auto x = beginning(a), y = beginning(b);
    const auto [i, j] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    if (i != x.end() && j != y.end()) return *i < *j;
    // One is the other's beginning: the shorter one first, then by place.
    return (i == x.end()) != (j == y.end()) ? i == x.end() : a < b;
  });
  return order;
}

}  // namespace

std::unique_ptr<SuffixCorpus> SuffixCorpus::Make(std::vector<int32_t> tokens) {
  std::vector<uint32_t> order = SortedPlaces(tokens);
  return std::unique_ptr<SuffixCorpus>(new SuffixCorpus(std::move(tokens), std::move(order)));
}

Status SuffixCorpus::Write(const std::string& path, int vocab_size, std::span<const int32_t> tokens) {
  LS_CHECK(vocab_size > 0);
  if (tokens.size() > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument(path + ": a corpus of " + std::to_string(tokens.size()) +
                           " tokens; at most 4294967295 can be indexed");
  }
  const std::vector<uint32_t> order = SortedPlaces(tokens);
  CorpusHeader header = {};
  std::memcpy(header.magic, kCorpusMagic, sizeof(kCorpusMagic));
  header.version = kCorpusVersion;
  header.vocab_size = static_cast<uint32_t>(vocab_size);
  header.n_tokens = tokens.size();
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  LS_TRY(file.Write(std::as_bytes(std::span(&header, 1))));
  LS_TRY(file.Write(std::as_bytes(tokens)));
  LS_TRY(file.Write(std::as_bytes(std::span(order))));
  return file.Commit();
}

Result<std::unique_ptr<SuffixCorpus>> SuffixCorpus::Open(const std::string& path, int vocab_size) {
  LS_ASSIGN(MappedFile file, MappedFile::Open(path));
  LS_ASSIGN(const CorpusHeader header, ReadCorpusHeader(path, file.bytes()));
  if (header.vocab_size != static_cast<uint32_t>(vocab_size)) {
    return InvalidArgument(path + ": made for a vocabulary of " + std::to_string(header.vocab_size) +
                           " tokens; this model has " + std::to_string(vocab_size) +
                           ": make it again with 'longspec corpus' and this model");
  }
  const auto n = static_cast<size_t>(header.n_tokens);
  const std::byte* data = file.bytes().data() + sizeof(CorpusHeader);
  const std::span tokens(reinterpret_cast<const int32_t*>(data), n);
  const std::span order(reinterpret_cast<const uint32_t*>(data + n * sizeof(int32_t)), n);
  for (size_t i = 0; i < n; ++i) {
    if (tokens[i] < kSeparator || tokens[i] >= vocab_size) {
      return Corrupt(path + ": token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                     ", outside the vocabulary of " + std::to_string(vocab_size));
    }
    if (order[i] >= n) {
      return Corrupt(path + ": the index names place " + std::to_string(order[i]) + " of " +
                     std::to_string(n) + " tokens");
    }
  }
  return std::unique_ptr<SuffixCorpus>(new SuffixCorpus(std::move(file), tokens, order));
}

// What follows `offset` tokens after a place; before every token if the text ends.
int32_t SuffixCorpus::TokenAt(uint32_t place, int32_t offset) const {
  const size_t at = size_t{place} + static_cast<size_t>(offset);
  return at < tokens_.size() ? tokens_[at] : kSeparator - 1;
}

// Of the places of a context, those that continue with this token.
SuffixContext SuffixCorpus::Extend(const SuffixContext& context, int32_t token) const {
  const auto begin = order_.begin() + context.first, end = order_.begin() + context.last;
  const auto first = std::lower_bound(begin, end, token, [&](uint32_t place, int32_t wanted) {
    return TokenAt(place, context.length) < wanted;
  });
  const auto last = std::upper_bound(first, end, token, [&](int32_t wanted, uint32_t place) {
    return wanted < TokenAt(place, context.length);
  });
  return {.first = first - order_.begin(), .last = last - order_.begin(), .length = context.length + 1};
}

SuffixContext SuffixCorpus::Find(std::span<const int32_t> context) const {
  SuffixContext found = {.first = 0, .last = static_cast<int64_t>(order_.size()), .length = 0};
  for (const int32_t token : context) {
    found = Extend(found, token);
    if (found.first == found.last) break;
  }
  return found;
}

void SuffixCorpus::Matches(std::span<const int32_t> sequence, int max_context, int most,
                           std::vector<SuffixContext>& out) const {
  out.clear();
  const auto limit = std::min(static_cast<int64_t>(sequence.size()),
                              static_cast<int64_t>(std::min(max_context, kSortedTokens - 1)));
  const auto suffix = [&](int64_t n) { return Find(sequence.last(static_cast<size_t>(n))); };
  // A suffix of what occurs occurs: halving finds the longest.
  int64_t occurs = 0, does_not = limit + 1;
  while (does_not - occurs > 1) {
    const int64_t n = (occurs + does_not) / 2;
    (Count(suffix(n)) > 0 ? occurs : does_not) = n;
  }
  for (int64_t n = occurs; n > 0 && static_cast<int>(out.size()) < most; --n) {
    const SuffixContext found = suffix(n);
    if (out.empty() || Count(found) > Count(out.back())) out.push_back(found);
  }
}

void SuffixCorpus::Continuations(const SuffixContext& context, int most,
                                 std::vector<Continuation>& out) const {
  out.clear();
  const int64_t n = Count(context);
  if (context.length >= kSortedTokens || n <= 0) return;
  const int64_t n_samples = std::min(n, kSample);
  int32_t previous = kSeparator;
  for (int64_t i = 0; i < n_samples; ++i) {
    const auto place = order_[static_cast<size_t>(context.first + i * n / n_samples)];
    const int32_t token = TokenAt(place, context.length);
    if (token <= kSeparator || token == previous) continue;  // sorted: equal ones are neighbours
    previous = token;
    const SuffixContext next = Extend(context, token);
    out.push_back({.token = token,
                   .share = static_cast<double>(Count(next)) / static_cast<double>(n),
                   .context = next});
  }
  KeepLargest(out, static_cast<size_t>(most), [](const auto& next) { return next.share; });
}

}  // namespace longspec
