#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/jinja/testdata/templates/cases.jsonl: what Python's Jinja2 makes of chat templates.

    python3 tools/make_template_fixture.py          (needs jinja2; the fixture was made with 3.1.6)

The environment is set up as Hugging Face transformers does for chat templates. Each line holds a template (inline, or
the name of a file beside the fixture), the variables it is given, and either the text expected or that an error is.
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src" / "jinja" / "testdata" / "templates"
NOW = datetime.datetime(2024, 7, 26, 12, 34, 56)


class Generation(jinja2.ext.Extension):
    """{% generation %}: output as it is, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_output"), [], [], body).set_lineno(lineno)

    def _output(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def make_environment(mutable):
    kind = jinja2.sandbox.SandboxedEnvironment if mutable else jinja2.sandbox.ImmutableSandboxedEnvironment
    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.filters["from_json"] = json.loads
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    return environment


USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": " Hello! How can I help? "}
QUESTION = {"role": "user", "content": " Grüße, 世界! 🙂\n"}
SYSTEM = {"role": "system", "content": "Be brief."}
CHAT = [USER, ASSISTANT, QUESTION]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city: <now> & \"later\".",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "days": {"type": "integer"},
                "at": {"type": ["number", "boolean"]},
                "where": {"type": "object", "additionalProperties": {"type": "number"}},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
    },
}
TOOL2 = {
    "type": "function",
    "function": {"name": "time", "description": "Zeit",
                 "parameters": {"type": "object", "properties": {}, "required": []}},
}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "abc123def", "type": "function",
         "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "exact": True, "to": None}}}
    ],
}
CALL_TEXT = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "abc123def", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Köln\"}"}},
        {"id": "abc123deg", "type": "function", "function": {"name": "time", "arguments": "{}"}},
    ],
}
ANSWER = {"role": "tool", "tool_call_id": "abc123def", "content": "18.5 °C"}
ANSWER_DICT = {"role": "tool", "tool_call_id": "abc123def", "content": {"content": 18.5, "unit": "C"}}
TOOL_CHAT = [SYSTEM, USER, CALL, ANSWER, ASSISTANT, QUESTION]
THINKING = {"role": "assistant", "content": "<think>\nhm, 1+1\n</think>\n\nIt is 2."}

CHATS = [
    [USER],
    CHAT,
    [SYSTEM, USER],
    [SYSTEM] + CHAT,
    [USER, USER],
    [USER, SYSTEM],
    [],
    [{"role": "user", "content": ""}, {"role": "assistant", "content": "{{ x }} {% if %} {# c #}"}],
    [{"role": "robot", "content": "?"}],
]


def template_cases():
    """(file, variables) for the templates of models."""
    for name in ("smollm2", "llama3", "llama31_tools", "qwen25", "qwen3", "mistral_v1", "mistral_v3", "gemma", "gemma3",
                 "phi3", "phi4", "chatml", "zephyr", "deepseek"):
        for messages in CHATS:
            for prompt in (True, False):
                yield name, {"messages": messages, "add_generation_prompt": prompt}
    for name in ("llama31_tools", "qwen25", "qwen3", "mistral_v3", "command_r_tools"):
        for messages in (CHAT, TOOL_CHAT, [USER, CALL, ANSWER_DICT], [USER, CALL_TEXT, ANSWER]):
            yield name, {"messages": messages, "tools": [TOOL, TOOL2]}
    for extra in ({"tools_in_user_message": False}, {"builtin_tools": ["weather", "code_interpreter"]},
                  {"date_string": "1 Jan 2025"}, {"custom_tools": [TOOL2]}):
        yield "llama31_tools", {"messages": TOOL_CHAT, "tools": [TOOL], **extra}
    yield "llama31_tools", {"messages": [SYSTEM], "tools": [TOOL]}
    for messages in ([USER, THINKING, USER, THINKING], [USER, THINKING],
                     [USER, {"role": "assistant", "content": "x", "reasoning_content": "\ny\n"}]):
        yield "qwen3", {"messages": messages, "enable_thinking": False}
        yield "deepseek", {"messages": messages}
    for messages in ([USER, CALL_TEXT, ANSWER, ANSWER], [USER, CALL_TEXT, ANSWER, ASSISTANT, USER]):
        yield "deepseek", {"messages": messages}
    yield "gemma3", {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " a "}]}]}
    yield "gemma3", {"messages": [{"role": "user", "content": 3}]}


VARIABLES = {
    "n": 7, "m": -3, "f": 2.5, "big": 1e22, "small": 1.5e-7, "yes": True, "no": False, "nil": None,
    "s": "Hello, World", "u": "Grüße, 世界 🙂", "empty": "", "lines": "a\n  b\n\nc\n", "pad": "  \t x y \n",
    "quote": "it's \"q\" \\ \n\t\x01é\u00a0\u200b🙂", "html": "<a href=\"x\">'&'</a>",
    "l": [3, 1, 2], "words": ["beta", "Alpha", "gamma", "alpha"], "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}],
    "none_list": [], "d": {"b": 2, "a": 1, "C": 3, "items": "own"}, "empty_dict": {},
    "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25, "tags": []},
               {"name": "Cy", "age": 30, "tags": ["y", "z"]}],
    "nested": {"a": {"b": [{"c": 1}, {"c": [10, 20]}]}},
    "id": 2**64 - 1, "long": [-(10**30), 10**30, 2**63, -(2**63)], "tenth": 0.1,
    "json": '{"a": [1, 0.1, 18446744073709551616], "b": null, "c": "\\u00e9"}',
}

# Each rendered with VARIABLES, as are the expressions in expressions.txt.
STATEMENTS = [
    # loops
    "{% for x in l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    ("{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
     "{{ loop.last }}{{ loop.length }};{% endfor %}"),
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}",
    "{% for x in none_list %}{{ x }}{% else %}nothing{% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}nothing{% endfor %}",
    "{% for x in l if x != 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3), ([4, 5], 6)] %}{{ a }}{{ b }}{{ c }};{% endfor %}",
    "{% for x in u %}{{ x }}.{% endfor %}",
    "{% for x in undefined_name %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in 'ab' %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }};{% endfor %}",
    ("{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}"
     "{% endfor %}"),
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in l[::-1] %}{{ x }}{% endfor %}{% for x in l | reverse %}{{ x }}{% endfor %}",
    ("{% for x in range(3) %}{% for y in range(x) %}{{ x }}{{ y }} {% if y %}{% break %}{% endif %}{% endfor %}"
     "{% endfor %}"),
    "{% for x in l %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 0 %}{% for x in l %}{% endfor %}{{ x }}",
    "{% for x in (l if yes else []) %}{{ x }}{% endfor %}",
    "{% for p in people %}{{ p.name }}{{ p['age'] }}{% endfor %}",
    # conditions
    "{% if n %}a{% endif %}{% if no %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif nil %}b{% elif n == 7 %}c{% else %}d{% endif %}",
    "{% if no %}a{% elif nil %}b{% else %}d{% endif %}",
    "{% if not tools is defined %}none{% endif %}{% if tools is none %}!{% endif %}",
    "{% if n > 5 and (s or nope) %}x{% endif %}",
    "{% if nested.x is defined and nested.x.y %}x{% else %}y{% endif %}",
    "{% if chats is not defined %}no chats{% endif %}",
    # set and scopes
    "{% set x = 1 %}{{ x }}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    ("{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.b = ns.a + [2] %}{{ ns.b }}{{ ns.c is defined }}"
     "{{ ns['a'] }}"),
    "{% set a, b = 1, 'x' %}{{ a }}{{ b }}",
    "{% set (a, b), c = [(1, 2), 3] %}{{ a }}{{ b }}{{ c }}",
    "{% set ns = namespace(a=0) %}{% set ns.a, b = 5, 6 %}{{ ns.a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]",
    "{% set x | upper | replace('A', 'c') %}a{{ n }}b{% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}",
    "{% set x = 'a' if n == 7 else 'b' %}{{ x }}",
    "{% set _ = 1 %}{{ _ }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a is defined }}{{ c is defined }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}x{% endwith %}",
    "{% for i in l %}{% set x %}a{% if i == 1 %}{% break %}{% endif %}{% endset %}{{ x }}{{ i }}{% endfor %}{{ x }}",
    "{% for i in l %}{% filter upper %}a{% if i == 1 %}{% continue %}{% endif %}b{% endfilter %}{{ i }}{% endfor %}",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('l', 'L') | trim %}  {{ s }} {% endfilter %}|",
    "{% generation %}a{{ n }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    # macros
    "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * (fact(k - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}",
    "{% macro m() %}{{ s }}{% endmacro %}{% set x = m() %}{{ x | upper }}{{ m() | length }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro m() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ m() }}",
    "{% macro a() %}[{{ b() }}]{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    ("{% macro m(x) %}{% for y in x %}{{ loop.index }}{{ y }}{% endfor %}{% endmacro %}{% for i in l %}"
     "{{ m('ab') }}{{ loop.index }}{% endfor %}"),
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m(1) }}]",
    "{% macro m(a) %}{{ a is defined }}{{ a is none }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% set ns = namespace(f=none) %}{% macro m(a) %}<{{ a }}>{% endmacro %}{% set ns.f = m %}{{ ns.f(1) }}",
    # generators and views are used up and true
    "{% set g = l | map('string') %}{{ g | join }}{{ g | join }}!",
    "{% if none_list | select %}true{% else %}false{% endif %}",
    "{% if none_list | select | list %}true{% else %}false{% endif %}",
    ("{% set v = d.keys() %}{{ v | length }}{{ 'a' in v }}{{ v | list | length }}{% if empty_dict.keys() %}t"
     "{% else %}f{% endif %}"),
    "{% set g = people | selectattr('age', 'eq', 30) %}{{ (g | first).name }}",
    # white space
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\nc\n",
    "a\n  {%+ if yes %}\n  b\n  {%+ endif %}\nc\n",
    "a {% if yes +%}\nb{% endif +%}\nc",
    "a\n  {{ n }}  \nb\n",
    "a\n  {{- n -}}  \nb\n",
    "a {{-n}} {{n-}} b",
    "  {# c #}\n  x {# c #} y\n{#- c -#}\n z\n  {#+ c +#}\nw",
    "{# multi\nline {{ n }} {% if %} #}x",
    "{% raw %}{{ n }} {% if %} {# x #}{% endraw %}!",
    "a \n {%- raw -%} \n {{ n }} \n {%- endraw -%} \n b",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb",
    "x\n\n", "x\n", "x", "", "\n", "\n\n", "a\r\nb\rc{{ '1\r\n2' }}\r\n",
    "{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}{{ y }}\n",
    "\n  {% set x = 1 %}  \n  {{ x }}\n",
    "{% for i in l %}\n  {{ i }}\n{% endfor %}\n",
    "{%- for i in l %}\n  {{- i }}\n{%- endfor %}\n.",
    "{% if yes %}   \n  x{% endif %}",
    "a\u00a0\n\u3000{%- if yes %}x{% endif %}",
    "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}['a'] }}{{ \"{#\" }}",
    "{{ {'a': {}} }}{{ { } }}",
    "{ {n} } { % # } {n",
    "{{ n\n+\n1 }}",
    "{%   set\tx =\n 5   %}{{\nx}}",
    "{% if yes %}{% endif %}{{ '' }}",
    "{{ n }}\n{{ n }}\n\n{{ n }}",
    "{{ \"a\\nb\" }}\n  {% if yes %}x\n  {% endif %}",
    # things that chat templates do
    "{{ messages[0]['role'] if messages else 'none' }}",
    "{% if n != 7 %}{{ raise_exception('never') }}{% endif %}ok",
    ("{%- set ns = namespace(found=false) -%}{%- for p in people -%}{%- if p.age == 25 -%}"
     "{%- set ns.found = true -%}{%- break -%}{%- endif -%}{%- endfor -%}{{ ns.found }}"),
    "{%- for p in people %}{{- p.name if p.tags else '-' }}{{ ', ' if not loop.last }}{%- endfor %}",
    "{{ people | map(attribute='name') | map('lower') | sort | join(' ') }}",
    "{{ (people | first).name }}{{ (people | last)['name'] }}{{ people[-1].tags[0] }}",
    "{{ '<' ~ (s | trim) ~ '>' }}{{- '\\n' -}}",
    "{% set m = people[1:] + [{'name': 'new'}] %}{{ m | length }}{{ m[-1].name }}{{ m[-1].age is defined }}",
    "{% set tools_text = people | tojson(indent=2) | indent(4) %}{{ tools_text }}",
    "{{ {'type': 'function', 'x': [1, 2.0, none, true]} | tojson }}",
    "{% for k, v in nested.items() %}{{ k }}{% for x in v.b %}{{ x.c }}{% endfor %}{% endfor %}",
    "{% set d2 = dict(d, z=n) %}{{ d2.z }}{{ d2 | length }}",
    "{{ (namespace is defined) ~ (range is defined) }}",
]

ERRORS = [
    # of syntax
    "{{", "{{ n", "{% if n %}", "{% if %}x{% endif %}", "{% for x in %}{% endfor %}", "{% for x l %}{% endfor %}",
    "{% endif %}", "{% else %}", "{{ n + }}", "{{ (n }}", "{{ n) }}", "{{ [1, 2 }}", "{{ {1: 2 }}", "{{ {1} }}",
    "{{ 'abc }}", "{# x", "{% raw %}x", "{{ n n }}", "{{ n | }}", "{{ n | nofilter }}", "{{ n is notest }}",
    "{% frobnicate %}", "{{ n.  }}",
    "{{ }}", "{% set %}", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% set a.b.c = 2 %}", "{% macro %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(1) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ n @ 2 }}",
    "{{ ? }}", "{{ a[ }}",
    "{{ a[1 }}", "{{ n is odd is even }}", "{% break %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% if a = 1 %}{% endif %}", "{{ '\\x4' }}",
    "{{ '\\u12' }}", "{{ 1 2 }}", "{% if n %}{% else %}{% else %}{% endif %}",
    "{% for x in a if b else c %}{% endfor %}", "{% set x = 1", "{{ ] }}", "{{ (1] }}", "{% with a %}{% endwith %}",
    "{{ 08 }}", "{% set ns.a %}", "{{ {'a' 1} }}", "{{ loop( }}", "{{ not }}", "{{ n not 3 }}",
    "{% for 1 in l %}{% endfor %}", "{{ 1 ** }}",
    # while rendering
    "{{ nope.x }}", "{{ nope['x'] }}", "{{ nope() }}", "{{ nope + 1 }}", "{{ 1 + nope }}", "{{ -nope }}",
    "{{ nope < 1 }}", "{{ nested.x.y }}", "{{ n() }}", "{{ s.nomethod() }}", "{{ d.nomethod() }}", "{{ 1 + 'a' }}",
    "{{ 'a' + 1 }}", "{{ [] + () }}", "{{ nil + 1 }}", "{{ s - 1 }}", "{{ -s }}", "{{ +s }}", "{{ 1 / 0 }}",
    "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 1.0 // 0 }}", "{{ 1.5 % 0 }}", "{{ 0 ** -1 }}", "{{ 1 < 'a' }}",
    "{{ nil < 1 }}", "{{ [1] < ['a'] }}", "{{ {} < {} }}", "{{ 1 in 5 }}", "{{ 1 in s }}", "{{ nil in nil }}",
    "{% for x in 5 %}{% endfor %}", "{% for x in nil %}{% endfor %}", "{% for a, b in l %}{% endfor %}",
    "{% set a, b = [1, 2, 3] %}", "{% set n.x = 1 %}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}",
    "{{ l | join(',') | nope }}", "{{ raise_exception('bad role') }}", "{{ raise_exception('stop: ' ~ n) }}",
    "{{ l[0:1:0] }}", "{{ l['a':] }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ range() }}", "{{ n | length }}",
    "{{ nil | length }}", "{{ mixed | sort }}", "{{ mixed | sum }}", "{{ 'a' | abs }}", "{{ 'a' | round }}",
    "{{ 1 | round(1, 'x') }}", "{{ {[1]: 2} }}", "{{ [[1]] | unique | list }}", "{{ nope | tojson }}",
    "{{ range | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ l | map('nope') | list }}", "{{ l | map | list }}",
    "{{ l | select('nope') | list }}", "{{ people | selectattr | list }}", "{{ .5 }}", "{{ 5. }}", "{{ n ~ 1 + 2 }}",
    "{% if nope.x is defined %}x{% endif %}", "{{ d | dictsort(by='value') }}", "{{ l | first(1) }}",
    "{{ s | trim(1, 2) }}", "{{ s | replace('a') }}", "{{ s | replace('a', 'b', nope=1) }}",
    "{{ s | indent(2, width=3) }}", "{{ s.split('') }}", "{{ s.split(1) }}", "{{ s.startswith(1) }}",
    "{{ s.replace(1, 2) }}", "{{ ','.join([1]) }}", "{{ ','.join(1) }}", "{{ s.index('zz') }}", "{{ s.strip(1) }}",
    "{{ l.index(99) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % 1 }}", "{{ '%s' % (1, 2) }}",
    "{{ 'x' % 1 }}", "{{ '%' % 1 }}", "{{ '%y' % 1 }}", "{{ '%(a)s' % 1 }}", "{{ '%(a)s' % {} }}", "{{ '%f' % 'x' }}",
    "{{ '%c' % 'xy' }}", "{{ '{}'.format() }}", "{{ '{a}'.format(b=1) }}", "{{ '{'.format() }}", "{{ '}'.format() }}",
    "{{ d | dictsort(by='x') }}", "{{ l | dictsort }}", "{{ l | items | list }}", "{{ ('inf' ~ empty) | float | int }}",
    "{{ nope | int }}", "{{ nope | float }}", "{{ nope | abs }}", "{{ nope | round }}", "{{ nope | dictsort }}",
    "{{ l | map(attribute='a.b') | list }}", "{{ none_list | first | upper | length + nope }}", "{{ namespace(1) }}",
    "{{ dict(1) }}", "{{ dict([1]) }}", "{{ l | last('x') }}", "{{ (l | reverse) | last }}",
    "{{ (l | reverse) | length }}", "{{ (l | map('string')) + [1] }}", "{{ (l | reverse) | tojson }}",
    "{{ nope is odd }}", "{{ s is odd }}", "{{ n is divisibleby 0 }}", "{{ n is divisibleby }}", "{{ n is eq }}",
    "{{ n is odd(1) }}", "{{ n is in 5 }}", "{{ s is lt 1 }}", "{{ l | batch(2)[0] }}", "{{ {}[[1]] + 1 }}",
    "{% for x in l if nope.x %}{% endfor %}", "{% set x = nope.y %}", "{% filter nope %}{% endfilter %}",
    "{{ (-8) ** 0.5 < 1 }}", "{{ 10.0 ** 400 }}", "{{ s | sum }}", "{{ l | sum(start='') }}", "{{ l | join(nope.x) }}",
    "{{ nope.x is defined }}",
    "{{ nil | from_json }}", "{{ nope | from_json }}", "{{ 'x' | from_json }}", "{{ '{\"a\": }' | from_json }}",
    "{{ nil | list }}", "{{ nil | first }}", "{{ nil | join }}", "{{ nil | sort }}", "{{ nil | unique | list }}",
    "{{ id < 'a' }}",
]

MUTABLE = [
    "{% set x = [] %}{% for i in l %}{% set _ = x.append(i * 2) %}{% endfor %}{{ x }}",
    "{% set x = [] %}{% set y = x %}{{ x.append(1) }}{{ y }}",
    "{% set ns = namespace(x=[]) %}{% for i in l %}{{ ns.x.append(i) or '' }}{% endfor %}{{ ns.x | join('-') }}",
]


def render(template, variables, mutable=False):
    result = {}
    try:
        result["expected"] = make_environment(mutable).from_string(template).render(**variables)
    except jinja2.exceptions.TemplateError as error:
        result["error"] = True
        if type(error) is jinja2.exceptions.TemplateError:
            result["message"] = str(error)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, KeyError, IndexError, AttributeError, SyntaxError):
        result["error"] = True
    return result


def main():
    defaults = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}
    cases = []
    for name, given in template_cases():
        source = (FOLDER / (name + ".jinja")).read_text(encoding="utf-8")
        variables = {**defaults, "add_generation_prompt": True, **given}
        cases.append({"file": name + ".jinja", "input": given, **render(source, variables)})
    small = []
    expressions = (FOLDER / "expressions.txt").read_text(encoding="utf-8").splitlines()
    small += [("{{ " + expression + " }}", False) for expression in expressions]
    small += [(template, False) for template in STATEMENTS + ERRORS]
    small += [(template, True) for template in MUTABLE]
    for template, mutable in small:
        variables = {**defaults, "add_generation_prompt": True, **VARIABLES}
        cases.append({"template": template, **render(template, variables, mutable)})
    with open(FOLDER / "cases.jsonl", "w", encoding="utf-8") as out:
        out.write(json.dumps({"variables": VARIABLES}, ensure_ascii=False) + "\n")
        for case in cases:
            out.write(json.dumps(case, ensure_ascii=False) + "\n")
    print(f"{len(cases)} cases, {sum('error' in case for case in cases)} of them errors")
    for case in cases:  # a case that fails where it should not, or the other way round, tests something else than meant
        if "template" in case and ("error" in case) != (case["template"] in ERRORS):
            print("check:", case)


if __name__ == "__main__":
    main()
