// SPDX-License-Identifier: Apache-2.0
#include "api/field_rules.h"

namespace longspec::api {
namespace {

using enum Treatment;

constexpr std::string_view kNoThinkingLimit =
    "how long a model thinks is not limited here, but 0 turns it off";
constexpr std::string_view kNoMoreSamplers =
    "the samplers here are penalties, top_k, top_p, min_p and temperature";

constexpr FieldRule kRules[] = {
    // --- Who asks, how soon, what is kept. ---
    {"user"},
    {"metadata"},
    {"store"},
    {"service_tier"},
    {"safety_identifier"},
    {"request_id"},
    {"rid"},
    {"session_id"},
    {"priority"},
    {"cache_salt"},
    {"prompt_cache_key"},
    {"prompt_cache_retention"},
    {"prompt_cache_options"},
    {"n_cache_reuse"},
    {"n_keep"},
    {"n_discard"},
    {"backend_sampling"},
    {"kv_transfer_params"},
    {"ec_transfer_params"},
    {"guided_decoding_backend"},
    {"stream_interval"},
    {"verbose"},
    // Of media, which nothing here has.
    {"media_io_kwargs"},
    {"mm_processor_kwargs"},
    // What other fields, which are refused, would need.
    {"penalize_nl"},
    {"dry_base"},
    {"dry_allowed_length"},
    {"dry_penalty_last_n"},
    {"dry_sequence_breakers"},
    {"mirostat_tau"},
    {"mirostat_eta"},
    {"xtc_threshold"},
    {"dynatemp_exponent"},
    {"adaptive_decay"},
    {"length_penalty"},
    {"preserved_tokens"},
    {"truncation_side", kRefused, kOfAll, R"(["left"])", "the last tokens of a prompt are kept"},
    {"spaces_between_special_tokens"},

    // --- How an answer looks, not what it says. ---
    {"response_fields", kNothing, kOfChats | kOfTexts},
    {"parse_tool_calls", kIgnored},
    {"reasoning_format", kIgnored, kOfPrompts},
    {"reasoning_in_content", kIgnored},
    {"include_reasoning", kIgnored, kOfPrompts},
    {"separate_reasoning", kIgnored, kOfPrompts},
    {"stream_reasoning", kIgnored},
    {"verbosity", kIgnored},
    {"truncation", kIgnored},
    {"return_tokens_as_token_ids", kRefused, kOfAll, "[false]", "return_tokens gives the numbers of tokens"},
    {"return_token_ids", kRefused, kOfAll, "[false]", "return_tokens gives the numbers of tokens"},
    {"return_prompt_text", kRefused, kOfAll, "[false]", "POST /apply-template gives the text of a prompt"},
    {"return_hidden_states", kRefused, kOfAll, "[false]"},
    {"skip_special_tokens", kRefused, kOfAll, "[true]", "return_tokens gives the numbers of tokens"},
    {"post_sampling_probs", kRefused, kOfAll, "[false]",
     "n_probs gives the model's own chances, before temperature and filters"},
    {"prompt_logprobs", kRefused, kOfAll, "[]",
     "the chances of a prompt's tokens are not computed; logprobs gives those of the answer"},
    {"logprob_token_ids", kRefused, kOfAll, "[[]]", "logprobs gives the likeliest tokens"},

    // --- What an answer is made of. ---
    {"functions", kRefused, kOfAll, "[[]]", "tools is its name today"},
    {"function_call", kRefused, kOfAll, R"(["none", "auto"])", "tool_choice is its name today"},
    {"tools", kRefused, kOfPrompts, "[[]]", "chats have tools: /v1/chat/completions"},
    {"tool_choice", kRefused, kOfPrompts, R"(["none", "auto"])", "chats have tools: /v1/chat/completions"},
    {"parallel_tool_calls", kNothing, kOfPrompts},
    {"messages", kRefused, kOfPrompts, "[[]]", "a chat goes to /v1/chat/completions"},
    {"prompt", kRefused, kOfChats, R"([""])", "a prompt goes to /v1/completions or /completion"},
    {"input", kRefused, kOfPrompts, "[]", "it goes to /v1/responses"},
    {"echo", kRefused, kOfChats | kOfLlama, "[false]", "/v1/completions repeats a prompt before its answer"},
    {"prompt_embeds", kRefused, kOfAll, "[]", "a prompt is a text or token numbers"},
    {"suffix", kRefused, kOfChats | kOfLlama, R"([""])",
     "a text with a hole goes to /v1/completions or /infill"},
    // No answer comes sooner if its prompt is given up: it is evaluated to its end, as llama.cpp does.
    {"t_max_prompt_ms", kIgnored},
    {"modalities", kRefused, kOfAll, R"([["text"]])", "answers are texts"},
    {"audio", kRefused, kOfAll, "[]", "answers are texts"},
    {"web_search_options", kRefused, kOfAll, "[]", "a search can be one of the tools"},
    {"plugins", kRefused, kOfAll, "[[]]", "tools are functions of the client's own"},
    {"safe_prompt", kRefused, kOfAll, "[false]", "the first message can say what is wished for"},
    {"chat_template", kRefused, kOfAll, "[]",
     "the model's own is used, with chat_template_kwargs for its variables; a prompt of another form goes to "
     "/v1/completions"},
    {"add_special_tokens", kRefused, kOfChats, "[false]", "the chat template says what a prompt begins with"},
    {"add_special_tokens", kRefused, kOfPrompts, "[true]", "a list of token numbers is taken as it is"},
    {"lora", kRefused, kOfAll, "[[]]", "adapters are not supported"},
    {"lora_path", kRefused, kOfAll, "[]", "adapters are not supported"},
    {"session_params", kRefused, kOfAll, "[{}]", "a prompt that begins like an earlier one is known"},
    {"logits_processors", kRefused, kOfAll, "[[]]", "logit_bias and grammar can say which tokens are chosen"},
    {"custom_logit_processor", kRefused, kOfAll, "[]",
     "logit_bias and grammar can say which tokens are chosen"},
    {"custom_params", kNothing},
    {"vllm_xargs", kRefused, kOfAll, "[{}]", "there are no extensions"},

    // --- Of the template, where there is one. ---
    {"chat_template_kwargs", kIgnored, kOfPrompts},
    {"reasoning", kIgnored, kOfPrompts},
    {"reasoning_effort", kIgnored, kOfPrompts},
    {"enable_thinking", kIgnored, kOfPrompts},
    {"thinking", kIgnored, kOfPrompts},
    {"add_generation_prompt", kIgnored, kOfPrompts},
    {"continue_final_message", kIgnored, kOfPrompts},
    {"documents", kIgnored, kOfPrompts},
    {"thinking_token_budget", kRefused, kOfAll, "[-1, 0]", kNoThinkingLimit},
    {"thinking_budget_tokens", kRefused, kOfAll, "[-1, 0]", kNoThinkingLimit},
    {"thinking_budget", kRefused, kOfAll, "[-1, 0]", kNoThinkingLimit},
    {"reasoning_budget_tokens", kRefused, kOfAll, "[-1, 0]", kNoThinkingLimit},
    {"reasoning_budget", kRefused, kOfAll, "[-1, 0]", kNoThinkingLimit},

    // --- How tokens are chosen, and where it ends. ---
    {"use_beam_search", kRefused, kOfAll, "[false]", "n gives several answers"},
    {"watermarking", kRefused, kOfAll, "[false]"},
    {"repetition_detection", kRefused, kOfAll, "[]", "repeat_penalty makes repetitions less likely"},
    {"stop_regex", kRefused, kOfAll, "[[]]", "stop takes texts"},
    {"min_keep", kRefused, kOfAll, "[0, 1]", kNoMoreSamplers},
    {"typical_p", kRefused, kOfAll, "[1]", kNoMoreSamplers},
    {"dynatemp_range", kRefused, kOfAll, "[0]", kNoMoreSamplers},
    {"xtc_probability", kRefused, kOfAll, "[0]", kNoMoreSamplers},
    {"dry_multiplier", kRefused, kOfAll, "[0]", kNoMoreSamplers},
    {"mirostat", kRefused, kOfAll, "[0]", kNoMoreSamplers},
    {"top_n_sigma", kRefused, kOfAll, "[-1, 0]", kNoMoreSamplers},
    {"adaptive_target", kRefused, kOfAll, "[-1]", kNoMoreSamplers},
    {"grammar_lazy", kRefused, kOfAll, "[false]", "tools are constrained where a call begins"},
    {"grammar_triggers", kRefused, kOfAll, "[[]]", "response_format of type structural_tag has triggers"},
    {"guided_whitespace_pattern", kRefused, kOfAll, "[]", "grammar can say what white space there is"},
    {"image_data", kRefused, kOfAll, "[[]]", "prompts are texts"},
    {"multimodal_data", kRefused, kOfAll, "[[]]", "prompts are texts"},
};

}  // namespace

std::span<const FieldRule> CompletionRules() { return kRules; }

void KeepRules(std::span<const FieldRule> rules, uint8_t api, Fields& fields,
               std::vector<std::string>* ignored) {
  for (const FieldRule& rule : rules) {
    if ((rule.apis & api) == 0) continue;
    if (rule.treatment == kRefused) {
      fields.Only(rule.name, rule.allowed, rule.advice);
    } else if (fields.Find(rule.name) != nullptr && rule.treatment == kIgnored) {
      ignored->emplace_back(rule.name);
    }
  }
}

}  // namespace longspec::api
