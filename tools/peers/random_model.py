"""Writes a Llama of a real model's shape with random weights: for speeds, where only sizes and types matter.

    python random_model.py TOKENIZER.gguf OUT.gguf --shape llama-1b --type Q4_0

The tokenizer and the size of the vocabulary are those of TOKENIZER.gguf. Blocks hold random integers under small, constant scales, so
that no activation overflows; the text that comes out is nonsense.
"""

import argparse

import gguf
import numpy as np

SHAPES = {  # layers, dim, heads, KV heads, feed-forward
    "llama-1b": (16, 2048, 32, 8, 8192),
    "llama-7b": (32, 4096, 32, 32, 11008),
}
# Offsets of the f16 scales and minima in a block, in bytes; GGUF's block layouts. None: the type is f16 itself.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "F16": None}


def blocks(rng, kind, rows, columns):
    """Random blocks of one matrix: (rows, bytes of a row)."""
    scale = np.float16(2e-3 / columns**0.5).view(np.uint16)
    if SCALES[kind] is None:
        values = (rng.standard_normal(1 << 20, np.float32) / columns**0.5).astype(np.float16)
        return np.resize(values, (rows, columns))
    length, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    count = rows * columns // length
    pool = rng.integers(0, 256, (1 << 16, size), np.uint8)  # repeated: drawing a billion bytes takes longer than reading them
    for offset in SCALES[kind]:
        pool[:, offset : offset + 2] = np.frombuffer(scale.tobytes(), np.uint8)
    return np.resize(pool, (count, size)).reshape(rows, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("target")
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b")
    parser.add_argument("--type", choices=SCALES, default="Q4_0", help="of the layers' matrices and of the embedding, which is the head too")
    args = parser.parse_args()
    layers, dim, heads, kv_heads, ffn = SHAPES[args.shape]
    reader = gguf.GGUFReader(args.tokenizer)
    writer = gguf.GGUFWriter(args.target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub)
    vocab = len(reader.fields["tokenizer.ggml.tokens"].data)
    writer.add_name(f"random {args.shape} {args.type}")
    writer.add_block_count(layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(dim)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(dim // heads)
    writer.add_rope_freq_base(500_000.0)
    writer.add_vocab_size(vocab)
    rng = np.random.default_rng(1)
    kind = gguf.GGMLQuantizationType[args.type]

    def matrix(name, rows, columns):
        writer.add_tensor(name, blocks(rng, args.type, rows, columns), raw_dtype=kind)

    matrix("token_embd.weight", vocab, dim)
    writer.add_tensor("output_norm.weight", np.ones(dim, np.float32))
    kv = dim // heads * kv_heads
    for layer in range(layers):
        name = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{name}{norm}.weight", np.ones(dim, np.float32))
        for part, rows, columns in (("attn_q", dim, dim), ("attn_k", kv, dim), ("attn_v", kv, dim), ("attn_output", dim, dim),
                                    ("ffn_gate", ffn, dim), ("ffn_up", ffn, dim), ("ffn_down", dim, ffn)):
            matrix(f"{name}{part}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
