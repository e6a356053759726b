// SPDX-License-Identifier: Apache-2.0
//
// What a value of --methods asks for: TYPE[@POLICY][:NODES], drafters joined by +, and then any of
//
//   /no-dice /no-prior               drafts without these
//   /extend /extend=CHUNKS           SpecExtend, with so many chunks
//   /extend-from=TOKENS              its gate
//   /budget=POSITIONS                --spec-partial-budget
//   /partial=BUDGET                  APPROXIMATE: a part of the cache of that budget chooses, which is chosen
//                                    itself every 64 positions by one query, a rule that is not SpecPV's
//   /refresh=POSITIONS|paper         with /partial: another number of positions, or SpecPV's modes
//   /reduce=mean|max|last            with /refresh=paper: what the scores of a tree's queries are made to
//   /accept=CHANCE /cost=SHARE       of replay: a draft that is not there, right with this chance at each
//                                    token, whose step costs that part of a plain one
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

// A draft that is played (lab/replay_drafter.cc): how often it is right, what its step costs in plain
// ones.
struct PlayedDraft {
  double accept = 0;  // 0: none is
  double cost = 0.05;
};

// What a method is, besides what all of them are.
struct Method {
  SpeculationOptions speculation;
  PartialVerificationOptions partial;
  PlayedDraft played;
};

// kInvalidArgument, by name, if it is none, or if a part of it is nothing to the drafters that it names.
// `base`: what all methods have.
Result<Method> ReadMethod(const std::string& name, const SpeculationOptions& base);

// By which rule a part of the cache chooses, in words; empty: the whole cache does.
std::string RuleOf(const PartialVerificationOptions& partial);
// The same of a method that was read before.
std::string RuleOf(const std::string& method);

}  // namespace longspec
