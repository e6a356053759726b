// SPDX-License-Identifier: Apache-2.0
//
// N-gram priors of one target, each opened once. Used by one generation at a time, like the target.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "formats/ngram_prior.h"
#include "longspec/status.h"

namespace longspec {

// SpeculationOptions::prior that asks for no prior, also where one would be found.
inline constexpr std::string_view kNoPrior = "none";

// What priors have to fit, and where they are looked for.
struct PriorSource {
  Hash128 tokenizer;
  int vocab_size = 0;  // of the target's logits
  std::string
      folder;  // files *.ngrams in it are tried in order of their names; empty: none is found by itself
};

class Priors {
 public:
  void SetSource(PriorSource source) { source_ = std::move(source); }

  // SpeculationOptions::prior: a file, kNoPrior, or "" for the first one of the folder that was made for this
  // tokenizer. Null if there is none; also if the one that was found cannot be used: problem() says why.
  Result<std::shared_ptr<const NgramPrior>> Get(const std::string& option);
  const std::string& problem() const { return problem_; }

 private:
  std::optional<PriorSource> source_;
  std::map<std::string, std::shared_ptr<const NgramPrior>> opened_;  // by option; "" may be null
  std::string problem_;                                              // one line; empty: none
};

}  // namespace longspec
