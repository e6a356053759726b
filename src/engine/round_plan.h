// SPDX-License-Identifier: Apache-2.0
//
// What the next round of many sequences does: who starts, who gives way, and how many rows each runs. A pure
// function of a few numbers and of what passes cost (policy/pass_cost.h), so that it can be tested and
// simulated without a model. docs/scheduling.md gives the rules, their proofs and a simulation. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "longspec/status.h"
#include "policy/pass_cost.h"

namespace longspec {

struct ScheduleOptions {
  int parallel = 64;     // sequences that may run at once
  int batch_rows = 512;  // of a pass; REQUIRES: at least `parallel`
  int most_rows = 0;     // of a pass with nodes of speculation; fewer than batch_rows: as many as those
  // What the prompts' rows may add to a pass in which somebody decodes, in ms, or as a share of what the pass
  // takes without them if that is more: else prompts would hardly move where one row takes longer.
  double prefill_ms = 100;
  double prefill_share = 0.5;
  double idle_ms = 1000;  // a pass in which nobody decodes takes at most this long; 0: as long as it likes
  // A prompt is passed by shorter ones that arrive while it waits no longer than so many times what it takes
  // alone; 0: prompts go in order of arrival.
  double patience = 4;
  int chunk_positions = 256;
};

// A request that has not ended. One that waits for another to compute their common prompt is left out.
struct SequenceState {
  int64_t id = 0;
  bool running = false;  // false: it holds no chunks, for it has not started or was preempted
  int context = 1;       // committed tokens
  int missing = 1;       // the last ones of them, whose keys are not computed: 1 of a sequence that decodes
  // Held, or, while it waits, whole ones of its prefix that others or the prefix cache hold and that it will
  // share when it starts. A chunk that is to be copied before it is written is not one of them.
  int chunks = 0;
  // The sequence before it in the list with which it shares most of these chunks, and how many they share.
  int shared_with = -1;
  int shared_chunks = 0;
  int most_chunks = 1;   // it may ever need: MostChunks
  double waited_ms = 0;  // since it arrived
};

// Planning takes time in proportion to the sequences that wait; where they are thousands, leave out all but
// some hundred of the oldest.
struct RoundState {
  std::vector<SequenceState> sequences;  // in order of arrival
  int free_chunks = 0;
  int reclaimable_chunks = 0;  // that nothing but the prefix cache holds
};

// It is carried out in this order: the sequences in `preempt` drop their chunks and wait; those in `admit`
// take over the chunks that they share, and run; the prefix cache gives up what is missing of `new_chunks`;
// and `parts` make up the pass. Numbers are places in RoundState::sequences.
struct RoundPlan {
  struct Part {
    int sequence = 0;
    int rows = 0;            // of its missing tokens, the first ones
    bool completes = false;  // all of them: then it samples a token, and may verify nodes
    int new_chunks = 0;      // that the rows take beyond those held
    int most_nodes = 0;      // that there is room for
    int node_chunks = 0;     // that as many nodes take beyond those
  };
  std::vector<int> preempt;  // latest arrivals first
  std::vector<int> admit;
  std::vector<Part> parts;     // in order of arrival; empty: nobody can run
  std::vector<PassPart> pass;  // the shape of it, without nodes
  int new_chunks = 0;          // of all parts, those of nodes included
  int most_nodes = 0;          // in all
};

RoundPlan PlanRound(const RoundState& state, const PassCost& cost, const ScheduleOptions& options);

// The chunks a request may need. n_predict: tokens to generate, below 0 as many as the context holds.
int MostChunks(int prompt_tokens, int n_predict, int ctx_size, int chunk_positions = 256);

// kResourceExhausted, with the numbers, if it would not fit were it alone in a pool of `pool_chunks`.
Status CheckFits(int prompt_tokens, int n_predict, int ctx_size, int pool_chunks, int chunk_positions = 256);

}  // namespace longspec
