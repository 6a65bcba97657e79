"""A float32 forward pass over the dequantised weights of a GGUF file: what selfspec's logits are compared with.

Written for clarity and nothing else: whole sequences, no cache, one matrix product a projection. Every weight is
dequantised by the `gguf` package, so the only differences to expect from the engine are its int8 activations,
its f16 KV cache and the order of its sums.

Architectures: llama, qwen2, qwen3, gemma3. Rope: plain, linear, and the per-frequency factors of `rope_freqs.weight`.
"""

import math

import gguf
import numpy as np
import torch
import torch.nn.functional as F

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
GEMMA3_LOCAL_BASE = 10_000.0
GEMMA3_GLOBAL_EVERY = 6


class Reference:
    """A model in float32. Residual streams are (position, dim)."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.arch = self.meta("general.architecture", prefix=False)
        if self.arch not in ARCHITECTURES:
            raise SystemExit(f"{path}: architecture {self.arch!r} is not one of {ARCHITECTURES}")
        self.gemma = self.arch == "gemma3"
        self.n_layers = self.meta("block_count")
        self.dim = self.meta("embedding_length")
        self.heads = self.meta("attention.head_count")
        self.kv_heads = self.meta("attention.head_count_kv", self.heads)
        self.head_dim = self.meta("attention.key_length", self.dim // self.heads)
        self.eps = self.meta("attention.layer_norm_rms_epsilon")
        self.context = self.meta("context_length")
        self.window = self.meta("attention.sliding_window", 0) if self.gemma else 0
        self.rot = self.meta("rope.dimension_count", self.head_dim)
        self.base = self.meta("rope.freq_base", 10_000.0)
        # The largest Gemma 3 scales by the width of a head counted from the model's own width.
        wide = self.gemma and self.n_layers == 62
        self.scale = 1.0 / math.sqrt(self.dim / self.heads if wide else self.head_dim)
        # llama files hold q and k permuted for rotation of neighbouring pairs; the others rotate halves.
        self.interleaved = self.arch == "llama"
        scaling = self.meta("rope.scaling.type", "none")
        if scaling not in ("none", "linear"):
            raise SystemExit(f"{path}: rope scaling {scaling!r} is neither none nor linear")
        self.linear = self.meta("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0
        self.w = {
            t.name: torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type), np.float32))
            for t in reader.tensors
        }
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])
        self.vocab = self.head.shape[0]

    def meta(self, key, default=None, prefix=True):
        """Value of a metadata key; without `default` the key must be there."""
        key = f"{self.arch}.{key}" if prefix else key
        if key in self.fields:
            return self.fields[key].contents()
        if default is None:
            raise SystemExit(f"metadata key {key} is missing")
        return default

    def is_global(self, layer):
        """Whether a layer sees every earlier position."""
        return self.window == 0 or (layer + 1) % GEMMA3_GLOBAL_EVERY == 0

    def frequencies(self, layer):
        """Rotation a position, in radians, of each rotated pair: (rot / 2), float64."""
        glob = self.is_global(layer)
        base = self.base if glob else GEMMA3_LOCAL_BASE
        freq = base ** (-torch.arange(0, self.rot, 2, dtype=torch.float64) / self.rot)
        if "rope_freqs.weight" in self.w:
            freq = freq / self.w["rope_freqs.weight"].double()
        return freq / self.linear if glob else freq

    def rotate(self, x, layer):
        """Rotary embedding of x: (position, head, head_dim)."""
        angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * self.frequencies(layer)
        cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
        turned, rest = x[..., : self.rot], x[..., self.rot :]
        if self.interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
            out = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
        else:
            a, b = turned.chunk(2, dim=-1)
            out = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
        return torch.cat((out, rest), dim=-1)

    def norm(self, x, name):
        """Root-mean-square norm; Gemma files hold the weight with its 1 already added."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.w[name]

    def project(self, x, layer, name):
        """x @ w.T (+ bias, where the file has one)."""
        return F.linear(x, self.w[f"blk.{layer}.{name}.weight"], self.w.get(f"blk.{layer}.{name}.bias"))

    def attention(self, x, layer):
        """x: normed (position, dim) -> (position, dim)."""
        n = x.shape[0]
        q = self.project(x, layer, "attn_q").view(n, self.heads, self.head_dim)
        k = self.project(x, layer, "attn_k").view(n, self.kv_heads, self.head_dim)
        v = self.project(x, layer, "attn_v").view(n, self.kv_heads, -1)
        if f"blk.{layer}.attn_q_norm.weight" in self.w:
            q = self.norm(q, f"blk.{layer}.attn_q_norm.weight")
            k = self.norm(k, f"blk.{layer}.attn_k_norm.weight")
        q, k = self.rotate(q, layer), self.rotate(k, layer)
        group = self.heads // self.kv_heads
        pos = torch.arange(n)
        hidden = pos[None, :] > pos[:, None]
        if not self.is_global(layer):
            hidden |= pos[:, None] - pos[None, :] >= self.window
        out = torch.empty(n, self.heads, v.shape[-1])
        for h in range(self.heads):  # a head at a time: (n, n) scores of a long text fit in memory
            scores = (q[:, h] @ k[:, h // group].T) * self.scale
            out[:, h] = scores.masked_fill_(hidden, -torch.inf).softmax(-1) @ v[:, h // group]
        return self.project(out.flatten(1), layer, "attn_output")

    def feed_forward(self, x, layer):
        """x: normed (position, dim) -> (position, dim)."""
        gate = self.project(x, layer, "ffn_gate")
        gate = F.gelu(gate, approximate="tanh") if self.gemma else F.silu(gate)
        return self.project(gate * self.project(x, layer, "ffn_up"), layer, "ffn_down")

    @torch.inference_mode()
    def residuals(self, tokens):
        """Yields the residual stream (position, dim) after 0, 1, ... N layers."""
        x = self.w["token_embd.weight"][torch.tensor(tokens)]
        if self.gemma:
            x = x * math.sqrt(self.dim)
        yield x
        for layer in range(self.n_layers):
            b = f"blk.{layer}."
            y = self.attention(self.norm(x, b + "attn_norm.weight"), layer)
            x = x + (self.norm(y, b + "post_attention_norm.weight") if self.gemma else y)
            y = self.feed_forward(self.norm(x, b + "ffn_norm.weight"), layer)
            x = x + (self.norm(y, b + "post_ffw_norm.weight") if self.gemma else y)
            yield x

    @torch.inference_mode()
    def logits(self, residual):
        """Logits (position, vocab) of rows of the last residual stream."""
        return self.norm(residual, "output_norm.weight") @ self.head.T

    def forward(self, tokens):
        """Logits of every position: (position, vocab)."""
        for last in self.residuals(tokens):
            pass
        return self.logits(last)
