// SPDX-License-Identifier: Apache-2.0
//
// What is asked of a model and what comes back. Plain values; needs no library.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/options.h"
#include "longspec/stats.h"

namespace longspec {

struct Message {
  std::string role;
  std::string content;
  std::string more = {};  // further members for the chat template, an object of JSON: {"tool_calls": [...]}
};

// What an answer must be. Only tokens that can lead to such an answer are sampled, and it ends where the
// grammar lets it end; the limits of a request may cut it short all the same.
struct GrammarText {
  enum class Kind : uint8_t {
    kNone,           // any text
    kJsonObject,     // some object of JSON; no text
    kJsonSchema,     // JSON that this schema describes (docs/structured-output.md has the keywords)
    kGbnf,           // llama.cpp's grammars
    kRegex,          // what this regular expression matches as a whole
    kStructuralTag,  // xgrammar's and vLLM's: parts of a text that are constrained once a tag begins them
  };
  Kind kind = Kind::kNone;
  std::string text = {};

  bool operator==(const GrammarText&) const = default;
};

// Where a prompt that is made of messages ends.
enum class PromptEnd : uint8_t {
  kNewTurn,    // the assistant's turn has begun: what follows is a new message
  kContinued,  // the last message, whose ever it is, is open: what follows goes on with it
  kClosed,     // the last message has ended, and nothing has begun
};

// An end token or a stop string; n_predict; a full context; the caller.
enum class FinishReason : uint8_t { kStop, kLength, kContext, kCancelled };

// A token and the natural logarithm of its chance: of the model's own distribution, before temperature,
// filters, penalties and biases.
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0F;
};

// A token as it was generated. Views are valid during the call.
struct GeneratedToken {
  int32_t id = 0;
  std::string_view source = {};  // the drafter that had guessed it; empty: none had
  bool is_end = false;           // an end token, which stands for no text
  // The place of its characters among the bytes of all text so far, also of text that is held back or that a
  // stop string takes away. A character made of several tokens is the last one's.
  size_t text_begin = 0, text_end = 0;
  TokenLogprob own = {};                    // only if n_logprobs >= 0
  std::span<const TokenLogprob> likeliest;  // n_logprobs of them, likeliest first
  Timings timings = {};                     // of the answer so far, the token's whole round included
};

// A token that a drafter proposed, below another one of the proposal, which stands before it; -1: below the
// text.
struct ProposedToken {
  int32_t parent = -1, token = 0;
  float score = 0.0F;  // the chance that it is reached, as the drafter sees it
  bool operator==(const ProposedToken&) const = default;
};

struct GenerationRequest {
  // Exactly one of these three is given.
  std::string prompt = {};             // raw text
  std::vector<Message> messages = {};  // rendered with the model's chat template
  std::vector<int32_t> tokens = {};    // already tokenised
  // What the chat template gets besides the messages, an object of JSON: {"tools": [...]}.
  std::string template_variables = {};
  PromptEnd prompt_end = PromptEnd::kNewTurn;  // of messages
  // The last so many tokens of a longer prompt are kept; 0: all; -1: as many as the context has room for.
  int truncate_prompt_tokens = 0;

  // What the answer begins with, whatever the model would choose: part of its text and of its tokens, and
  // told of with the model's own chances, but not counted by n_predict.
  std::vector<int32_t> begin = {};

  bool cache_prompt = true;  // false: all of the prompt is evaluated, whatever is known of it

  int n_predict = -1;                  // -1: until an end token or a full context
  std::vector<std::string> stop = {};  // stop strings; not part of the returned text
  // Tokens that end the answer besides the model's end tokens; they stand for no text.
  std::vector<int32_t> stop_tokens = {};
  bool include_stop = false;  // the stop string, or the text of the stop token, is part of the returned text
  bool ignore_eos = false;
  // Lines of the answer but for its first begin with so many spaces and tabs at least; one that does not ends
  // it with kLength, and its characters behind them are cut off. 0: any will do.
  int n_indent = 0;
  int min_tokens = 0;  // among so many no end token is chosen, and no stop string ends the text
  std::vector<int32_t> allowed_tokens = {};  // no others are chosen; empty: all may be
  std::vector<std::string> bad_words = {};   // texts whose tokens are not chosen one after another
  SamplingOptions sampling = {};
  SpeculationOptions speculation = {};
  PartialVerificationOptions partial_verification = {};
  GrammarText grammar = {};

  // Called with each piece of text as it becomes final (complete UTF-8, not the beginning of a stop string).
  // Return false to stop after it.
  std::function<bool(std::string_view piece)> on_text = {};
  // Called while the prompt is evaluated. Return false to cancel.
  std::function<bool(int done, int total)> on_prefill = {};
  // Called once, before anything is evaluated: tokens of the prompt, and how many of them were evaluated
  // before.
  std::function<void(int n_prompt, int n_cached)> on_start = {};
  // Called with each token before the text that it completes.
  std::function<void(const GeneratedToken&)> on_token = {};
  // Called with each proposal, also an empty one, before anything of it is left out or verified; `n_text`:
  // tokens of the text that it is to go on.
  std::function<void(size_t n_text, std::span<const ProposedToken>)> on_proposal = {};
  int n_logprobs = -1;  // likeliest tokens that on_token is told of; -1: no chances at all
};

// What is one answer's own where several answer one request; at first it is the request's.
struct OneAnswer {
  explicit OneAnswer(const GenerationRequest& of)
      : begin(of.begin),
        on_text(of.on_text),
        on_prefill(of.on_prefill),
        on_start(of.on_start),
        on_token(of.on_token),
        on_proposal(of.on_proposal) {}

  std::vector<int32_t> begin;
  decltype(GenerationRequest::on_text) on_text;
  decltype(GenerationRequest::on_prefill) on_prefill;
  decltype(GenerationRequest::on_start) on_start;
  decltype(GenerationRequest::on_token) on_token;
  decltype(GenerationRequest::on_proposal) on_proposal;
};

struct GenerationResult {
  std::string text;
  std::vector<int32_t> tokens;  // generated, the end token included
  FinishReason finish_reason = FinishReason::kLength;
  std::string stop_string = {};  // kStop: the one that ended the text; empty: a token did
  uint64_t seed = 0;             // the one used
  Timings timings;
  SpeculativeStats speculative;
  PartialVerificationStats partial_verification;
  double distinct_4gram = 1.0;
};

}  // namespace longspec
