// SPDX-License-Identifier: Apache-2.0
//
// The exact verification rules besides sample-and-match, over dense distributions: what a drafter that
// samples its proposals needs (research: 8.2 to 8.4). With every one of them the committed tokens have the
// law of plain decoding; unlike sample-and-match, not its very tokens for the same seed. `p` is the target's
// processed distribution at a node, `q` the law a proposal was really drawn from given the proposals before
// it, after the draft's own filters. Pure functions of their arguments and the coin.
//
// No drafter of this program samples its proposals: they are all deterministic children, for which
// sample-and-match is exact and keeps the tokens. These rules are here to measure it by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verify/testing/coin.h"

namespace longspec::testing {

using Dense = std::span<const double>;  // (vocab) probabilities

// max(0, a * p - b * q) for every token. If nothing is left (p equals q up to rounding), p itself.
std::vector<double> Residual(Dense p, Dense q, double a = 1.0, double b = 1.0);

// --- Chains: tokens[i] ~ q[i]; p has one row more than there are tokens, the last for the bonus token. ---

struct ChainVerdict {
  int n_accepted = 0;
  int32_t token = 0;  // the correction or bonus token after them
};

// Token by token: accept with min(1, p/q), else draw from the residual (Leviathan et al.; Chen et al.).
// REQUIRES: a proposed token has q above 0.
ChainVerdict VerifyChain(std::span<const int32_t> tokens, std::span<const Dense> p, std::span<const Dense> q,
                         Coin& coin);

// Block verification (arXiv 2403.10444): the same law, and on average at least as many tokens accepted.
ChainVerdict VerifyBlock(std::span<const int32_t> tokens, std::span<const Dense> p, std::span<const Dense> q,
                         Coin& coin);

// --- One node and its children. ---

struct NodeVerdict {
  int child = -1;     // index of the accepted child; -1: none
  int32_t token = 0;  // the committed token
};

// Children that were not sampled (argmax, copies of text). REQUIRES: distinct tokens.
// In turn: accept with the current p(child), else strike it from p and renormalise.
NodeVerdict VerifyInTurn(std::span<const int32_t> children, Dense p, Coin& coin);
// All with one draw: each child with its p, none of them with the rest.
NodeVerdict VerifyOneCoin(std::span<const int32_t> children, Dense p, Coin& coin);

// SpecInfer's multi-step rule: children drawn independently from q, duplicates included.
NodeVerdict VerifyIndependent(std::span<const int32_t> children, Dense p, Dense q, Coin& coin);

// Children drawn from q without replacement, in this order (EAGLE-1, Sequoia, recursive rejection).
NodeVerdict VerifyWithoutReplacement(std::span<const int32_t> children, Dense p, Dense q, Coin& coin);

// SpecTr's K-SEQ (arXiv 2310.15141): children drawn independently from q, each tested against p / (gamma *
// q). REQUIRES: gamma is valid for that many children (KSeqGamma).
NodeVerdict VerifyKSeq(std::span<const int32_t> children, Dense p, Dense q, double gamma, Coin& coin);

// P(some child is accepted) under K-SEQ, for any gamma of at least 1.
double KSeqAcceptance(Dense p, Dense q, int n_children, double gamma);
// The smallest gamma in [1, n_children] whose rule is exact; it accepts most. By bisection, to 1e-12, from
// above.
double KSeqGamma(Dense p, Dense q, int n_children);

}  // namespace longspec::testing
