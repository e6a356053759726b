#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/architectures.json: what transformers computes with tiny models of each architecture.

    pip install torch transformers gguf
    tools/make_architecture_fixture.py build/release/tools/make_tiny_model tests/golden/architectures.json

The models are those of make_tiny_model with the options kept in the file; their tensors go into transformers' own
classes in f32, and the logits of the last of a few tokens come out.
"""
import argparse
import json
import os
import subprocess
import tempfile

import torch
from gguf import GGUFReader
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

CLASSES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM),
           "qwen3": (Qwen3Config, Qwen3ForCausalLM), "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM)}
NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
# Where Gemma's differ.
GEMMA_NAMES = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
               "post_ffw_norm": "post_feedforward_layernorm"}
MODELS = [{"arch": "llama", "head-dim": 0}, {"arch": "qwen2", "head-dim": 0}, {"arch": "qwen3", "head-dim": 32},
          {"arch": "gemma3", "head-dim": 32, "layers": 7, "rope-base": 1e6}]
# YaRN: the original context, and the other keys of GGUF under rope.scaling.
MODELS += [{"arch": "llama", "head-dim": 0, "yarn": {"original": 64, "numbers": numbers}} for numbers in (
    {"factor": 4.0}, {"factor": 8.0, "yarn_beta_fast": 4.0, "yarn_beta_slow": 0.5, "yarn_log_multiplier": 0.5},
    {"factor": 4.0, "yarn_attn_factor": 1.25})]
# Their names in a configuration of transformers.
ROPE_NAMES = {"factor": "factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow",
              "yarn_log_multiplier": "mscale_all_dim", "yarn_attn_factor": "attention_factor"}
TOKENS = [5, 17, 300, 299, 42, 42, 7, 258, 100, 3, 383, 64]


def hugging_face_name(name, arch):
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    if name in fixed:
        return fixed[name]
    _, layer, part, kind = name.split(".")
    names = NAMES | GEMMA_NAMES if arch == "gemma3" else NAMES
    return f"model.layers.{layer}.{names[part]}.{kind}"


def unpermuted(x, n_heads):
    """Rows of pairs (2i, 2i + 1) of each head, as GGUF files of llama have them, back to (i, i + half)."""
    head_dim = x.shape[0] // n_heads
    return x.view(n_heads, head_dim // 2, 2, -1).transpose(1, 2).reshape(x.shape)


def tool_options(model):
    options = [f"--arch={model['arch']}", f"--head-dim={model['head-dim']}", f"--layers={model.get('layers', 2)}",
               f"--rope-freq-base={model.get('rope-base', 1e4)}"]
    if yarn := model.get("yarn"):
        options += ["--rope-scaling=yarn", f"--rope-original-context={yarn['original']}"]
        for key, value in yarn["numbers"].items():
            options.append(f"--rope-scaling-number={key}={value}")
    return options


def rope_parameters(model):
    parameters = {"rope_type": "default", "rope_theta": 10000.0}
    if yarn := model.get("yarn"):
        parameters.update(rope_type="yarn", original_max_position_embeddings=yarn["original"])
        parameters.update({ROPE_NAMES[key]: value for key, value in yarn["numbers"].items()})
        if "mscale_all_dim" in parameters:
            parameters["mscale"] = 1.0
    return parameters


def logits(tool, model):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        subprocess.run([tool, "--out", path, "--untied", *tool_options(model)], check=True)
        tensors = {t.name: torch.tensor(t.data.copy()).float() for t in GGUFReader(path).tensors}
    config_class, model_class = CLASSES[model["arch"]]
    head_dim = model["head-dim"] or 16
    own = {}
    if model["arch"] == "gemma3":  # the window is that of make_tiny_model
        own = {"sliding_window": 5, "query_pre_attn_scalar": head_dim, "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base}
            for kind, base in (("full_attention", model["rope-base"]), ("sliding_attention", 1e4))}}
    net = model_class(config_class(**{**dict(
        vocab_size=384, hidden_size=64, intermediate_size=128, num_hidden_layers=model.get("layers", 2),
        num_attention_heads=4, num_key_value_heads=2, head_dim=head_dim, rms_norm_eps=1e-5,
        rope_parameters=rope_parameters(model), max_position_embeddings=512, tie_word_embeddings=False,
        attn_implementation="eager"), **own}))
    weights = {}
    for name, x in tensors.items():
        if model["arch"] == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            x = unpermuted(x, 4 if "attn_q" in name else 2)
        if model["arch"] == "gemma3" and "norm" in name:
            x = x - 1.0  # GGUF files have the 1 of Gemma's norms in the weights
        weights[hugging_face_name(name, model["arch"])] = x
    net.load_state_dict(weights, strict=True)
    net.eval()
    with torch.no_grad():
        return net(torch.tensor([TOKENS])).logits[0, -1].double().tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", help="make_tiny_model")
    parser.add_argument("out")
    args = parser.parse_args()
    cases = [{"model": m, "logits": [round(x, 6) for x in logits(args.tool, m)]} for m in MODELS]
    with open(args.out, "w") as out:
        json.dump({"tokens": TOKENS, "cases": cases}, out)
        out.write("\n")


if __name__ == "__main__":
    main()
