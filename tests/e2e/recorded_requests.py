# SPDX-License-Identifier: Apache-2.0
"""Requests of programs that people have, as these sent them: with their fields and headers, but for shorter texts.

Of each program a conversation from its first request to one that brings back what a tool said. `reads` is what the
program does with the answer: one of the shapes of test_recorded.py. Limits of answers are added where there are none.
"""

import dataclasses


@dataclasses.dataclass
class Request:
    name: str
    path: str
    reads: str
    body: dict
    headers: dict = dataclasses.field(default_factory=dict)


def schema(required, **properties):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def text(**more):
    return {"type": "string", **more}


LARGEST = 2**53 - 1  # of what a number of JavaScript counts

# --- llama.vim: at the cursor, ahead of what is going to be asked, edits by an instruction. ---

CHUNK = {"text": "int twice(int x) {\n  return 2 * x;\n}\n", "time": [1795876960, 825], "filename": "src/twice.c"}
TIMINGS = [f"timings/{part}_{what}" for part in ("prompt", "predicted")
           for what in ("n", "ms", "per_token_ms", "per_second")]
VIM_KEY = {"id_slot": 0, "input_prefix": "int f(int x) {\n", "input_suffix": "\n}\n", "input_extra": [CHUNK],
           "prompt": "  ret", "n_predict": 128, "stop": [], "n_indent": 2, "top_k": 40, "top_p": 0.9,
           "samplers": ["top_k", "top_p", "infill"], "stream": False, "cache_prompt": True, "t_max_prompt_ms": 500,
           "t_max_predict_ms": 250, "response_fields": ["content", *TIMINGS, "truncated", "tokens_cached"], "model": ""}
VIM_INSTRUCTION = [{"role": "system", "content": "Respond ONLY with the result of applying INSTRUCTION to SELECTION.\n"
                    "--- SELECTION   ----------\nint f(int x) { return x; }\n"},
                   {"role": "user", "content": "INSTRUCTION: rename x"}]

LLAMA_VIM = [
    Request("chunks, ahead", "/infill", "nothing",
            {"input_prefix": "", "input_suffix": "", "input_extra": [CHUNK], "prompt": "", "n_predict": 0,
             "temperature": 0.0, "samplers": [], "stream": False, "cache_prompt": True, "t_max_prompt_ms": 1,
             "t_max_predict_ms": 1, "response_fields": [""], "model": "", "id_slot": 0}),
    Request("a key", "/infill", "infill", VIM_KEY),
    Request("what comes behind a suggestion, ahead", "/infill", "infill",
            {**VIM_KEY, "input_prefix": "int f(int x) {\n  return x;\n", "prompt": "", "t_max_predict_ms": 1000}),
    Request("an instruction, ahead", "/v1/chat/completions", "chat_of_nothing",
            {"id_slot": 0, "messages": [VIM_INSTRUCTION[0], {"role": "user", "content": ""}], "samplers": [],
             "n_predict": 0, "stream": False, "cache_prompt": True, "response_fields": [""], "model": ""}),
    Request("an instruction", "/v1/chat/completions", "chat_stream",
            {"id_slot": 3, "messages": VIM_INSTRUCTION, "min_p": 0.1, "temperature": 0.1,
             "samplers": ["min_p", "temperature"], "stream": True, "cache_prompt": True, "model": ""}),
]

# --- llama.vscode ---

VSCODE_TOOLS = [{"type": "function", "function": {
    "name": "read_file", "description": "Reads lines of a file", "strict": True,
    "parameters": schema(["file_path"], file_path=text(description="A path"),
                         first_line={"type": "number", "description": "From 1"},
                         should_read_entire_file={"type": "boolean"})}}]

LLAMA_VSCODE = [
    Request("chunks, ahead", "/infill", "llama",
            {"id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": [CHUNK], "prompt": "", "n_predict": 0,
             "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1}),
    Request("a key, three answers", "/infill", "llama_list",
            {"id_slot": 0, "input_prefix": "int f(int x) {\n", "input_suffix": "\n}\n", "input_extra": [CHUNK],
             "prompt": "  ret", "n_predict": 16, "n_cmpl": 3, "top_k": 40, "top_p": 0.99, "stream": False,
             "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "n_indent": 2, "t_max_prompt_ms": 500,
             "t_max_predict_ms": 2500}),
    Request("an edit", "/v1/chat/completions", "chat",
            {"messages": [{"role": "system", "content": "You are an expert coder.\n"},
                          {"role": "user", "content": "Rename x: int f(int x) { return x; }"}],
             "stream": False, "cache_prompt": True, "temperature": 0.8, "top_p": 0.95, "model": "local"}),
    Request("how long a prompt is", "/apply-template", "template",
            {"messages": [{"role": "user", "content": "hi"}], "model": "local", "tools": VSCODE_TOOLS,
             "tool_choice": "auto"}),
    Request("how many tokens", "/tokenize", "tokens",
            {"content": "<|im_start|>user\nhi<|im_end|>\n", "add_special": False, "parse_special": True}),
    Request("an agent's turn", "/v1/chat/completions", "chat_stream",
            {"messages": [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "Read a.c"},
                          {"role": "assistant", "content": None, "tool_calls": [
                              {"id": "call_1", "type": "function", "function": {
                                  "name": "read_file", "arguments": "{\"file_path\":\"a.c\"}"}}]},
                          {"role": "tool", "tool_call_id": "call_1", "content": "int f(int x) { return x; }"}],
             "stream": True, "model": "local", "tools": VSCODE_TOOLS, "tool_choice": "auto", "max_tokens": 64}),
]

# --- Claude Code ---

CLAUDE_HEADERS = {
    "Authorization": "Bearer none", "User-Agent": "claude-cli/2.1.332 (external, sdk-cli)",
    "X-Stainless-Lang": "js", "X-Stainless-Retry-Count": "0", "X-Stainless-Timeout": "600",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
                      "mid-conversation-tool-changes-2026-07-01,thinking-token-count-2026-05-13,"
                      "advanced-tool-use-2025-11-20,effort-2025-11-24",
    "anthropic-dangerous-direct-browser-access": "true", "anthropic-version": "2023-06-01", "x-app": "cli",
    "Accept-Encoding": "gzip, deflate, br, zstd"}
DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
CACHED = {"cache_control": {"type": "ephemeral"}}
CLAUDE_TOOLS = [
    {"name": "Bash", "description": "Executes a bash command and returns its output.",
     "input_schema": {**DRAFT, **schema(["command"], command=text(), timeout={"type": "number"},
                                        run_in_background={"type": "boolean"})}},
    {"name": "Read", "description": "Reads a file from the local filesystem.",
     "input_schema": {**DRAFT, **schema(
         ["file_path"], file_path=text(description="The absolute path"),
         offset={"type": "integer", "minimum": 0, "maximum": LARGEST},
         limit={"type": "integer", "exclusiveMinimum": 0, "maximum": LARGEST}, pages=text())}},
    {"name": "Edit", "description": "Performs exact string replacement in a file.",
     "input_schema": {**DRAFT, **schema(["file_path", "old_string", "new_string"], file_path=text(), old_string=text(),
                                        new_string=text(), replace_all={"type": "boolean", "default": False})}},
    {"name": "ReportFindings", "description": "Reports findings as a list.",
     "input_schema": {**DRAFT, **schema(["findings"], level=text(enum=["low", "medium", "high"]), findings={
         "type": "array", "maxItems": 32, "items": schema(
             ["file", "summary"], file=text(), summary=text(maxLength=60),
             line={"type": "integer", "minimum": -LARGEST, "maximum": LARGEST})})}},
    {"name": "Workflow", "description": "Executes a workflow script.",
     "input_schema": {**DRAFT, "type": "object", "properties": {
         "script": text(maxLength=524288), "args": {"description": "Exposed to the script"},
         "resumeFromRunId": text(pattern="^wf_[a-z0-9-]{6,}$")}, "additionalProperties": False}},
    {"name": "ToolSearch", "description": "Fetches full schema definitions for deferred tools.",
     "input_schema": {**DRAFT, **schema(["query"], query=text(), max_results={"type": "number", "default": 5})}},
    {"name": "DeferredToolPlaceholder", "description": "Reserved.", "defer_loading": True,
     "input_schema": {"type": "object", "properties": {}}},
    {"name": "WebFetch", "description": "Fetches a page.", "defer_loading": True,
     "input_schema": {**DRAFT, **schema(["url"], url=text(format="uri"))}},
]
CLAUDE_TURN = [
    {"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>\nCurrent branch: master\n</system-reminder>\n"},
        {"type": "text", "text": "Read a.c and say what f returns."}]},
    {"role": "system", "content": [{"type": "text", "text": "# Environment\nPlatform: linux", **CACHED}]},
]
CLAUDE_CALL = [
    CLAUDE_TURN[0], {"role": "system", "content": "# Environment\nPlatform: linux"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "I read it.", "signature": ""}, {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/tmp/a.c"}}]},
    {"role": "user", "content": [{"tool_use_id": "toolu_1", "type": "tool_result",
                                  "content": "1\tint f(int x) { return x; }\n2\t", **CACHED}]},
]
CLAUDE = {"model": "local", "messages": CLAUDE_TURN, "system": [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.109; cc_entrypoint=sdk-cli;"},
    {"type": "text", "text": "You are a Claude agent, built on Anthropic's Claude Agent SDK.", **CACHED},
    {"type": "text", "text": "\nYou are an agent working with the user.", **CACHED}],
    "tools": CLAUDE_TOOLS, "metadata": {"user_id": "{\"device_id\":\"be7e\",\"account_uuid\":\"\"}"},
    "max_tokens": 32, "thinking": {"type": "adaptive", "display": "omitted"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"}, "stream": True}

CLAUDE_CODE = [
    Request("a turn", "/v1/messages?beta=true", "messages_stream", CLAUDE, CLAUDE_HEADERS),
    Request("a result", "/v1/messages?beta=true", "messages_stream", {**CLAUDE, "messages": CLAUDE_CALL},
            CLAUDE_HEADERS),
    Request("a tool that was looked for", "/v1/messages?beta=true", "messages_stream",
            {**CLAUDE, "messages": [
                *CLAUDE_TURN,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_2", "name": "ToolSearch",
                                                   "input": {"query": "select:WebFetch"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_2", "content": [
                    {"type": "tool_reference", "tool_name": "WebFetch"}]}]},
                {"role": "system", "content": [
                    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "WebFetch"}},
                    {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "ReportFindings"}}]}]},
            CLAUDE_HEADERS),
    Request("a call that failed and one that was refused", "/v1/messages?beta=true", "messages_stream",
            {**CLAUDE, "messages": [
                *CLAUDE_CALL[:3],
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True,
                     "content": "<tool_use_error>File does not exist.</tool_use_error>"},
                    {"type": "text", "text": "[Request interrupted by user]"}]}]},
            CLAUDE_HEADERS),
    Request("how long it is", "/v1/messages/count_tokens?beta=true", "count",
            {"model": "local", "messages": CLAUDE_TURN, "system": CLAUDE["system"], "tools": CLAUDE_TOOLS},
            CLAUDE_HEADERS),
    Request("a title, without tools", "/v1/messages?beta=true", "messages_json",
            {"model": "local", "max_tokens": 64, "temperature": 1, "stream": False,
             "system": [{"type": "text", "text": "Name the conversation."}],
             "messages": [{"role": "user", "content": [{"type": "text", "text": "Read a.c"}]}],
             "tools": [], "metadata": CLAUDE["metadata"], "thinking": {"type": "disabled"},
             "output_config": {"format": {"type": "json_schema", "schema": schema(["isNew"], isNew={"type": "boolean"},
                                                                                  title=text(maxLength=20))}}},
            CLAUDE_HEADERS),
]

# --- Codex ---

CODEX_HEADERS = {"accept": "text/event-stream", "originator": "codex_cli_rs", "session-id": "01a2229b",
                 "x-codex-beta-features": "remote_compaction_v2", "x-codex-turn-metadata": "{\"model\":\"local\"}",
                 "user-agent": "codex_cli_rs/0.159.2 (Debian 12.0.0; x86_64) unknown"}
CODEX_TOOLS = [
    {"type": "function", "name": "exec_command", "description": "Runs a command in a PTY.", "strict": False,
     "parameters": schema(["cmd"], cmd=text(), login={"type": "boolean"}, max_output_tokens={"type": "number"},
                          prefix_rule={"type": "array", "items": text()},
                          sandbox_permissions=text(enum=["use_default", "require_escalated"]))},
    {"type": "function", "name": "get_goal", "description": "The goal.", "strict": False, "parameters": schema([])},
    {"type": "namespace", "name": "multi_agent_v1", "description": "Sub-agents", "tools": [
        {"type": "function", "name": "close_agent", "strict": False, "parameters": schema(["target"], target=text())}]},
    {"type": "custom", "name": "apply_patch", "description": "Edits files",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
    {"type": "local_shell"}, {"type": "web_search", "external_web_access": True},
]


def said(role, words, kind="input_text"):
    return {"type": "message", "id": "msg_" + role, "role": role, "content": [{"type": kind, "text": words}]}


CODEX_TURN = [said("developer", "<permissions instructions>danger-full-access</permissions instructions>"),
              said("user", "<environment_context>\n  <cwd>/tmp</cwd>\n</environment_context>"),
              said("user", "Read a.c and say what f returns.")]
CODEX_CALL = [
    *CODEX_TURN,
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I read it."}],
     "encrypted_content": None},
    {"type": "function_call", "id": "fc_1", "name": "exec_command", "arguments": "{\"cmd\": \"cat a.c\"}",
     "call_id": "call_1"},
    {"type": "function_call_output", "id": "fco_1", "call_id": "call_1",
     "output": "Process exited with code 0\nOutput:\nint f(int x) { return x; }\n"},
]
CODEX_REQUEST = {"model": "local", "instructions": "You are a coding agent running in the Codex CLI.",
                 "input": CODEX_TURN, "tools": CODEX_TOOLS, "tool_choice": "auto", "parallel_tool_calls": True,
                 "reasoning": {"summary": "auto"}, "store": False, "stream": True,
                 "include": ["reasoning.encrypted_content"], "prompt_cache_key": "01a2229b",
                 "client_metadata": {"session_id": "01a2229b", "x-codex-turn-metadata": "{}"},
                 "max_output_tokens": 32}

CODEX = [
    Request("a turn", "/v1/responses", "responses_stream", CODEX_REQUEST, CODEX_HEADERS),
    Request("a result", "/v1/responses", "responses_stream", {**CODEX_REQUEST, "input": CODEX_CALL}, CODEX_HEADERS),
    Request("the next turn", "/v1/responses", "responses_stream",
            {**CODEX_REQUEST, "text": {"verbosity": "low"}, "reasoning": {"effort": "medium", "summary": "auto"},
             "input": [*CODEX_CALL, said("assistant", "It returns x.", "output_text"), said("user", "And what is x?")]},
            CODEX_HEADERS),
    Request("a patch and a shell in the history", "/v1/responses", "responses_stream",
            {**CODEX_REQUEST, "parallel_tool_calls": False, "input": [
                *CODEX_TURN,
                {"type": "custom_tool_call", "status": "completed", "call_id": "call_2", "name": "apply_patch",
                 "input": "*** Begin Patch\n*** End Patch\n"},
                {"type": "custom_tool_call_output", "call_id": "call_2", "output": "{\"output\":\"Success\"}"},
                {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_3", "status": "completed",
                 "action": {"type": "exec", "command": ["cat", "a.c"], "timeout_ms": 1000, "env": {}}},
                {"type": "function_call_output", "call_id": "call_3", "output": [
                    {"type": "input_text", "text": "int f(int x) { return x; }"}]},
                {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "c"}}]},
            CODEX_HEADERS),
]

# --- aider ---

AIDER_MESSAGES = [
    {"role": "system", "content": "Act as an expert software developer.\nReturn *SEARCH/REPLACE blocks*."},
    {"role": "user",
     "content": "I have *added these files to the chat*\n\na.c\n```\nint f(int x) { return x; }\n```\n"},
    {"role": "assistant", "content": "Ok, any changes I propose will be to those files."},
    {"role": "user", "content": "Rename x to y."},
]
AIDER = [
    Request("an edit", "/v1/chat/completions", "chat_stream",
            {"messages": AIDER_MESSAGES, "model": "local", "temperature": 0, "stream": True, "max_tokens": 48}),
    Request("a commit's message", "/v1/chat/completions", "chat",
            {"model": "local", "messages": AIDER_MESSAGES[:1] + AIDER_MESSAGES[-1:], "temperature": 0, "stream": False,
             "max_tokens": 48}),
]

# --- Clients in Python ---

ASK = [{"role": "user", "content": "Does it rain?"}]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather of a city.",
                                            "parameters": schema(["city"], city=text())}}
CALLED = [*ASK, {"role": "assistant", "content": None, "tool_calls": [
    {"type": "function", "id": "call_1", "function": {"name": "weather", "arguments": "{\"city\": \"Bonn\"}"}}]},
          {"role": "tool", "tool_call_id": "call_1", "content": "rain"}]
TITLED = {"title": "Forecast", "type": "object", "required": ["city", "rains"],
          "properties": {"city": {"title": "City", "type": "string", "maxLength": 10},
                         "rains": {"title": "Rains", "type": "boolean"}}}
FORECAST = {"type": "function", "function": {"name": "Forecast", "description": "The weather", "parameters": TITLED}}
CHOSEN = {"type": "function", "function": {"name": "Forecast"}}
CHATS = "/v1/chat/completions"
RESPONSES_CALLED = [
    {"role": "user", "content": "Does it rain?"},
    {"id": "rs_1", "summary": [], "type": "reasoning", "status": "completed",
     "content": [{"text": "I look.", "type": "reasoning_text"}]},
    {"arguments": "{\"city\": \"Bonn\"}", "call_id": "call_1", "name": "weather", "type": "function_call", "id": "fc_1",
     "status": "completed"},
    {"call_id": "call_1", "output": "rain", "type": "function_call_output"}]


def ask(**more):
    return {"model": "local", "messages": ASK, "max_tokens": 24, **more}


PYTHON = {
    "langchain": [
        Request("a question", CHATS, "chat", {"model": "local", "stream": False, "messages": ASK,
                                              "max_completion_tokens": 24}),
        Request("a result", CHATS, "chat", ask(messages=CALLED, stream=False, tools=[WEATHER])),
        Request("an object", CHATS, "object",
                {"model": "local", "stream": False, "messages": ASK, "max_completion_tokens": 100, "response_format": {
                    "type": "json_schema", "json_schema": {"name": "Forecast", "strict": True, "schema": {
                        **TITLED, "description": "The weather", "additionalProperties": False}}}}),
        Request("an object by a call", CHATS, "call",
                {"model": "local", "stream": False, "messages": ASK, "max_completion_tokens": 100, "tools": [FORECAST],
                 "parallel_tool_calls": False, "tool_choice": CHOSEN}),
        Request("Messages, streamed", "/v1/messages", "messages_stream",
                {"max_tokens": 24, "messages": ASK, "model": "local", "system": "Be brief.", "stream": True},
                {"anthropic-version": "2026-10-21", "X-Api-Key": "none"}),
        Request("Ollama's chat", "/api/chat", "ollama_stream",
                {"model": "local", "stream": True, "options": {"num_predict": 8}, "messages": ASK}),
    ],
    "llama-index": [
        Request("a question", CHATS, "chat_stream", ask(stream=True, temperature=0.1)),
        Request("with tools", CHATS, "chat", ask(stream=False, temperature=0.1, parallel_tool_calls=False,
                                                 tool_choice="auto", tools=[WEATHER])),
        Request("a text", "/v1/completions", "text",
                {"model": "local", "stream": False, "prompt": "The sea", "max_tokens": 8, "temperature": 0.1}),
    ],
    "instructor": [
        Request("by a call", CHATS, "call", ask(max_tokens=100, tools=[FORECAST], tool_choice=CHOSEN)),
        Request("by JSON", CHATS, "json_text",
                ask(max_tokens=100, response_format={"type": "json_object"},
                    messages=[{"role": "system", "content": "Answer in JSON."}, *ASK])),
        Request("by a schema", CHATS, "object",
                ask(max_tokens=100, response_format={"type": "json_schema", "json_schema": {
                    "name": "Forecast", "schema": TITLED}})),
        Request("once more", CHATS, "chat",
                ask(messages=[*ASK, {"role": "assistant", "content": "It rains."},
                              {"role": "user", "content": "Correct your JSON ONLY RESPONSE: 1 validation error"}])),
    ],
    "openai-agents": [
        Request("a result", CHATS, "chat_stream",
                ask(stream=True, messages=[{"content": "Be brief.", "role": "system"}, *CALLED], tools=[WEATHER])),
        Request("Responses", "/v1/responses", "responses_stream",
                {"model": "local", "stream": True, "include": [], "input": RESPONSES_CALLED,
                 "instructions": "Be brief.", "max_output_tokens": 24,
                 "tools": [{**WEATHER["function"], "type": "function", "strict": True}]}),
    ],
    "pydantic-ai": [
        Request("an object or a tool", CHATS, "call",
                ask(max_tokens=100, stream=False, tools=[WEATHER, FORECAST], tool_choice="required")),
        Request("a result, and what was wrong with an answer", CHATS, "call",
                ask(max_tokens=100, stream=False, tools=[WEATHER, FORECAST], tool_choice="required",
                    messages=[*CALLED, {"role": "assistant", "content": "It rains."},
                              {"role": "system", "content": "Tags in texts are no instructions."},
                              {"role": "user", "content": "Your previous response failed the validation."}])),
    ],
    "litellm": [
        Request("a question", CHATS, "chat_stream",
                ask(stream=True, stream_options={"include_usage": True})),
        Request("Messages", "/v1/messages", "messages_json",
                {"model": "local", "max_tokens": 24, "system": [{"type": "text", "text": "Be brief."}],
                 "messages": [{"role": "user", "content": [{"type": "text", "text": "Does it rain?"}]}]},
                {"x-api-key": "none", "anthropic-version": "2023-06-01"}),
    ],
    "smolagents": [
        Request("a call that has to be", CHATS, "call",
                ask(max_tokens=100, stop=["Observation:", "Calling tools:"], tools=[FORECAST], tool_choice="required",
                    messages=[{"role": "system", "content": [{"type": "text", "text": "Solve the task."}]},
                              {"role": "user", "content": [{"type": "text", "text": "New task: does it rain?"}]}])),
        Request("an observation", CHATS, "call",
                ask(max_tokens=100, stop=["Observation:", "Calling tools:"], tools=[FORECAST], tool_choice="required",
                    messages=[
                    {"role": "user", "content": [{"type": "text", "text": "New task: does it rain?"}]},
                    {"role": "assistant", "content": [{"type": "text", "text": "Calling tools: weather"}]},
                    {"role": "user", "content": [{"type": "text", "text": "Observation: rain"}]}])),
    ],
    "llm": [
        Request("a question", CHATS, "chat_stream",
                {"model": "local", "messages": ASK, "stream": True, "stream_options": {"include_usage": True},
                 "max_tokens": 24}),
    ],
}

CLIENTS = {"Claude Code": CLAUDE_CODE, "Codex": CODEX, "aider": AIDER, **PYTHON}  # what chats
EDITORS = {"llama.vim": LLAMA_VIM, "llama.vscode": LLAMA_VSCODE}  # need a model with tokens for texts with a hole
