"""Checks reference.py itself: the same dequantised weights in transformers' own models must give the same logits.

    python crosscheck.py MODEL.gguf [--tokens 700]

The text is arbitrary token ids, long enough to leave Gemma's sliding window. Exits 1 when any logit differs by more
than float32 rounding explains.
"""

import argparse

import torch
import transformers

from reference import Reference

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA_NAMES = NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
TOLERANCE = 2e-3


def hf_name(name, gemma):
    """Name of a GGUF tensor in transformers."""
    if not name.startswith("blk."):
        return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                "output.weight": "lm_head.weight"}[name]
    _, layer, rest = name.split(".", 2)
    what, kind = rest.rsplit(".", 1)
    return f"model.layers.{layer}.{(GEMMA_NAMES if gemma else NAMES)[what]}.{kind}"


def unpermute(w, heads):
    """Neighbouring pairs (GGUF llama) to halves (transformers): rows of each head."""
    return w.view(heads, -1, 2, *w.shape[1:]).transpose(1, 2).reshape(w.shape)


def transformers_model(ref):
    """transformers' own model with the weights of `ref`."""
    rope = {"rope_type": "default", "rope_theta": ref.base}
    if ref.linear != 1.0:
        rope = {"rope_type": "linear", "rope_theta": ref.base, "factor": ref.linear}
    common = dict(
        vocab_size=ref.vocab, hidden_size=ref.dim, num_hidden_layers=ref.n_layers, num_attention_heads=ref.heads,
        num_key_value_heads=ref.kv_heads, head_dim=ref.head_dim, rms_norm_eps=ref.eps,
        intermediate_size=ref.w["blk.0.ffn_up.weight"].shape[0], max_position_embeddings=ref.context,
        tie_word_embeddings="output.weight" not in ref.w, attn_implementation="eager",
    )
    if ref.gemma:
        config = transformers.Gemma3TextConfig(
            **common, sliding_window=ref.window, query_pre_attn_scalar=round(ref.scale**-2),
            layer_types=["full_attention" if ref.is_global(i) else "sliding_attention" for i in range(ref.n_layers)],
            rope_parameters={"full_attention": rope,
                             "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0}},
        )
        model = transformers.Gemma3ForCausalLM(config)
    else:
        kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[ref.arch]
        config = getattr(transformers, f"{kind}Config")(**common, rope_parameters=rope)
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
    state = {}
    for name, w in ref.w.items():
        if ref.interleaved and ".attn_q." in name:
            w = unpermute(w, ref.heads)
        if ref.interleaved and ".attn_k." in name:
            w = unpermute(w, ref.kv_heads)
        if ref.gemma and "norm" in name:
            w = w - 1.0
        state[hf_name(name, ref.gemma)] = w
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [m for m in missing if m != "lm_head.weight"]:
        raise SystemExit(f"weights do not fit transformers' model: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model.float().eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=700)
    args = parser.parse_args()
    ref = Reference(args.model)
    if "rope_freqs.weight" in ref.w:
        raise SystemExit("rope_freqs.weight has no counterpart in transformers; tiny.py checks llama3 scaling instead")
    tokens = [(i * 7919 + 13) % min(ref.vocab, 30_000) for i in range(args.tokens)]
    ours = ref.forward(tokens)
    with torch.inference_mode():
        theirs = transformers_model(ref)(torch.tensor([tokens])).logits[0]
    worst = (ours - theirs).abs().max().item()
    kl = mean_kl(theirs, ours)
    same = (ours.argmax(-1) == theirs.argmax(-1)).float().mean().item()
    print(f"{args.model}: {len(tokens)} positions, transformers {transformers.__version__}")
    print(f"  largest logit difference {worst:.2e}, mean KL {kl:.2e}, equal argmax {same:.2%}")
    if not worst < TOLERANCE:
        raise SystemExit(f"the reference disagrees with transformers: {worst:.2e} is not below {TOLERANCE:.0e}")


def mean_kl(p, q):
    """Mean over positions of KL(softmax p || softmax q)."""
    lp, lq = p.double().log_softmax(-1), q.double().log_softmax(-1)
    return (lp.exp() * (lp - lq)).sum(-1).mean().item()


if __name__ == "__main__":
    main()
