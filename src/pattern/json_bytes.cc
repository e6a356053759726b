// SPDX-License-Identifier: Apache-2.0
#include "pattern/json_bytes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "base/print.h"

namespace longspec {
namespace {

struct Short {
  char letter;
  uint32_t code_point;
};
// The last one is never needed.
constexpr auto kShorts = std::to_array<Short>(
    {{'"', '"'}, {'\\', '\\'}, {'b', '\b'}, {'f', '\f'}, {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'/', '/'}});
constexpr uint32_t kFirstPlain = 0x20;

bool IsPlain(uint32_t code_point) {
  return code_point >= kFirstPlain && code_point != '"' && code_point != '\\';
}

// Which of some numbers lead to which states of the text. Ranges may overlap.
using Pieces = std::vector<TextAutomaton::Edge>;

Pieces Within(const Pieces& pieces, uint32_t first, uint32_t last) {
  Pieces within;
  for (const auto& piece : pieces) {
    const uint32_t begin = std::max(piece.first, first), end = std::min(piece.last, last);
    if (begin <= end) within.push_back({begin, end, piece.target});
  }
  return within;
}
// Those from `first` on, which becomes 0.
Pieces From(const Pieces& pieces, uint32_t first, uint32_t size) {
  Pieces within = Within(pieces, first, first + size - 1);
  for (auto& piece : within) piece.first -= first, piece.last -= first;
  return within;
}
bool Same(const Pieces& a, const Pieces& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.last == y.last && x.target == y.target;
  });
}

class Writer {
 public:
  Writer(size_t n_text_states, bool all_escapes)
      : n_text_states_(static_cast<int32_t>(n_text_states)), all_escapes_(all_escapes) {
    automaton_.edges.resize(n_text_states);
  }

  void Write(int32_t state, const Pieces& pieces) {
    std::vector<ByteEdge> edges;
    Pieces plain;
    for (const CodePointRange& range : Plain().ranges()) {
      const Pieces part = Within(pieces, range.first, range.last);
      plain.insert(plain.end(), part.begin(), part.end());
    }
    AddUtf8(plain, edges);
    AddChild('\\', '\\', Intern(AfterBackslash(pieces)), edges);
    automaton_.edges[static_cast<size_t>(state)] = Ordered(std::move(edges));
  }

  void WriteUtf8(int32_t state, const Pieces& pieces) {
    std::vector<ByteEdge> edges;
    AddUtf8(pieces, edges);
    automaton_.edges[static_cast<size_t>(state)] = Ordered(std::move(edges));
  }

  ByteAutomaton Finish() && { return std::move(automaton_); }

 private:
  static constexpr int32_t kNone = -1;
  struct Nibble {
    uint8_t first, last;
    uint32_t value;  // of the first
  };

  static const CodePoints& Plain() {
    static const CodePoints kPlain =
        CodePoints({{0, kFirstPlain - 1}, {'"', '"'}, {'\\', '\\'}}).Complement();
    return kPlain;
  }

  static std::vector<ByteEdge> Ordered(std::vector<ByteEdge> edges) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    return edges;
  }

  // The state that has these edges; kNone for none.
  int32_t Intern(std::vector<ByteEdge> edges) {
    if (edges.empty()) return kNone;
    edges = Ordered(std::move(edges));
    const auto [at, is_new] = known_.emplace(edges, static_cast<int32_t>(automaton_.edges.size()));
    if (!is_new) return at->second;
    std::vector<int32_t> ahead;
    for (const ByteEdge& edge : edges) {
      if (edge.target < n_text_states_) {
        ahead.push_back(edge.target);
      } else {
        const auto& further = automaton_.ahead[static_cast<size_t>(edge.target - n_text_states_)];
        ahead.insert(ahead.end(), further.begin(), further.end());
      }
    }
    std::ranges::sort(ahead);
    ahead.erase(std::unique(ahead.begin(), ahead.end()), ahead.end());
    automaton_.edges.push_back(std::move(edges));
    automaton_.ahead.push_back(std::move(ahead));
    return at->second;
  }

  static void AddChild(uint8_t first, uint8_t last, int32_t child, std::vector<ByteEdge>& edges) {
    if (child != kNone) edges.push_back({first, last, child});
  }

  // Edges for the digits of a number: digit v stands for numbers from v * size on. What is left of them is
  // written by `rest`; where nothing is, the character ends.
  template <typename Rest>
  void AddDigits(const Pieces& pieces, uint8_t first_byte, uint32_t first_digit, uint32_t n_digits,
                 uint32_t size, const Rest& rest, std::vector<ByteEdge>& edges) {
    for (uint32_t v = 0; v < n_digits;) {
      const Pieces part = From(pieces, (first_digit + v) * size, size);
      uint32_t next = v + 1;
      while (next < n_digits && Same(part, From(pieces, (first_digit + next) * size, size))) ++next;
      const auto first = static_cast<uint8_t>(first_byte + v),
                 last = static_cast<uint8_t>(first_byte + next - 1);
      if (size == 1) {
        for (const auto& piece : part) edges.push_back({first, last, piece.target});
      } else if (!part.empty()) {
        AddChild(first, last, rest(part), edges);
      }
      v = next;
    }
  }

  // --- UTF-8. ---

  void AddUtf8(const Pieces& plain, std::vector<ByteEdge>& edges) {
    AddDigits(Within(plain, 0, 0x7F), 0, 0, 0x80, 1, NoRest, edges);
    const auto after = [this](uint32_t size) {
      return [this, size](const Pieces& p) { return Continued(p, size); };
    };
    AddDigits(Within(plain, 0x80, 0x7FF), 0xC2, 2, 30, 1U << 6, after(1), edges);
    AddDigits(Within(plain, 0x800, 0xFFFF), 0xE0, 0, 16, 1U << 12, after(1U << 6), edges);
    AddDigits(Within(plain, 0x10000, kMostCodePoint), 0xF0, 0, 5, 1U << 18, after(1U << 12), edges);
  }
  int32_t Continued(const Pieces& pieces, uint32_t size) {
    std::vector<ByteEdge> edges;
    AddDigits(
        pieces, 0x80, 0, 64, size, [this, size](const Pieces& p) { return Continued(p, size >> 6); }, edges);
    return Intern(std::move(edges));
  }
  static int32_t NoRest(const Pieces& /*pieces*/) { return kNone; }

  // --- Escapes. ---

  std::vector<ByteEdge> AfterBackslash(const Pieces& pieces) {
    std::vector<ByteEdge> edges;
    Pieces others = all_escapes_ ? pieces : Within(pieces, 0, kFirstPlain - 1);
    for (const auto& [letter, code_point] : kShorts) {
      if (!all_escapes_ && IsPlain(code_point)) continue;
      for (const auto& piece : Within(pieces, code_point, code_point))
        edges.push_back({static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), piece.target});
      if (!all_escapes_) others = Without(others, code_point);
    }
    AddChild('u', 'u', FourDigits(others), edges);
    return edges;
  }

  static Pieces Without(const Pieces& pieces, uint32_t code_point) {
    Pieces rest = code_point == 0 ? Pieces() : Within(pieces, 0, code_point - 1);
    const Pieces after = Within(pieces, code_point + 1, kMostCodePoint);
    rest.insert(rest.end(), after.begin(), after.end());
    return rest;
  }

  // Digits `from` to `to` of four bits, in either case; digit v stands for numbers from v * size on.
  template <typename Rest>
  void AddNibbles(const Pieces& pieces, uint32_t from, uint32_t to, uint32_t size, const Rest& rest,
                  std::vector<ByteEdge>& edges, uint32_t base = 0) {
    constexpr uint32_t kTen = 10;
    const auto add = [&](uint32_t first, uint32_t last, char zero) {
      first = std::max(first, from), last = std::min(last, to);
      if (first > last) return;
      AddDigits(pieces, static_cast<uint8_t>(zero + static_cast<char>(first)), first - base, last - first + 1,
                size, rest, edges);
    };
    add(0, kTen - 1, '0');
    add(kTen, 15, static_cast<char>('A' - kTen));
    add(kTen, 15, static_cast<char>('a' - kTen));
  }
  int32_t Nibbles(const Pieces& pieces, uint32_t size) {
    std::vector<ByteEdge> edges;
    AddNibbles(
        pieces, 0, 15, size, [this, size](const Pieces& p) { return Nibbles(p, size >> 4); }, edges);
    return Intern(std::move(edges));
  }

  // A character of 16 bits, or the first half of a pair and the second.
  int32_t FourDigits(const Pieces& pieces) {
    constexpr uint32_t kD = 0xD, k12Bits = 0x1000, k8Bits = 0x100, k10Bits = 0x400;
    const Pieces small = Within(pieces, 0, 0xFFFF);
    const auto rest = [this](uint32_t size) {
      return [this, size](const Pieces& p) { return Nibbles(p, size); };
    };
    std::vector<ByteEdge> edges, after_d;
    AddNibbles(small, 0, kD - 1, k12Bits, rest(k8Bits), edges);
    AddNibbles(small, kD + 1, 15, k12Bits, rest(k8Bits), edges);
    AddNibbles(From(small, kD * k12Bits, k12Bits), 0, 7, k8Bits, rest(16), after_d);
    const Pieces large = From(pieces, 0x10000, 0x100000);
    AddNibbles(
        large, 8, 11, k8Bits * k10Bits, [this](const Pieces& p) { return HighDigits(p, 16 * k10Bits); },
        after_d, 8);
    const int32_t d = Intern(std::move(after_d));
    AddChild('D', 'D', d, edges);
    AddChild('d', 'd', d, edges);
    return Intern(std::move(edges));
  }
  // The last two digits of the first half; one digit stands for `size` characters.
  int32_t HighDigits(const Pieces& pieces, uint32_t size) {
    constexpr uint32_t k10Bits = 0x400;
    std::vector<ByteEdge> edges;
    AddNibbles(
        pieces, 0, 15, size,
        [this, size](const Pieces& p) { return size == k10Bits ? SecondHalf(p) : HighDigits(p, size >> 4); },
        edges);
    return Intern(std::move(edges));
  }
  int32_t SecondHalf(const Pieces& pieces) {
    std::vector<ByteEdge> digits, d, u, backslash;
    AddNibbles(
        pieces, 12, 15, 0x100, [this](const Pieces& p) { return Nibbles(p, 16); }, digits, 12);
    const int32_t after_d = Intern(std::move(digits));
    AddChild('D', 'D', after_d, d);
    AddChild('d', 'd', after_d, d);
    AddChild('u', 'u', Intern(std::move(d)), u);
    AddChild('\\', '\\', Intern(std::move(u)), backslash);
    return Intern(std::move(backslash));
  }

  const int32_t n_text_states_;
  const bool all_escapes_;
  ByteAutomaton automaton_;
  std::map<std::vector<ByteEdge>, int32_t> known_;
};

}  // namespace

ByteAutomaton JsonBytes(const TextAutomaton& text, bool all_escapes) {
  Writer writer(text.edges.size(), all_escapes);
  for (size_t i = 0; i < text.edges.size(); ++i) writer.Write(static_cast<int32_t>(i), text.edges[i]);
  return std::move(writer).Finish();
}

ByteAutomaton Utf8Bytes(const TextAutomaton& text) {
  Writer writer(text.edges.size(), /*all_escapes=*/false);
  for (size_t i = 0; i < text.edges.size(); ++i) writer.WriteUtf8(static_cast<int32_t>(i), text.edges[i]);
  return std::move(writer).Finish();
}

std::string JsonEscaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto at = std::ranges::find(kShorts, uint32_t{byte}, &Short::code_point);
    if (IsPlain(byte)) {
      escaped += c;
    } else if (at != kShorts.end()) {
      escaped += {'\\', at->letter};
    } else {
      escaped += Print("\\u%04x", byte);
    }
  }
  return escaped;
}

}  // namespace longspec
