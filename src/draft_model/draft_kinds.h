// SPDX-License-Identifier: Apache-2.0
//
// The kinds of learned drafts whose files are read: which tensors each has, and how its published form is
// told. A new kind is a line of the table in draft_kinds.cc; its drafter is another file
// (draft_model/registry.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longspec {

struct DraftCheckpoint;

enum class DraftHolds : uint8_t {
  kWeights,
  kTokens,  // I32 or I64: tokens, or offsets of tokens
  kMask     // a truth value for each token: BOOL or I8
};

struct DraftTensor {
  std::string name;
  bool required = true;
  DraftHolds holds = DraftHolds::kWeights;
};

struct DraftKind {
  std::string_view name;  // general.architecture of GGUF files, "longspec_draft" of config.json
  // Whether a checkpoint that does not say so itself is one, by its tensors and configuration.
  bool (*recognise)(const DraftCheckpoint& checkpoint);
  // What its files hold, besides kDraftVocabTensor.
  std::vector<DraftTensor> (*tensors)(const DraftCheckpoint& checkpoint);
  // Its LM head is the target's: kDraftVocabTensor names the rows that it is reduced to.
  bool head_of_target = true;
  // A tensor's name here, of one that some published files have; null: there are no others.
  std::string (*rename)(const std::string& name) = nullptr;
};

std::span<const DraftKind> DraftKinds();
const DraftKind* FindDraftKind(std::string_view name);  // null if there is none
std::string DraftKindNames();                           // "longspec, eagle, ..."

}  // namespace longspec
