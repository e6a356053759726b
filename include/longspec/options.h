// SPDX-License-Identifier: Apache-2.0
//
// What a user may choose. Plain values with the defaults of the command line; names follow llama.cpp's
// options. Every member has an initialiser, so that {.path = "model.gguf"} compiles without warnings.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace longspec {

struct ModelInfo;  // longspec/engine.h

// kQ8_0, kQ4_0 and kI8 need a head dimension that is a multiple of 32 (docs/caches.md). kBF16Amx stores
// what kBF16 stores, and attention sums it in the order of AMX tiles; kI8 stores what kQ8_0 stores, and
// attention multiplies it as integers, with queries and weights in 8 bits too (docs/arithmetic.md).
enum class CacheType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kBF16Amx, kI8 };

// How weights stored as BF16 are multiplied: exactly, with activations as they are; or with activations
// rounded to bf16, in the order of VDPBF16PS or of AMX tiles (docs/arithmetic.md).
enum class Bf16Arithmetic : uint8_t { kF32, kBF16, kBF16Amx };

struct RopeOptions {
  enum class Scaling : uint8_t { kFromModel, kNone, kLinear, kYarn };
  Scaling scaling = Scaling::kFromModel;
  float scale = 0.0F;      // context extension factor; 0: from the model
  float freq_base = 0.0F;  // 0: from the model
  // Of --rope-scaling yarn, the model's or one's own. Negative: from the model, which has 1, 1, 32 and 1 if
  // it does not say.
  int yarn_orig_ctx = 0;           // 0: from the model, its training context if it does not say
  float yarn_ext_factor = -1.0F;   // extrapolation mix, 0 to 1
  float yarn_attn_factor = -1.0F;  // times 0.1 ln(scale) + 1: factor on the attention magnitude
  float yarn_beta_fast = -1.0F;    // turns over the original context above which a rotation is kept
  float yarn_beta_slow = -1.0F;    // and below which it is scaled
};

struct SamplingOptions {
  float temperature = 0.8F;  // <= 0: greedy
  int top_k = 40;            // <= 0: off
  float top_p = 0.95F;       // 1: off
  float min_p = 0.05F;       // 0: off
  // After these: what llama.cpp's sampler of this name does, for holes of texts. They are filled with what is
  // likely or not at all.
  bool infill = false;
  int repeat_last_n = 64;  // tokens the penalties look back; 0: none, -1: all
  float repeat_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::optional<uint64_t> seed = {};  // unset: a fresh one per generation, reported in the result
};

// Choosing tokens by a part of the cache (docs/caches.md). AN APPROXIMATION: the text is another one, though
// always the same for equal options and seed if `refresh` is not 0, which is for experiments: the program
// `longspec` has it, other users of the library have not.
struct PartialVerificationOptions {
  bool enabled = false;
  int sink = 32;      // first positions that are seen, a multiple of 16
  int budget = 2048;  // positions that are retrieved, in blocks of 16
  int window = 128;   // last positions that are seen, at least
  int refresh = 64;   // positions after which is retrieved anew; 0: SpecPV's modes, text depends on drafts
  std::string score = "minmax";  // how blocks are scored: "minmax", "quest", "mean", "norm"
  // refresh 0: what scores of several queries are made to: their "mean" or "max"; "last": of the last
  // verified token's alone. (Otherwise one query chooses.)
  std::string reduce = "mean";
};

// --- What drafters read, each its own: one struct for each of them. ---

struct NgramDraftOptions {
  int max = 4;  // longest suffix looked up first
  int min = 2;
  // Which occurrence of the suffix is copied: "recent" (the most recent), or what other programs do: "pld",
  // "hf", "vllm", "tgi", "llama".
  std::string rule = "recent";
  bool operator==(const NgramDraftOptions&) const = default;
};

// What a drafter reads that is no part of the library: a program adds that drafter, with a struct of its own
// for its options. Copies share it; equal are those that hold equal structs.
class AddedDraftOptions {
 public:
  AddedDraftOptions() = default;
  template <std::equality_comparable T>
  explicit AddedDraftOptions(T options) : held_(std::make_shared<const Of<T>>(std::move(options))) {}

  // Null: it holds none of this type.
  template <typename T>
  const T* Get() const {
    const auto* const of = dynamic_cast<const Of<T>*>(held_.get());
    return of == nullptr ? nullptr : &of->options;
  }
  bool operator==(const AddedDraftOptions& other) const {
    if (held_ == nullptr || other.held_ == nullptr) return held_ == other.held_;
    return held_->Equals(*other.held_);
  }

 private:
  struct Held {
    virtual ~Held() = default;
    virtual bool Equals(const Held& other) const = 0;
  };
  template <typename T>
  struct Of final : Held {
    explicit Of(T of) : options(std::move(of)) {}
    bool Equals(const Held& other) const override {
      const auto* const same = dynamic_cast<const Of*>(&other);
      return same != nullptr && same->options == options;
    }
    const T options;
  };

  std::shared_ptr<const Held> held_;
};

// A text that an answer may begin with, and the chance that it does.
struct LikelyBeginning {
  std::vector<int32_t> tokens = {};
  float chance = 0.5F;
  bool operator==(const LikelyBeginning&) const = default;
};

struct PredictionDraftOptions {
  std::vector<int32_t> tokens = {};  // of a text that the answer may be made of, in this order or another
  std::vector<LikelyBeginning> beginnings = {};
  bool operator==(const PredictionDraftOptions&) const = default;
};

struct SuffixDraftOptions {
  int max_depth = 24;       // longest suffix told apart
  float factor = 1.0F;      // drafted depth per matched token
  float min_prob = 0.1F;    // nodes less likely than this are left out
  std::string corpus = {};  // a file of `longspec corpus` to look suffixes up in as well
  bool operator==(const SuffixDraftOptions&) const = default;
};

struct PpmDraftOptions {
  float min_prob = 0.03F;  // nodes less likely than this are left out
  // A table of `longspec corpus --ngrams` with what usually follows in other texts; "": the one in the folder
  // priors beside the model file that is of its tokenizer, if there is one; "none": none.
  std::string prior = {};
  bool operator==(const PpmDraftOptions&) const = default;
};

struct RecyclingDraftOptions {
  std::string file = {};  // the table is read from it and written to it
  bool operator==(const RecyclingDraftOptions&) const = default;
};

struct MagicDecDraftOptions {
  int sink = 16;     // first positions the draft sees
  int window = 496;  // and last ones
  bool operator==(const MagicDecDraftOptions&) const = default;
};

// Of "partial", and of "tokenswift" what is not about who guesses for it.
struct PartialDraftOptions {
  int sink = 32;                 // first positions it sees
  int budget = 2048;             // positions it retrieves, in blocks of 16
  int window = 128;              // last positions it sees, at least
  int refresh = 64;              // positions after which it retrieves anew
  std::string score = "minmax";  // how blocks are scored: "minmax", "quest", "mean", "norm"
  std::string inner = "ppm";     // who guesses for it: "none", "ppm", "suffix", "ngram", "lm"
  int inner_n_max = 8;           // guesses of that one, a pass
  bool operator==(const PartialDraftOptions&) const = default;
};

struct LmDraftOptions {
  int recent = 0;  // last tokens of a text that the draft begins with; 0: all, if it was trained for as long
  int sink = 4;    // of a draft with a window: first positions it sees
  int window = 0;  // and last ones; 0: it sees all of them
  bool operator==(const LmDraftOptions&) const = default;
};

// Of "lm", "eagle" and "eagle3". SpecExtend: the draft sees some chunks of 32 positions, those that the
// target's last layer looks at, in positions of their own. 0: the paper's number, by kind of draft.
struct SpecExtendOptions {
  bool enabled = false;
  int chunks = 0;  // more than 0: SpecExtend as well
  int every = 0;   // rounds after which they are chosen anew
  int from = 0;    // in shorter texts it sees all positions; 0: as many as the chunks hold
  bool operator==(const SpecExtendOptions&) const = default;
};

struct SpeculationOptions {
  // A registered drafter, several separated by commas, or "auto": what this model can use. "none" decodes
  // plainly. What papers and other programs call a drafter ("pld", "triforce") is that drafter with their
  // settings, where the options below are not set otherwise. An option that these drafters do not read is
  // refused.
  std::string type = "auto";
  int draft_n_max = 8;  // proposed tokens per step, the root not counted
  int draft_n_min = 0;  // fewer proposed tokens than this: none are verified
  NgramDraftOptions ngram = {};
  // Tree shape: "" or "chain", or the number of distinct continuations to merge, or drafter-specific.
  std::string tree = {};
  // How much is drafted per step: "fixed" (draft_n_max), "adaptive" (what pays on this machine at this
  // context length, adaptive_n_max at most), or empty: adaptive for "auto" and lists, fixed for one drafter.
  std::string policy = {};
  int adaptive_n_max = 32;
  AddedDraftOptions added = {};
  PredictionDraftOptions prediction = {};
  SuffixDraftOptions suffix = {};
  PpmDraftOptions ppm = {};
  // Whether drafts are made with the random numbers by which the target will choose (docs/decoding.md).
  bool dice = true;
  RecyclingDraftOptions recycling = {};
  MagicDecDraftOptions magicdec = {};
  PartialDraftOptions partial = {};
  std::string draft_model = {};  // types with a model of their own: its file or folder
  LmDraftOptions lm = {};
  SpecExtendOptions spec_extend = {};
  std::string draft_weights = {};  // type its matrices run in ("q8_0", "bf16", "f32"); "": the fast one

  bool operator==(const SpeculationOptions&) const = default;
};

// How attention goes over the keys. kEager copies all of them before each use, as eager implementations do:
// for measuring beside, and in the program `longspec` only. The output is the same.
enum class AttentionKind : uint8_t { kFlash, kEager };

struct ModelOptions {
  std::string path = {};  // a GGUF file; of a split model, its first shard
  int ctx_size = 0;       // positions the cache may hold; 0: the model's training context
  int threads = 0;        // 0: one per physical core it may use, at most the CPU quota
  int batch_size = 512;   // prompt tokens per prefill step; never changes output
  // Keys and values of prompts and answers that no session holds any more are kept, so that a prompt that
  // begins like one of them is not evaluated again: as many as fit into one full context beside those that
  // sessions hold, and cache_ram MiB more (-1: no limit), but at most half of what the memory plan leaves
  // free (MemoryPlan::prompt_cache).
  bool cache_prompt = true;  // false: nothing is kept
  int cache_ram = 8192;
  CacheType cache_type_k = CacheType::kF16;
  CacheType cache_type_v = CacheType::kF16;
  // A folder for keys and values that memory has no room for, or "host" where that is a card's: kv_memory MiB
  // of all are in memory (-1: half of what it could give), others in a file there or on the host, unchanged.
  std::string kv_offload = {};
  int kv_memory = -1;
  bool kv_offload_anyway =
      false;  // even where reading that file makes a step twice as slow and q8_0 would fit
  Bf16Arithmetic bf16_weights = Bf16Arithmetic::kF32;
  AttentionKind attention = AttentionKind::kFlash;
  RopeOptions rope = {};
  // What generations will ask for: the draft model it names is part of the memory plan. Each request has its
  // own.
  SpeculationOptions speculation = {};
  PartialVerificationOptions partial_verification = {};  // the same of its working set
  // How chats are written, instead of the file's own template: the name that llama.cpp has for one ("chatml",
  // "llama3", "mistral-v7", ...), or the source of one, in Jinja. Empty: the file's; "chatml" if it has none.
  std::string chat_template = {};
  bool vocab_only =
      false;  // the tokenizer and chat template only: no weights are read, nothing can be generated
  // What Engine::MeasureCosts finds is measured once per model and machine (again after a day if the machine
  // was busy then), and kept in $XDG_CACHE_HOME/longspec or ~/.cache/longspec; so is what
  // it learned of drafts that take time.
  bool calibration_cache = true;
  // A folder where repacked weights are kept, so that the next load of the same model file maps them instead
  // of repacking, and processes share their memory; made if need be. Empty: they are not kept. Never changes
  // output. Counts for the draft model of type "lm" too.
  std::string weights_cache = {};
  // Where the model runs: "cpu", "cuda" (the first card), "cuda:N", or "auto", the first card where one can
  // be used for this model and has room for it, else the CPU. Never changes output.
  std::string device = "cpu";
  std::string kernels = {};  // a kernel table by name; empty: $LONGSPEC_KERNELS, else the best this CPU has
  // Called before weights are read (again if a card fails then, for the CPU): what they and all else take.
  std::function<void(const ModelInfo&)> on_plan = {};
  // Called from the loading thread with the share done, 0 to 1. Return false to cancel.
  std::function<bool(double)> on_progress = {};
  // Called with one line for what went wrong without stopping the load: a weights_cache that cannot be read
  // or written. A draft model is loaded by the first generation that asks for it.
  std::function<void(const std::string&)> on_warning = {};
};

}  // namespace longspec
