// SPDX-License-Identifier: Apache-2.0
#include "chat/builtin_templates.h"

#include <algorithm>
#include <iterator>

namespace longspec::chat {
namespace {

// A template is its settings and a body, which several share. The token that begins a text is no part of it:
// the tokenizer knows whether there is one.
struct BuiltinTemplate {
  std::string_view name, settings, body;
};

// --- Bodies: what stands around a message's content, by its role. ---

// {{ before(role) }} content {{ after }}, and what begins the answer.
constexpr std::string_view kUniform =
    "{% for m in messages %}"
    "{{ a + m.role + b + (m.content | trim if trims else m.content) + c }}{% endfor %}"
    "{% if add_generation_prompt %}{{ a + 'assistant' + b }}{% endif %}";

constexpr std::string_view kLlama2 =
    "{% set turn = namespace(open=true) %}{{ '[INST] ' }}{% for m in messages %}"
    "{% set content = m.content | trim if trims else m.content %}"
    "{% if not turn.open %}{% set turn.open = true %}{{ again + '[INST] ' }}{% endif %}"
    "{% if m.role == 'system' %}"
    "{{ '<<SYS>>\n' + content + '\n<</SYS>>\n\n' if has_system else content + '\n' }}"
    "{% elif m.role == 'user' %}{{ content + ' [/INST]' }}"
    "{% else %}{{ content + '</s>' }}{% set turn.open = false %}{% endif %}{% endfor %}";

constexpr std::string_view kMistral =
    "{% set turn = namespace(open=false) %}{% for m in messages %}"
    "{% if not turn.open %}{% set turn.open = true %}{{ before + '[INST]' + after }}{% endif %}"
    "{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
    "{% elif m.role == 'user' %}{{ m.content + before + '[/INST]' }}"
    "{% else %}{{ after + (m.content | trim if trims else m.content) + '</s>' }}{% set turn.open = false %}"
    "{% endif %}{% endfor %}";

constexpr std::string_view kMistral7 =
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + after + m.content + '[/SYSTEM_PROMPT]' }}"
    "{% elif m.role == 'user' %}{{ '[INST]' + after + m.content + '[/INST]' }}"
    "{% else %}{{ after + m.content + '</s>' }}{% endif %}{% endfor %}";

constexpr std::string_view kGemma =
    "{% set system = namespace(text='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set system.text = system.text + (m.content | trim) %}{% else %}"
    "{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<start_of_turn>' + role + '\n' }}"
    "{% if system.text and role != 'model' %}{{ system.text + '\n\n' }}{% set system.text = '' %}{% endif %}"
    "{{ (m.content | trim) + '<end_of_turn>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";

constexpr std::string_view kMonarch =
    "{% for m in messages %}{{ ('' if loop.first else '<s>') + m.role + '\n' + m.content + '</s>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}";

constexpr std::string_view kOpenChat =
    "{% for m in messages %}{% if m.role != 'system' %}{{ 'GPT4 Correct ' + (m.role | capitalize) + ': ' }}"
    "{% endif %}{{ m.content + '<|end_of_turn|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}";

constexpr std::string_view kVicuna =
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{{ system + m.content + after_system }}"
    "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}"
    "{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";

// By roles of fixed names, each with what stands before and behind its content.
constexpr std::string_view kThreeRoles =
    "{% for m in messages %}{% set content = m.content | trim if trims else m.content %}"
    "{% if m.role == 'system' %}{{ system[0] + content + system[1] }}"
    "{% elif m.role == 'user' %}{{ user[0] + content + user[1] }}"
    "{% elif m.role == 'assistant' %}{{ answer[0] + content + answer[1] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ begin }}{% endif %}";

constexpr BuiltinTemplate kTemplates[] = {
    {"chatml", "{% set a, b, c = '<|im_start|>', '\n', '<|im_end|>\n' %}", kUniform},
    {"llama2", "{% set again = '' %}", kLlama2},
    {"llama2-sys", "{% set again, has_system = '', true %}", kLlama2},
    {"llama2-sys-bos", "{% set again, has_system = '<s>', true %}", kLlama2},
    {"llama2-sys-strip", "{% set again, has_system, trims = '', true, true %}", kLlama2},
    {"llama3",
     "{% set a, b, c, trims = '<|start_header_id|>', '<|end_header_id|>\n\n', '<|eot_id|>', true %}",
     kUniform},
    {"llama4", "{% set a, b, c, trims = '<|header_start|>', '<|header_end|>\n\n', '<|eot|>', true %}",
     kUniform},
    {"mistral-v1", "{% set before, after = ' ', ' ' %}", kMistral},
    {"mistral-v3", "{% set before, after, trims = '', ' ', true %}", kMistral},
    {"mistral-v3-tekken", "{% set before, after = '', '' %}", kMistral},
    {"mistral-v7", "{% set after = ' ' %}", kMistral7},
    {"mistral-v7-tekken", "{% set after = '' %}", kMistral7},
    {"phi3", "{% set a, b, c = '<|', '|>\n', '<|end|>\n' %}", kUniform},
    {"phi4", "{% set a, b, c = '<|im_start|>', '<|im_sep|>', '<|im_end|>' %}", kUniform},
    {"falcon3", "{% set a, b, c = '<|', '|>\n', '\n' %}", kUniform},
    {"zephyr", "{% set a, b, c = '<|', '|>\n', '<|endoftext|>\n' %}", kUniform},
    {"granite", "{% set a, b, c = '<|start_of_role|>', '<|end_of_role|>', '<|end_of_text|>\n' %}", kUniform},
    {"megrez", "{% set a, b, c = '<|role_start|>', '<|role_end|>', '<|turn_end|>' %}", kUniform},
    {"monarch", "", kMonarch},
    {"gemma", "", kGemma},
    {"openchat", "", kOpenChat},
    {"vicuna", "{% set system, after_system = '', '\n\n' %}", kVicuna},
    {"vicuna-orca", "{% set system, after_system = 'SYSTEM: ', '\n' %}", kVicuna},
    {"deepseek",
     "{% set system, user, answer = ['', ''], ['### Instruction:\n', '\n'], "
     "['### Response:\n', '\n<|EOT|>\n'] %}{% set begin = '### Response:\n' %}",
     kThreeRoles},
    {"deepseek2",
     "{% set system, user, answer = ['', '\n\n'], ['User: ', '\n\n'], "
     "['Assistant: ', '<｜end▁of▁sentence｜>'] %}{% set begin = 'Assistant:' %}",
     kThreeRoles},
    {"deepseek3",
     "{% set system, user, answer = ['', '\n\n'], ['<｜User｜>', ''], "
     "['<｜Assistant｜>', '<｜end▁of▁sentence｜>'] %}{% set begin = '<｜Assistant｜>' %}",
     kThreeRoles},
    {"command-r",
     "{% set a, z = '<|START_OF_TURN_TOKEN|>', '<|END_OF_TURN_TOKEN|>' %}{% set trims = true %}"
     "{% set system, user = [a + '<|SYSTEM_TOKEN|>', z], [a + '<|USER_TOKEN|>', z] %}"
     "{% set begin = a + '<|CHATBOT_TOKEN|>' %}{% set answer = [begin, z] %}",
     kThreeRoles},
    {"exaone3",
     "{% set trims, begin = true, '[|assistant|]' %}"
     "{% set system, user, answer = ['[|system|]', '[|endofturn|]\n'], ['[|user|]', '\n'], "
     "[begin, '[|endofturn|]\n'] %}",
     kThreeRoles},
    {"smolvlm",
     "{{ '<|im_start|>' }}{% set begin = 'Assistant:' %}"
     "{% set system, user, answer = ['', '\n\n'], ['User: ', '<end_of_utterance>\n'], "
     "['Assistant: ', '<end_of_utterance>\n'] %}",
     kThreeRoles},
};

}  // namespace

std::vector<std::string_view> BuiltinTemplateNames() {
  std::vector<std::string_view> names;
  for (const BuiltinTemplate& known : kTemplates) names.push_back(known.name);
  std::ranges::sort(names);
  return names;
}

Result<std::string> ChosenTemplate(std::string_view name_or_source) {
  const bool is_source = name_or_source.find("{{") != std::string_view::npos ||
                         name_or_source.find("{%") != std::string_view::npos;
  if (is_source) return std::string(name_or_source);
  std::string_view name = name_or_source;
  while (name.ends_with('\n') || name.ends_with('\r')) name.remove_suffix(1);  // as files end
  const auto known = std::ranges::find(kTemplates, name, &BuiltinTemplate::name);
  if (known != std::end(kTemplates)) return std::string(known->settings) + std::string(known->body);
  std::string all;
  for (const std::string_view other : BuiltinTemplateNames())
    all += (all.empty() ? "" : ", ") + std::string(other);
  constexpr size_t kLongestShown = 40;
  const bool is_short = name.size() <= kLongestShown && name.find('\n') == std::string_view::npos;
  return InvalidArgument("chat template" + (is_short ? " '" + std::string(name) + "'" : std::string()) +
                         ": it is neither Jinja, which has {{ or {% in it, nor one of " + all);
}

}  // namespace longspec::chat
