// SPDX-License-Identifier: Apache-2.0
//
// The public facade: text in, text out.
//
//   auto engine = longspec::Engine::Load({.path = "model.gguf"});
//   auto session = (*engine)->NewSession();
//   auto result = (*engine)->Generate(**session, {.prompt = "Once upon a time"});
//
// Output does not depend on SpeculationOptions, threads or batch_size: bit for bit, at every temperature, for
// equal seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/generation.h"
#include "longspec/infill.h"
#include "longspec/options.h"
#include "longspec/scheduler.h"
#include "longspec/stats.h"
#include "longspec/status.h"

namespace longspec {

std::string_view ToString(FinishReason reason);  // "stop", "length", "context", "cancelled"

// What the memory of a loaded model is used for, in bytes; known before any of it is taken.
struct MemoryPlan {
  uint64_t weights = 0;  // repacked copies
  uint64_t kv_at_context =
      0;                    // the cache in memory when the whole context is used; it grows to this in chunks
  uint64_t kv_in_file = 0;  // of the context, besides, in ModelOptions::kv_offload
  bool kv_on_host = false;  // that is host memory, beside a card's
  // Of kv_in_file: what memory has no room for, so that each step at the whole context reads it from the
  // disk.
  uint64_t kv_from_disk = 0;
  double disk_bytes_per_second = 0;  // at which that folder's disk was read when tried; 0: it was not
  uint64_t scratch = 0;
  uint64_t draft = 0;       // a draft model: weights, activations and its cache at the same context
  uint64_t draft_keys = 0;  // what a draft model made of texts and keeps, besides that of prompt_cache
  // Of a model on a card, whose memory all the rest is: both of these where they lie in the host's memory,
  // and what the host could give when asked (0: it did not say).
  uint64_t host_draft = 0, host_available = 0;
  // Of ModelOptions::partial_verification, with what is remembered of the blocks of the same context.
  uint64_t working_set = 0;
  // Besides, and not needed: what ModelOptions::cache_ram may grow to, a draft model's part included.
  uint64_t prompt_cache = 0;
  uint64_t available = 0;  // what the system could give when asked; 0: it did not say
  int ctx_size = 0;

  uint64_t total() const { return weights + kv_at_context + scratch + draft + draft_keys + working_set; }
};

struct ModelInfo {
  std::string path, architecture, name, file_type;
  uint64_t file_bytes = 0, n_parameters = 0;
  int n_layer = 0, n_embd = 0, n_head = 0, n_head_kv = 0, head_dim = 0, n_ff = 0, n_vocab = 0;
  int n_ctx_train = 0, n_ctx = 0;
  double rope_freq_base = 0;
  std::string rope_scaling;  // "none", "linear x4", "yarn x4 (original 2048)"
  std::string tokenizer_model, tokenizer_pre;
  // What of it is not offered, so that the model does not run; empty: nothing. If it is the network, there is
  // no n_ctx, and nothing is told of kernels and memory.
  std::string missing;
  bool has_chat_template = false;   // of its own, or ModelOptions::chat_template; else chats are ChatML
  std::string chat_template;        // the source of the one in use
  std::string chat_template_error;  // why it cannot be used; empty: it can
  std::string device;               // where it runs: "cpu", "cuda:0"
  std::string cpu;                  // its processor: model name and the features kernels care about
  std::string kernels;              // the table in use
  std::vector<std::string> kernels_available;
  std::vector<std::pair<std::string, std::string>> arithmetic;  // operation -> arithmetic in use
  std::vector<std::pair<std::string, uint64_t>> weight_bytes_by_type;
  int threads = 0;
  std::string
      weights_origin;  // "packed now", "packed now, kept in FILE", "read from FILE"; empty before loading
  MemoryPlan memory;
};

// One conversation: its tokens and their cache. Generate finds the longest prefix of the new prompt that the
// session already holds and evaluates only the rest. Not thread-safe; a session belongs to the engine that
// made it and must not outlive it.
class Session {
 public:
  virtual ~Session() = default;
  virtual const std::vector<int32_t>& tokens() const = 0;
  // The conversation, for whoever leads it: generations neither read nor change it. It is saved, loaded and
  // forked with the session.
  virtual std::vector<Message>& messages() = 0;
  virtual const std::vector<Message>& messages() const = 0;
  virtual void Clear() = 0;
};

// An answer in the making: for callers that hold several, or do something else between rounds. Nothing is
// lost by dropping it: its session then holds what its cache does, all but the last token. Not thread-safe;
// must not outlive its session.
class Generation {
 public:
  virtual ~Generation() = default;
  // One round: tokens are proposed, verified and committed, and on_text is called. False once the answer has
  // ended; after that, or after an error, it must not be called again.
  virtual Result<bool> Step() = 0;
  // Generated so far.
  virtual const std::vector<int32_t>& tokens() const = 0;
  // Ends the answer here if it had not ended. Called once. predicted_ms counts the time inside Step only.
  virtual GenerationResult Finish() = 0;
};

class Engine {
 public:
  // Loads a model. Refuses, with the numbers, what cannot fit in memory.
  static Result<std::unique_ptr<Engine>> Load(const ModelOptions& options);
  // The same plan and facts without loading weights.
  static Result<ModelInfo> Inspect(const ModelOptions& options);

  virtual ~Engine() = default;
  virtual const ModelInfo& info() const = 0;

  virtual Result<std::unique_ptr<Session>> NewSession() = 0;
  // A session with the same tokens and a copy of their cache. REQUIRES: nothing is being generated in
  // `session`.
  virtual Result<std::unique_ptr<Session>> Fork(const Session& session) = 0;

  // A session with its keys, values and messages as a file, and back. It means the same on any machine that
  // computes in the same arithmetic, and is refused, by what differs, for another model, cache type or
  // arithmetic, or if it is damaged. Saved beside and renamed: what stood under this name before is there
  // until the new file is whole. kNotFound: there is none.
  virtual Status SaveSession(const Session& session, const std::string& path) = 0;
  virtual Result<std::unique_ptr<Session>> LoadSession(const std::string& path) = 0;

  // What is known of these tokens' keys and values is given up, back to where other prompts go on
  // differently; sessions keep theirs. One call at a time per engine, rounds of schedulers included.
  virtual void Forget(const std::vector<int32_t>& tokens) = 0;

  // One call at a time per engine, Generation::Step included.
  virtual Result<GenerationResult> Generate(Session& session, const GenerationRequest& request) = 0;
  // Evaluates the prompt; Generation::Step does the rest. Generate is Start, Step to the end and Finish.
  virtual Result<std::unique_ptr<Generation>> Start(Session& session, const GenerationRequest& request) = 0;

  // Many answers at once. The engine must outlive it, and generates nothing else while it runs rounds.
  virtual Result<std::unique_ptr<Scheduler>> NewScheduler(const SchedulerOptions& options = {}) = 0;

  // parse_special: "<|im_start|>" becomes its token rather than text.
  virtual std::vector<int32_t> Tokenize(std::string_view text, bool add_special = false,
                                        bool parse_special = true) const = 0;
  // Whether an answer ends with this token: the end of a text or of a turn.
  virtual bool EndsAnswer(int32_t token) const = 0;
  virtual std::string Detokenize(const std::vector<int32_t>& tokens, bool keep_special = true) const = 0;
  // The prompt that Generate would evaluate, in tokens, or what is wrong with it.
  virtual Result<std::vector<int32_t>> PromptTokens(const GenerationRequest& request) const = 0;
  // The tokens of a prompt whose answer fills the text's hole. kUnsupported: the model has none for that.
  virtual Result<std::vector<int32_t>> InfillTokens(const InfillText& text,
                                                    const InfillLayout& layout) const = 0;
  // template_variables: as in GenerationRequest.
  virtual Result<std::string> ApplyChatTemplate(const std::vector<Message>& messages,
                                                bool add_generation_prompt,
                                                std::string_view template_variables = {}) const = 0;

  // The text that the messages of a request become, with the end that it wants.
  virtual Result<std::string> ChatPrompt(const GenerationRequest& request) const = 0;

  // Compiles a grammar and keeps it for a while, so that a request that has it begins at once. Submit and
  // Start do so, too, on their caller's thread. The error is what is wrong with the grammar. Any thread.
  virtual Result<std::shared_ptr<const Grammar>> PrepareGrammar(const GrammarText& grammar) = 0;

  // No answer waits for this: until it is called adaptive speculation guesses what forward passes cost, and
  // learns it by the way. Measures them in one to three seconds, for a moment when nobody waits; does nothing
  // where they are known (ModelOptions::calibration_cache). `keep_going` is asked before each pass; false
  // leaves measuring to another call. One call at a time per engine, as Generate.
  virtual void MeasureCosts(const std::function<bool()>& keep_going = {}) = 0;
};

// Drafters that SpeculationOptions::type may name.
std::vector<std::string> SpeculationTypes();
// Says before a model is loaded what Generate would say of these options.
Status CheckSpeculation(const SpeculationOptions& options);
// Options for drafters of another type: what those read of these, and for the name of a preset its settings
// ("pld": SpeculationOptions::type). max_nodes: drafted tokens per step at most; -1: as that says.
SpeculationOptions SpeculationOf(const SpeculationOptions& options, const std::string& type,
                                 int max_nodes = -1);

}  // namespace longspec
