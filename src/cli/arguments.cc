// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status_macros.h"

namespace longspec::cli {
namespace {

using enum ForeignOption::Values;
using enum ForeignOption::Treatment;
using Spellings = std::array<std::string_view, 6>;

// Commands that ...
constexpr std::string_view kLoad = "--threads";        // load a model
constexpr std::string_view kDraft = "--spec-type";     // guess
constexpr std::string_view kSample = "--temp";         // draw tokens
constexpr std::string_view kServe = "--port";          // listen
constexpr std::string_view kAsk = "--prompt";          // are asked one thing
constexpr std::string_view kTalk = "--system-prompt";  // are told how to behave

constexpr ForeignOption Spelling(Spellings spellings, std::string_view option, std::string_view needs = {}) {
  return {spellings, kOne, kSpelling, needs, {option}};
}
constexpr ForeignOption Renamed(Spellings spellings, std::string_view option, std::string_view needs = {}) {
  return {spellings, kOne, kRenamed, needs, {option}};
}
constexpr ForeignOption NoEffect(Spellings spellings, std::string_view needs,
                                 ForeignOption::Values values = kNone) {
  return {spellings, values, kNoEffect, needs};
}
constexpr ForeignOption Refused(Spellings spellings, std::string_view needs, ForeignOption::Values values,
                                std::string_view text, std::string_view harmless = {}) {
  return {spellings, values, kRefused, needs, {}, text, harmless};
}

constexpr std::string_view kDownload = "nothing is downloaded: -m names a file of this machine";
constexpr std::string_view kMedia = "images, audio and video are not supported";
constexpr std::string_view kMerge = "is not supported: merge it into the model's file";
constexpr std::string_view kSampler =
    "is not supported: there are the penalties, --top-k, --top-p, --min-p and --temp";
constexpr std::string_view kTemplate = "is not supported: chats are written by the model's own template";
constexpr std::string_view kEmbeddings = "is not supported: this program writes text";
constexpr std::string_view kTools = "is not supported: clients run tools, which they offer in their requests";
constexpr std::string_view kTls = "is not supported: TLS is the business of a proxy in front";
constexpr std::string_view kOneModel = "is not supported: a server has one model, that of -m";
constexpr std::string_view kChats = "is not supported here: serve, batch, run and chat write chats";

constexpr ForeignOption kForeignOptions[] = {
    // --- What has an equal here. ---
    Spelling({"-sys"}, "--system-prompt"),
    Spelling({"-ctk"}, "--cache-type-k"),
    Spelling({"-ctv"}, "--cache-type-v"),
    Spelling({"-jf"}, "--json-schema-file"),
    Spelling({"-md", "--model-draft"}, "--spec-draft-model"),
    Spelling({"-np"}, "--parallel"),
    Spelling({"--n-predict"}, "--predict"),
    Spelling({"-cram"}, "--cache-ram"),
    Spelling({"-to"}, "--timeout", kServe),
    Spelling({"-l"}, "--logit-bias", kSample),
    Spelling({"-rea"}, "--reasoning"),
    Spelling({"-bf", "--binary-file"}, "--file", kAsk),
    {{"--ui"}, kNone, kSpelling, kServe, {"--webui"}},
    {{"--no-ui"}, kNone, kSpelling, kServe, {"--no-webui"}},
    {{"--log-verbose"}, kNone, kSpelling, kLoad, {"--verbose"}},
    {{"--usage"}, kNone, kSpelling, {}, {"--help"}},
    Renamed({"--prompt-cache"}, "--session"),
    Renamed({"-ub", "--ubatch-size"}, "--batch-size"),
    Renamed({"--kv-unified-per-slot"}, "--ctx-size", kServe),
    // llama.cpp before 2026
    Renamed({"--draft", "--draft-n", "--draft-max"}, "--spec-draft-n-max"),
    Renamed({"--draft-min", "--draft-n-min"}, "--spec-draft-n-min"),
    Renamed({"--spec-ngram-size-n"}, "--spec-ngram-max"),
    Renamed({"--spec-ngram-size-m"}, "--spec-draft-n-max"),
    {{"-cnv", "--conversation"}, kNone, kRenamed, kAsk, {"--chat"}},
    {{"-no-cnv", "--no-conversation"}, kNone, kRenamed, kAsk, {"--no-chat"}},
    // vLLM, SGLang, MLX-LM, transformers
    Renamed({"--num-speculative-tokens", "--speculative-num-draft-tokens", "--num-draft-tokens",
             "--prompt-lookup-num-tokens"},
            "--spec-draft-n-max"),
    Renamed({"--prompt-lookup-max", "--max-matching-ngram-size"}, "--spec-ngram-max"),
    Renamed({"--prompt-lookup-min"}, "--spec-ngram-min"),
    Renamed({"--max-model-len"}, "--ctx-size"),
    Renamed({"--max-tokens"}, "--predict"),

    // --- What sets something else. ---
    {{"--spec-default"}, kNone, kSets, kDraft, {"--spec-type=auto"}, "is --spec-type auto here"},

    // --- What has no effect: the text would be the same with it, or it is about what is not there. ---
    // Threads, memory, devices.
    NoEffect({"-tb", "--threads-batch"}, kLoad, kOne),
    NoEffect({"-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict"}, kLoad, kOne),
    NoEffect({"-Cb", "--cpu-mask-batch", "-Crb", "--cpu-range-batch", "--cpu-strict-batch"}, kLoad, kOne),
    NoEffect({"--prio", "--prio-batch", "--poll", "--poll-batch", "--numa"}, kLoad, kOne),
    NoEffect({"-fa", "--flash-attn"}, kLoad, kSwitch),
    NoEffect({"--mlock", "--mmap", "--no-mmap"}, kLoad),
    NoEffect({"-dio", "--direct-io", "-ndio", "--no-direct-io"}, kLoad),
    NoEffect({"-lm", "--load-mode", "-lzm", "--lazy-mode"}, kLoad, kOne),
    NoEffect({"-kvo", "-nkvo", "--no-kv-offload"}, kLoad),
    NoEffect({"--repack", "-nr", "--no-repack", "--no-host"}, kLoad),
    NoEffect({"--op-offload", "--no-op-offload", "--check-tensors", "--swa-full"}, kLoad),
    NoEffect({"-ngl", "--gpu-layers", "--n-gpu-layers"}, kLoad, kOne),
    NoEffect({"-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu"}, kLoad, kOne),
    NoEffect({"-dev", "--device", "-ot", "--override-tensor", "--rpc"}, kLoad, kOne),
    NoEffect({"-cmoe", "--cpu-moe"}, kLoad),
    NoEffect({"-ncmoe", "--n-cpu-moe", "--moe-cache-mib", "-ncffn", "--n-cpu-ffn"}, kLoad, kOne),
    NoEffect({"-fit", "--fit"}, kLoad, kSwitch),
    NoEffect({"-fitt", "--fit-target", "-fitc", "--fit-ctx"}, kLoad, kOne),
    NoEffect({"--perf", "--no-perf", "--warmup", "--no-warmup", "--offline"}, kLoad),
    NoEffect({"-hft", "--hf-token"}, kLoad, kOne),
    NoEffect({"--lora-init-without-apply"}, kLoad),
    // The cache.
    NoEffect({"-dt", "--defrag-thold", "--keep"}, kLoad, kOne),
    NoEffect({"-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", "-cms", "--checkpoint-min-step"}, kLoad,
             kOne),
    NoEffect({"-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"}, kLoad),
    NoEffect({"--no-context-shift"}, kLoad),
    NoEffect({"--cache-prompt", "--cache-idle-slots", "--no-cache-idle-slots"}, kServe),
    NoEffect({"--cache-reuse", "-sps", "--slot-prompt-similarity"}, kServe, kOne),
    // The log.
    NoEffect({"--log-disable", "--no-log-jsonl", "--log-prefix", "--no-log-prefix"}, kLoad),
    NoEffect({"--log-timestamps", "--no-log-timestamps"}, kLoad),
    NoEffect({"--log-file", "--log-format", "--log-prompts-dir"}, kLoad, kOne),
    NoEffect({"-lv", "--verbosity", "--log-verbosity"}, kLoad, kOne),
    NoEffect({"--log-colors"}, kLoad, kSwitch),
    // Sampling: of samplers that are off, and where it is done.
    NoEffect({"--xtc-threshold", "--dry-base", "--dry-allowed-length", "--dry-penalty-last-n",
              "--dry-sequence-breaker"},
             kSample, kOne),
    NoEffect({"--adaptive-decay", "--dynatemp-exp", "--mirostat-lr", "--mirostat-ent"}, kSample, kOne),
    NoEffect({"-bs", "--backend-sampling"}, kSample),
    // Guesses, which never change a text.
    NoEffect({"-td", "--threads-draft", "--spec-draft-threads"}, kDraft, kOne),
    NoEffect({"-tbd", "--threads-batch-draft", "--spec-draft-threads-batch"}, kDraft, kOne),
    NoEffect({"-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"}, kDraft, kOne),
    NoEffect({"-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"}, kDraft, kOne),
    NoEffect({"--spec-draft-p-split", "--draft-p-split", "--spec-draft-sampling"}, kDraft, kOne),
    NoEffect({"--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft"}, kDraft, kOne),
    NoEffect({"--spec-draft-cpu-range", "-Crd", "--cpu-range-draft"}, kDraft, kOne),
    NoEffect({"--spec-draft-cpu-strict", "--cpu-strict-draft"}, kDraft, kOne),
    NoEffect({"--spec-draft-prio", "--prio-draft", "--spec-draft-poll", "--poll-draft"}, kDraft, kOne),
    NoEffect({"--spec-draft-cpu-mask-batch", "-Cbd", "--cpu-mask-batch-draft"}, kDraft, kOne),
    NoEffect({"--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"}, kDraft, kOne),
    NoEffect(
        {"--spec-draft-prio-batch", "--prio-batch-draft", "--spec-draft-poll-batch", "--poll-batch-draft"},
        kDraft, kOne),
    NoEffect({"--spec-draft-override-tensor", "-otd", "--override-tensor-draft"}, kDraft, kOne),
    NoEffect({"--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"}, kDraft),
    NoEffect({"--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"}, kDraft, kOne),
    NoEffect({"--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling"}, kDraft),
    NoEffect({"--spec-draft-device", "-devd", "--device-draft"}, kDraft, kOne),
    NoEffect({"--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"}, kDraft, kOne),
    NoEffect({"--spec-synth-len", "--spec-synth-rates", "--spec-ngram-min-hits"}, kDraft, kOne),
    NoEffect({"--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max", "--spec-ngram-mod-n-match"}, kDraft, kOne),
    NoEffect({"--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m", "--spec-ngram-simple-min-hits"},
             kDraft, kOne),
    NoEffect({"--spec-ngram-map-k-size-n", "--spec-ngram-map-k-size-m", "--spec-ngram-map-k-min-hits"},
             kDraft, kOne),
    NoEffect({"--spec-ngram-map-k4v-size-n", "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-min-hits"},
             kDraft, kOne),
    NoEffect({"-lcs", "--lookup-cache-static", "-lcd", "--lookup-cache-dynamic"}, kDraft, kOne),
    // Chats. Templates are always Jinja's.
    NoEffect({"--jinja", "--no-jinja", "--no-skip-chat-parsing"}, kLoad),
    NoEffect({"--prefill-assistant", "--reasoning-preserve"}, kLoad),
    NoEffect({"--reasoning-budget-message"}, kLoad, kOne),
    // Media, without which there is nothing to be said about them.
    NoEffect({"--mmproj-auto", "--no-mmproj", "--no-mmproj-auto", "--mmproj-offload", "--no-mmproj-offload"},
             kLoad),
    NoEffect({"-mmdev", "--mmproj-device", "--image-min-tokens", "--image-max-tokens"}, kLoad, kOne),
    NoEffect({"--mtmd-batch-max-tokens", "--video-fps", "--video-timestamp-interval", "--video-ffmpeg-dir",
              "--media-path"},
             kLoad, kOne),
    // The server.
    NoEffect({"-cb", "--cont-batching", "-nocb", "--no-cont-batching"}, kServe),
    NoEffect({"--props", "--reuse-port", "-no-ag", "--no-agent"}, kServe),
    NoEffect({"--cors-methods", "--cors-headers", "--tags", "--sleep-idle-seconds"}, kServe, kOne),
    NoEffect({"--ui-config", "--webui-config", "--ui-config-file", "--webui-config-file"}, kServe, kOne),
    NoEffect({"--ui-mcp-proxy", "--webui-mcp-proxy", "--no-ui-mcp-proxy", "--no-webui-mcp-proxy"}, kServe),
    NoEffect({"--models-max", "--pooling", "--embd-normalize"}, kServe, kOne),
    NoEffect({"--models-autoload", "--no-models-autoload"}, kServe),
    // A terminal.
    NoEffect({"-co", "--color"}, kTalk, kSwitch),
    NoEffect({"--simple-io", "-mli", "--multiline-input", "--show-timings", "--no-show-timings"}, kTalk),
    NoEffect({"--display-prompt", "--no-display-prompt", "--verbose-prompt"}, kTalk),
    NoEffect({"-st", "--single-turn", "--prompt-cache-all", "--no-escape"}, kAsk),
    NoEffect({"-ptc", "--print-token-count"}, kAsk, kOne),
    NoEffect({"-cnv", "--conversation"}, kTalk),
    NoEffect({"-e", "--escape", "--no-escape"}, kServe),

    // --- What would change the answer, or is asked for in vain. ---
    Refused({"-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"}, kLoad, kOne, kDownload),
    Refused({"-mu", "--model-url", "-dr", "--docker-repo"}, kLoad, kOne, kDownload),
    Refused({"--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"}, kDraft, kOne,
            "nothing is downloaded: --spec-draft-model names a file of this machine"),
    Refused({"--embd-gemma-default", "--fim-qwen-1.5b-default", "--fim-qwen-3b-default",
             "--fim-qwen-7b-default", "--fim-qwen-7b-spec"},
            kLoad, kNone, kDownload),
    Refused({"--fim-qwen-14b-spec", "--fim-qwen-30b-default", "--gpt-oss-20b-default",
             "--gpt-oss-120b-default", "--vision-gemma-4b-default", "--vision-gemma-12b-default"},
            kLoad, kNone, kDownload),
    Refused({"-cl", "--cache-list", "--list-devices", "--completion-bash"}, kLoad, kNone,
            "there is nothing of the kind to list: longspec info says what this machine has"),
    Refused({"--version"}, kLoad, kNone, "is given without a command: longspec --version"),
    Refused({"--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"}, kLoad, kOne, kMerge),
    Refused({"--control-vector-layer-range"}, kLoad, kTwo, kMerge),
    Refused({"--override-kv"}, kLoad, kOne, "is not supported: what the model's file says counts"),
    Refused({"--rope-freq-scale"}, kLoad, kOne, "is called --rope-scale here, and is its inverse"),
    Refused({"-gan", "--grp-attn-n", "-gaw", "--grp-attn-w"}, kLoad, kOne,
            "is not supported: --rope-scaling yarn --rope-scale N extends a context"),
    Refused({"--context-shift"}, kLoad, kNone,
            "is not supported: an answer ends where the context is full; -c makes it larger"),
    Refused({"-sp", "--special"}, kLoad, kNone,
            "is not supported: control tokens are no part of an answer's text"),
    Refused({"-mm", "--mmproj", "-mmu", "--mmproj-url"}, kLoad, kOne, kMedia),
    Refused({"--image", "--audio", "--video"}, kAsk, kOne, kMedia),
    Refused({"--sampler-seq", "--sampling-seq"}, kSample, kOne, "is called --samplers here, and has names"),
    Refused({"--typical", "--typical-p"}, kSample, kOne, kSampler, "1"),
    Refused({"--xtc-probability", "--dry-multiplier", "--dynatemp-range", "--mirostat"}, kSample, kOne,
            kSampler, "0"),
    Refused({"--top-nsigma", "--top-n-sigma", "--adaptive-target"}, kSample, kOne, kSampler, "-1"),
    Refused({"--chat-template", "--chat-template-file"}, kLoad, kOne, kChats),
    Refused({"--no-prefill-assistant"}, kLoad, kNone, kTemplate),
    Refused({"--skip-chat-parsing"}, kLoad, kNone, "is not supported: calls of tools are always read"),
    Refused({"--reasoning-format"}, kTalk, kOne, "is not supported: an answer is shown as it is written",
            "auto,none"),
    Refused({"--reasoning-format"}, kLoad, kOne, kChats, "auto"),
    Refused({"-rea", "--reasoning"}, kLoad, kSwitch, kChats, "auto"),
    Refused({"--reasoning-effort"}, kLoad, kOne, kChats, "default"),
    Refused({"--reasoning-budget"}, kLoad, kOne, kChats, "-1"),
    Refused({"--no-reasoning-preserve"}, kLoad, kNone, kChats),
    Refused({"--embedding", "--embeddings", "--rerank", "--reranking"}, kServe, kNone, kEmbeddings),
    Refused({"--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json"}, kServe, kOne,
            kTools),
    Refused({"-ag", "--agent"}, kServe, kNone, kTools),
    Refused({"--models-dir", "--models-preset"}, kServe, kOne, kOneModel),
    Refused({"--ssl-key-file", "--ssl-cert-file"}, kServe, kOne, kTls),
    Refused({"--path"}, kServe, kOne, "is not supported: files are the business of a proxy in front"),
    Refused({"-e", "--escape"}, kAsk, kNone,
            "is not supported: the shell makes line breaks of $'one\\ntwo', and -f takes a file"),
    Refused({"-sysf", "--system-prompt-file"}, kTalk, kOne,
            "is not supported: --system-prompt \"$(cat FILE)\" is the same"),
    Refused({"-i", "--interactive", "-if", "--interactive-first"}, kAsk, kNone,
            "is not supported: longspec chat leads a conversation"),
    Refused({"--in-prefix", "--in-suffix"}, kAsk, kOne, kTemplate),
    Refused({"--in-prefix-bos"}, kAsk, kNone, kTemplate),
    Refused({"--prompt-cache-ro"}, kAsk, kNone, "is not supported: a --session is kept up to date"),
    Refused({"-o", "--output", "--output-file"}, kAsk, kOne,
            "is not supported: > FILE of the shell does that"),
    Refused({"--server-base"}, kTalk, kOne, "is not supported: the model of -m answers"),
};

// -1 and -1.00 are one value.
bool AreEqual(std::string_view a, std::string_view b) {
  double x = 0, y = 0;
  const auto is_number = [](std::string_view text, double* number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc() && end == text.data() + text.size();
  };
  return is_number(a, &x) && is_number(b, &y) ? x == y : a == b;
}

}  // namespace

bool ForeignOption::Has(std::string_view spelling) const {
  return !spelling.empty() && std::ranges::find(spellings, spelling) != spellings.end();
}

bool ForeignOption::IsHarmless(std::string_view value) const {
  for (size_t begin = 0; begin < harmless.size();) {
    const size_t end = std::min(harmless.find(',', begin), harmless.size());
    if (AreEqual(harmless.substr(begin, end - begin), value)) return true;
    begin = end + 1;
  }
  return false;
}

std::span<const ForeignOption> ForeignOptions() { return kForeignOptions; }

bool IsSwitch(std::string_view value) {
  constexpr std::string_view kSwitches[] = {"on", "off",  "auto",  "1",       "0",
                                            "-1", "true", "false", "enabled", "disabled"};
  return std::ranges::find(kSwitches, value) != std::end(kSwitches);
}

namespace {

using Treatment = ForeignOption::Treatment;
using Values = ForeignOption::Values;

// "-abc" or "-a-b": letters after a single dash. "-n128", "-n-1" and "-m./file" are short options with their
// values.
bool IsUnknownSingleDash(std::string_view name) {
  return name.size() > 2 && name[0] == '-' && name[1] != '-' &&
         std::all_of(name.begin() + 1, name.end(),
                     [](char c) { return c == '-' || std::isalpha(static_cast<unsigned char>(c)) != 0; });
}

// "-ngl, -fa and --mlock have no effect here"
std::string NoEffectWarning(const std::vector<std::string>& names) {
  std::string text = names.front();
  for (size_t i = 1; i < names.size(); ++i) text += (i + 1 < names.size() ? ", " : " and ") + names[i];
  return text + (names.size() > 1 ? " have no effect here" : " has no effect here");
}

class Normalizer {
 public:
  Normalizer(std::vector<std::string> args, const std::function<OptionKind(const std::string&)>& kind_of)
      : args_(std::move(args)), kind_of_(kind_of) {}

  Result<NormalizedArguments> Run() {
    while (at_ < args_.size()) LS_TRY(Next());
    if (!without_effect_.empty()) out_.warnings.push_back(NoEffectWarning(without_effect_));
    return std::move(out_);
  }

 private:
  Status Next() {
    const std::string& arg = args_[at_++];
    if (arg.size() < 2 || arg[0] != '-') {
      out_.args.push_back(arg);
      return {};
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    attached_.reset();
    if (equals != std::string::npos) attached_ = arg.substr(equals + 1);
    if (kind_of_(name) == OptionKind::kUnknown) {
      if (const ForeignOption* foreign = FindForeign(name); foreign != nullptr) return Take(*foreign, name);
      if (IsUnknownSingleDash(name)) return InvalidArgument("unknown option " + name);
    }
    Push(name);
    return {};
  }

  const ForeignOption* FindForeign(std::string_view name) const {
    const auto known = [this](std::string_view option) {
      return kind_of_(std::string(option)) != OptionKind::kUnknown;
    };
    for (const ForeignOption& foreign : ForeignOptions()) {
      if (!foreign.Has(name) || (!foreign.needs.empty() && !known(foreign.needs))) continue;
      if (foreign.needs.empty() && !known(foreign.options[0])) continue;
      return &foreign;
    }
    return nullptr;
  }

  // An option as the command knows it, with its value if it takes one.
  void Push(const std::string& option) {
    const bool valued = kind_of_(option) == OptionKind::kValued;
    if (!attached_) {
      out_.args.push_back(option);
      if (valued && at_ < args_.size()) out_.args.push_back(args_[at_++]);
    } else if (valued && attached_->empty() && option.starts_with("--")) {
      // CLI11 would take the next argument for a value that is attached and empty.
      out_.args.push_back(option);
      out_.args.emplace_back();
    } else {
      out_.args.push_back(option + "=" + *attached_);
    }
  }

  // What follows a foreign option; nothing: it has no value.
  std::optional<std::string> TakeValue(Values values) {
    std::optional<std::string> value = std::exchange(attached_, std::nullopt);
    const auto take = [&] { return at_ < args_.size() ? args_[at_++] : std::string(); };
    if (!value && (values == Values::kOne || values == Values::kTwo)) value = take();
    if (!value && values == Values::kSwitch && at_ < args_.size() && IsSwitch(args_[at_])) value = take();
    if (values == Values::kTwo) take();
    return value;
  }

  Status Take(const ForeignOption& foreign, const std::string& name) {
    switch (foreign.treatment) {
      case Treatment::kRenamed:
        out_.warnings.push_back(name + " is called " + std::string(foreign.options[0]) + " here");
        [[fallthrough]];
      case Treatment::kSpelling:
        Push(std::string(foreign.options[0]));
        return {};
      case Treatment::kSets:
        out_.warnings.push_back(name + " " + std::string(foreign.text));
        Set(foreign);
        return {};
      case Treatment::kNoEffect:
        TakeValue(foreign.values);
        return WithoutEffect(name);
      case Treatment::kRefused:
        const auto value = TakeValue(foreign.values);
        if (value && foreign.IsHarmless(*value)) return WithoutEffect(name);
        return InvalidArgument(name + (foreign.harmless.empty() || !value ? "" : " " + *value) + ": " +
                               std::string(foreign.text));
    }
    return {};
  }

  void Set(const ForeignOption& foreign) {
    const auto value = TakeValue(foreign.values);
    for (const std::string_view option : foreign.options) {
      if (option.empty()) continue;
      attached_ = value;
      if (option.find('=') != std::string_view::npos) {
        out_.args.emplace_back(option);
      } else {
        Push(std::string(option));
      }
    }
  }

  Status WithoutEffect(const std::string& name) {
    if (std::ranges::find(without_effect_, name) == without_effect_.end()) without_effect_.push_back(name);
    return {};
  }

  const std::vector<std::string> args_;
  const std::function<OptionKind(const std::string&)>& kind_of_;
  size_t at_ = 0;                        // the next argument
  std::optional<std::string> attached_;  // the value after '=' of the one before
  std::vector<std::string> without_effect_;
  NormalizedArguments out_;
};

}  // namespace

Result<NormalizedArguments> NormalizeArguments(std::vector<std::string> args,
                                               const std::function<OptionKind(const std::string&)>& kind_of) {
  return Normalizer(std::move(args), kind_of).Run();
}

}  // namespace longspec::cli
