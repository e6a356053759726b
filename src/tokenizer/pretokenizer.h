// SPDX-License-Identifier: Apache-2.0
//
// Pre-tokenisers cut a text into the pieces inside which byte pairs may merge. Each is a list of patterns,
// applied one after the other: what a pattern matches becomes a piece, and so does what lies between two
// matches; the next pattern cuts those pieces further and sees none beyond its own. Immutable once made; may
// be shared between threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"

struct pcre2_real_code_8;

namespace longspec {

class Pretokenizer {
 public:
  // An unknown name is an error that lists the known ones.
  static Result<Pretokenizer> Create(std::string_view name);
  static std::vector<std::string> Names();
  static Status CheckName(std::string_view name);
  // Models with this pre-tokeniser expect a BOS token where their file does not say otherwise. Any name may
  // be asked.
  static bool AddsBos(std::string_view name);

  // Appends the pieces of `text`, in order; together they are the text. REQUIRES: `text` is valid UTF-8
  void Split(std::string_view text, std::vector<std::string_view>* pieces) const;

  // Models trained with this pre-tokeniser take a piece that is a token as it is, whatever the merges say.
  bool ignores_merges() const { return ignores_merges_; }

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };

  Pretokenizer() = default;

  std::vector<std::unique_ptr<pcre2_real_code_8, FreeCode>> patterns_;
  bool ignores_merges_ = false;
};

}  // namespace longspec
