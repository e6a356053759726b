#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what independent programs compute with a Qwen2.5-Coder model: tests/golden/coder.jsonl, coder-0.5b.jsonl.

  python3 -m pip install --no-deps llama-cpp-cffi  # llama.cpp of April 2025, compiled; wants the libstdc++ of GCC 13
  python3 -m pip install cffi gguf tokenizers jinja2 numpy
  tools/make_real_golden.py -m models/Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf -o tests/golden/coder.jsonl [--peer]

Lines by their key: `tokens` (of a line of tokens.jsonl; what Hugging Face's tokenizers and llama.cpp agree on), `chat`
(the model's own template, rendered by Jinja2), `rows` (log-probabilities of the likeliest tokens at the last positions
of a text, in float32 from weights that are dequantised exactly, by NumPy), `out` (llama.cpp's greedy text, with the
float32 margin between the best two), and `peer`: how far llama.cpp is from float32 on those rows. With --peer only that
last line of a file is written anew.
"""

import argparse
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
from pathlib import Path

import gguf
import jinja2
import numpy as np
import tokenizers

ROOT = Path(__file__).resolve().parent.parent
N_ROWS = 32  # at the end of a text
N_TOP = 32
N_GREEDY = 96
# As transformers has it for Qwen2.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTROL, USER_DEFINED = 3, 4  # types of tokens that are looked for in the text
FUNCTION = {"type": "function", "function": {
    "name": "read_file", "description": "Reads a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}
CHATS = [
    {"messages": [{"role": "user", "content": "What does `std::move` do?"}], "add_generation_prompt": True},
    {"messages": [{"role": "system", "content": "Answer in one sentence."},
                  {"role": "user", "content": "Who are you?"}], "add_generation_prompt": True},
    {"messages": [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"},
                  {"role": "user", "content": "  and\n2 + 2? "}], "add_generation_prompt": True},
    {"messages": [{"role": "user", "content": "Read a.txt"},
                  {"role": "assistant", "content": "", "tool_calls": [
                      {"type": "function", "function": {"name": "read_file", "arguments": {"path": "a.txt"}}}]},
                  {"role": "tool", "content": "hello"}], "tools": [FUNCTION], "add_generation_prompt": True},
]


def metadata(reader, key):
    return reader.fields[key].contents()


class Float32:
    """The model in float32, a layer at a time, so that only one layer's weights are there at once."""

    def __init__(self, reader):
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        arch = metadata(reader, "general.architecture")
        self.n_layer = metadata(reader, f"{arch}.block_count")
        self.n_head = metadata(reader, f"{arch}.attention.head_count")
        self.n_kv = metadata(reader, f"{arch}.attention.head_count_kv")
        self.eps = metadata(reader, f"{arch}.attention.layer_norm_rms_epsilon")
        self.base = metadata(reader, f"{arch}.rope.freq_base")

    def weights(self, name):
        tensor = self.tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weights(name)

    def rotate(self, x):
        """x: rows, heads, dimensions."""
        half = x.shape[-1] // 2
        angle = np.outer(np.arange(len(x)), self.base ** (-np.arange(half) / half))
        cos, sin = (f(angle).astype(np.float32)[:, None, :] for f in (np.cos, np.sin))
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    def attend(self, q, k, v):
        n, dim = len(q), q.shape[-1]
        k, v = (np.repeat(t, self.n_head // self.n_kv, axis=1) for t in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.float32(np.sqrt(dim))
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.einsum("hij,jhd->ihd", scores / scores.sum(axis=-1, keepdims=True), v).reshape(n, -1)

    def hidden(self, texts):
        """The last states of every token of several texts."""
        ends = np.cumsum([len(ids) for ids in texts])[:-1]
        x = self.weights("token_embd.weight")[np.concatenate(texts)]
        for layer in range(self.n_layer):
            print(f"layer {layer + 1} of {self.n_layer}", flush=True)

            def of(name, layer=layer):
                return self.weights(f"blk.{layer}.{name}")
            h = self.norm(x, f"blk.{layer}.attn_norm.weight")
            q, k, v = (np.split(h @ of(f"attn_{name}.weight").T + of(f"attn_{name}.bias"), ends) for name in "qkv")
            out = []
            for parts in zip(q, k, v):
                q1, k1, v1 = (part.reshape(len(part), heads, -1)
                              for part, heads in zip(parts, (self.n_head, self.n_kv, self.n_kv)))
                out.append(self.attend(self.rotate(q1), self.rotate(k1), v1))
            x = x + np.concatenate(out) @ of("attn_output.weight").T
            h = self.norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = h @ of("ffn_gate.weight").T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ of("ffn_up.weight").T)) @ of("ffn_down.weight").T
        return np.split(self.norm(x, "output_norm.weight"), ends)

    def logits(self, states):
        return states @ self.weights("output.weight" if "output.weight" in self.tensors else "token_embd.weight").T


def compiled_llama_cpp():
    """llama.cpp's own interface, without what the package around it would import."""
    folder = importlib.util.find_spec("llama").submodule_search_locations[0]
    name = "_llama_cpp_cpu"
    path = next(str(Path(folder, name + suffix)) for suffix in importlib.machinery.EXTENSION_SUFFIXES
                if Path(folder, name + suffix).exists())
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ffi, module.lib


class LlamaCpp:
    N_CTX = 1024

    def __init__(self, path):
        self.ffi, self.api = compiled_llama_cpp()
        self.log = self.ffi.callback("void(enum ggml_log_level, const char *, void *)", lambda level, text, data: None)
        self.api.llama_log_set(self.log, self.ffi.NULL)
        self.api.llama_backend_init()
        self.model = self.api.llama_model_load_from_file(os.fsencode(path), self.api.llama_model_default_params())
        self.vocab = self.api.llama_model_get_vocab(self.model)
        self.n_vocab = self.api.llama_vocab_n_tokens(self.vocab)
        params = self.api.llama_context_default_params()
        params.n_ctx = params.n_batch = self.N_CTX
        params.n_threads = params.n_threads_batch = 1  # its threads wait for each other by turning
        params.flash_attn = True
        self.context = self.api.llama_init_from_model(self.model, params)
        self.batch = self.api.llama_batch_init(self.N_CTX, 0, 1)

    def tokens(self, text):
        data = text.encode()
        ids = self.ffi.new("llama_token[]", len(data) + 8)
        n = self.api.llama_tokenize(self.vocab, data, len(data), ids, len(data) + 8, False, True)
        return list(ids[0:n])

    def feed(self, ids, at):
        """The logits of every token."""
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i], self.batch.n_seq_id[i] = token, at + i, 1
            self.batch.seq_id[i][0], self.batch.logits[i] = 0, 1
        if at == 0:
            self.api.llama_kv_self_clear(self.context)
        if self.api.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError("llama.cpp failed")
        rows = [self.ffi.buffer(self.api.llama_get_logits_ith(self.context, i), 4 * self.n_vocab)
                for i in range(len(ids))]
        return np.stack([np.frombuffer(row, np.float32) for row in rows])

    def logits(self, ids):
        return self.feed(ids, 0)

    def greedy(self, ids, n):
        out = [int(np.argmax(self.feed(ids, 0)[-1]))]
        while len(out) < n:
            out.append(int(np.argmax(self.feed(out[-1:], len(ids) + len(out) - 1)[-1])))
        return out


def hugging_face(reader):
    """The vocabulary of the file in Hugging Face's tokenizer, as transformers sets it up for Qwen2 but for Unicode's
    normal form C, which no program applies to GGUF files."""
    pieces, types = metadata(reader, "tokenizer.ggml.tokens"), metadata(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in metadata(reader, "tokenizer.ggml.merges")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.add_special_tokens([piece for piece, kind in zip(pieces, types) if kind == CONTROL])
    tokenizer.add_tokens([tokenizers.AddedToken(piece, normalized=False)
                          for piece, kind in zip(pieces, types) if kind == USER_DEFINED])
    return tokenizer


def render(reader, chat):
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    return environment.from_string(metadata(reader, "tokenizer.chat_template")).render(**chat)


def log_softmax(logits):
    logits = logits.astype(np.float64)
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


def texts(reader):
    report = (ROOT / "data/demo/report.txt").read_text(encoding="utf-8")
    code = (ROOT / "examples/minimal.cc").read_text(encoding="utf-8")
    before, after = code.split("auto session", 1)
    return [report[:1200], report[5000:6500], code, code[:700], render(reader, CHATS[0]), render(reader, CHATS[1]),
            f"<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>"]


def token_lines(reader, peer):
    mine, both = hugging_face(reader), 0
    with open(ROOT / "tests/golden/tokens.jsonl", encoding="utf-8") as file:
        lines = [json.loads(line)["text"] for line in file]
    for i, text in enumerate(lines):
        ids = mine.encode(text, add_special_tokens=False).ids
        if ids == peer.tokens(text):
            both += 1
            yield {"line": i, "tokens": ids}
        else:
            print(f"line {i}: they differ: {text!r}")
    print(f"{both} of {len(lines)} lines are tokenised alike")


def divergence(top, logits):
    """KL of the log-probabilities `top` ([token, log p], the likeliest first) and of logits; all other tokens count as
    one."""
    q = log_softmax(logits)
    log_p, log_q = np.array([p for _, p in top]), q[[token for token, _ in top]]
    kl = float((np.exp(log_p) * (log_p - log_q)).sum())
    other_p, other_q = 1 - np.exp(log_p).sum(), 1 - np.exp(log_q).sum()
    return kl + float(other_p * np.log(other_p / other_q)) if other_p > 1e-6 and other_q > 0 else kl


def peer_line(peer, lines):
    rows = [(row["top"], logits) for line in lines
            for row, logits in zip(line["rows"], peer.logits(line["ids"])[line["rows"][0]["pos"]:])]
    return {"peer": f"llama-cpp-cffi {importlib.metadata.version('llama-cpp-cffi')}",
            "kl": round(sum(divergence(top, logits) for top, logits in rows) / len(rows), 6),
            "same_top": sum(top[0][0] == int(np.argmax(logits)) for top, logits in rows), "n_rows": len(rows)}


def model_lines(reader, peer):
    prompts = [peer.tokens(text) for text in texts(reader)]
    outs = [peer.greedy(ids, N_GREEDY) for ids in prompts[-3:]]
    model = Float32(reader)
    states = model.hidden([*prompts, *(ids + out for ids, out in zip(prompts[-3:], outs))])
    lines = []
    for ids, state in zip(prompts, states):
        first = max(len(ids) - N_ROWS, 0)
        right = log_softmax(model.logits(state[first:]))
        top = np.argsort(-right, axis=-1, kind="stable")[:, :N_TOP]
        lines.append({"ids": ids, "rows": [{"pos": first + row, "top": [[int(t), round(float(p[t]), 6)] for t in best]}
                                           for row, (p, best) in enumerate(zip(right, top))]})
    yield from lines
    for ids, out, state in zip(prompts[-3:], outs, states[len(prompts):]):
        logits = np.sort(model.logits(state[len(ids) - 1:-1]), axis=-1)
        best = np.argmax(model.logits(state[len(ids) - 1:-1]), axis=-1)
        margin = np.where(best == out, logits[:, -1] - logits[:, -2], 0)
        yield {"ids": ids, "out": out, "margin": [round(float(m), 4) for m in margin]}
    yield peer_line(peer, lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--peer", action="store_true", help="only the last line, by the rows that the file has")
    options = parser.parse_args()
    peer = LlamaCpp(options.model)
    if options.peer:
        *kept, _ = options.out.read_text(encoding="utf-8").splitlines()
        line = peer_line(peer, [fact for fact in map(json.loads, kept) if "rows" in fact])
        options.out.write_text("\n".join([*kept, json.dumps(line, separators=(",", ":"))]) + "\n", encoding="utf-8")
        print(line)
        return
    reader = gguf.GGUFReader(options.model)
    with open(options.out, "w", encoding="utf-8") as out:
        for line in (*token_lines(reader, peer), *({"chat": chat, "text": render(reader, chat)} for chat in CHATS),
                     *model_lines(reader, peer)):
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(line)


if __name__ == "__main__":
    main()
