"""Writes crates/model/tests/it/golden/tiny.json: small models of every architecture, run by transformers in float32.

    python tiny.py

The weights follow a formula (README.md), so that a test can build the same model as a Hugging Face folder. Attention is
made sharp, so that a wrong rotation at position 4,000 shows in the logits; the script refuses to write a model in which it does not.
"""

import copy
import json
import math
import pathlib

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent.parent / "crates/model/tests/it/golden/tiny.json"
U64 = 0xFFFFFFFFFFFFFFFF
VISIBLE = 0.05  # a rotation that is wrong must move some logit at a far position by this much

COMMON = {
    "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "intermediate_size": 96, "rms_norm_eps": 1e-6, "max_position_embeddings": 8192,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 1024}
LINEAR = {"rope_type": "linear", "factor": 4.0}
MODELS = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "tie_word_embeddings": True},
    "llama_llama3_rope": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
                          "rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "llama_linear_rope": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
                          "rope_scaling": LINEAR},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "head_dim": 16,
              "rope_theta": 1000000.0, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu", "attention_bias": False,
              "rope_theta": 1000000.0},
    "gemma3": {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
               "num_hidden_layers": 7, "tie_word_embeddings": True, "query_pre_attn_scalar": 32, "sliding_window": 64,
               "sliding_window_pattern": 6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": LINEAR},
}


def fnv(name):
    """FNV-1a of a tensor's name."""
    h = 14695981039346656037
    for byte in name.encode():
        h = ((h ^ byte) * 1099511628211) & U64
    return h


def mix(x):
    """splitmix64's output function over an array of uint64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return x ^ x >> np.uint64(31)


def weights(spec):
    """Values of a tensor: float32 of its shape."""
    n = math.prod(spec["shape"])
    with np.errstate(over="ignore"):
        x = mix(np.uint64(fnv(spec["name"])) + np.arange(n, dtype=np.uint64))
    u = (x >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    w = np.float32(spec["offset"]) + np.float32(spec["scale"]) * u
    return torch.from_numpy(w.reshape(spec["shape"]))


def tensor_spec(name, shape, config):
    """How a tensor is filled: `scale` is a short decimal near sqrt(3 / k) (unit variance out), more where attention is sharpened."""
    gemma = config["model_type"] == "gemma3_text"
    normed_heads = config["model_type"] in ("qwen3", "gemma3_text")
    offset, scale = 0.0, 0.0
    if name.endswith("norm.weight"):
        head = name.endswith(("q_norm.weight", "k_norm.weight"))
        offset = (2.0 if head else 1.0) - (1.0 if gemma else 0.0)
        scale = 0.25
    elif name.endswith(".bias"):
        scale = 0.5
    elif "embed_tokens" in name:
        scale = 0.25 if gemma else 1.0
    else:
        scale = math.sqrt(3 / shape[1])
        if name.endswith(("q_proj.weight", "k_proj.weight")) and not normed_heads:
            scale *= 2
    return {"name": name, "shape": list(shape), "offset": offset, "scale": round(scale, 3)}


def build(config):
    """transformers' model for a config, and the tensors that a checkpoint of it holds."""
    config = copy.deepcopy(config)
    kind = config.pop("architectures")[0]
    config.pop("torch_dtype")
    config_class = transformers.Gemma3TextConfig if "Gemma3" in kind else getattr(transformers, kind.replace("ForCausalLM", "Config"))
    theirs = config_class(**{k: v for k, v in config.items() if k != "model_type"}, attn_implementation="eager")
    model = getattr(transformers, kind)(theirs).float().eval()
    names = [n for n in model.state_dict() if not (config["tie_word_embeddings"] and n == "lm_head.weight")]
    specs = [tensor_spec(n, tuple(model.state_dict()[n].shape), config) for n in names]
    missing, unexpected = model.load_state_dict({s["name"]: weights(s) for s in specs}, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise SystemExit(f"{kind}: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model, specs


@torch.inference_mode()
def run(config, tokens, positions):
    model, specs = build(config)
    return model(torch.tensor([tokens])).logits[0, positions].double(), specs


def main():
    entries = []
    for name, changes in MODELS.items():
        config = COMMON | changes
        seed, length = fnv(name) & 0xFFFFFFFF, 4500 if "rope_scaling" in config else 700
        tokens = (mix(np.uint64(seed) + np.arange(length, dtype=np.uint64)) % np.uint64(config["vocab_size"])).astype(int).tolist()
        positions = [p for p in (0, 1, 70, 400, 1300, 4200) if p < length] + [length - 1]
        logits, specs = run(config, tokens, positions)
        if "rope_scaling" in config:
            plain, _ = run({k: v for k, v in config.items() if k != "rope_scaling"}, tokens, positions)
            moved = (plain - logits).abs().amax(-1)[-2:].min().item()
            print(f"{name}: without its rope scaling the far logits move by {moved:.3f}")
            if moved < VISIBLE:
                raise SystemExit(f"{name}: the rotation at far positions cannot be seen in the logits")
        if "sliding_window" in config:
            wide, _ = run(config | {"sliding_window": config["sliding_window"] + 1}, tokens, positions)
            moved = (wide - logits).abs().amax(-1)[-2:].min().item()
            print(f"{name}: a window wider by one moves the far logits by {moved:.4f}")
        print(f"{name}: logits {logits.min():.2f} to {logits.max():.2f}, standard deviation {logits.std():.2f}")
        entries.append({"name": name, "config": config, "tensors": specs, "seed": seed, "length": length,
                        "first_tokens": tokens[:8],
                        "first_weights": [[s["name"], [round(v, 7) for v in weights(s).flatten()[:3].tolist()]] for s in specs[:2]],
                        "logits": [[p, [round(v, 5) for v in row]] for p, row in zip(positions, logits.tolist())]})
    parts = []
    for e in entries:
        rows = lambda xs: "[\n   " + ",\n   ".join(json.dumps(x) for x in xs) + "]"
        head = json.dumps({k: v for k, v in e.items() if k not in ("tensors", "logits")})[:-1]
        parts.append(f'{head},\n  "tensors": {rows(e["tensors"])},\n  "logits": {rows(e["logits"])}}}')
    GOLDEN.write_text('{"models": [\n ' + ",\n ".join(parts) + "\n]}\n")
    json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    main()
