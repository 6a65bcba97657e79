"""Compares this project's tokenizers with the reference libraries, text by text.

    python -m venv venv && venv/bin/pip install tokenizers transformers gguf
    cargo build --release -p selfspec-text --example encode
    venv/bin/python tools/tokenizer-check/check.py --encode target/release/examples/encode MODEL.gguf [TEXTS.jsonl ...]

Each text is encoded plainly (control-token spellings are text) and as a trusted prompt (they are tokens). The reference is
`transformers`' conversion of the same GGUF. For the pre-tokenizer "smollm" that conversion ignores the file's rule, so its
pre-tokenizer is replaced by the one of the model's own tokenizer.json: single digits, then GPT-2's. Exits 1 on a difference.

`--families` instead builds tokenizer.json files in the style of Llama 3, Qwen2, GPT-2, Llama 2 and Gemma from the vocabularies
of the given GGUFs and compares `from_hf` with the `tokenizers` library on them.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import corpus
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def ours(encode, kind, path, mode, texts):
    lines = "".join(json.dumps(t) + "\n" for t in texts)
    done = subprocess.run([encode, kind, path, mode], input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{encode}: {done.stderr}")
    print("   ", done.stderr.strip().replace("\n", "; "))
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(name, reference, mode, texts, got, controls, bos=None):
    """`bos`: the token that a prompt begins with unless it is already there."""
    reference.encode_special_tokens = mode == "plain"
    expected = [e.ids for e in reference.encode_batch(texts, add_special_tokens=False)]
    if mode == "prompt" and bos is not None:
        expected = [ids if ids[:1] == [bos] else [bos, *ids] for ids in expected]
    different = []
    excused = 0
    for text, a, b in zip(texts, expected, got):
        if a == b:
            continue
        # The library's merges can end in a control token's id although it was told to leave such spellings text.
        if mode == "plain" and any(i in controls for i in a):
            excused += 1
        else:
            different.append((text, a, b))
    print(f"{name} {mode}: {len(texts)} texts, {sum(map(len, expected))} tokens, {len(different)} differ"
          + (f", {excused} where the reference makes a control token of text" if excused else ""))
    for text, a, b in different[:8]:
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        print(f"      {text[:60]!r} at token {at}: expected {a[max(0, at - 1):at + 4]} got {b[max(0, at - 1):at + 4]}")
    return len(different)


def from_gguf(path):
    """The reference tokenizer and the metadata it is made of. `transformers` reads the file itself only where PyTorch is
    installed, so the `gguf` package reads it here."""
    import gguf
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

    fields = gguf.GGUFReader(path).fields
    names = GGUF_TOKENIZER_MAPPING["tokenizer"]
    data = {name: fields[f"tokenizer.{key}"].contents() for key, name in names.items() if f"tokenizer.{key}" in fields}
    flag = fields.get("tokenizer.ggml.add_bos_token")
    data["add_bos"] = data["tokenizer_type"] == "llama" if flag is None else flag.contents()
    backend, _ = convert_gguf_tokenizer(fields["general.architecture"].contents(), data)
    return backend, data


def smollm_rule(backend):
    backend = Tokenizer.from_str(backend.to_str())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return backend


def families(args, texts):
    bad = 0
    for path in args.gguf:
        backend, data = from_gguf(path)
        made = json.loads(backend.to_str())
        byte_level = data["tokenizer_type"] == "gpt2"
        if byte_level:
            split = lambda regex: pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
            variants = {
                "llama3": (None, split(LLAMA3), True), "llama3-no-ignore": (None, split(LLAMA3), False),
                "qwen2": (normalizers.NFC(), split(LLAMA3.replace("{1,3}", "")), False),
                "gpt2": (None, pre_tokenizers.ByteLevel(False), False),
                "gpt2-prefix": (None, pre_tokenizers.ByteLevel(True), False),
                "other-regex": (normalizers.NFKC(), split(r"\p{L}+|\p{N}{1,4}|[^\p{L}\p{N}]+?(?=\p{L}|$)|."), False),
                "digits": (normalizers.Lowercase(), pre_tokenizers.Sequence(
                    [pre_tokenizers.Digits(False), pre_tokenizers.ByteLevel(False)]), False),
                "split-string": (None, pre_tokenizers.Sequence([pre_tokenizers.Split("e", "merged_with_next"),
                    pre_tokenizers.Split("a", "merged_with_previous"), pre_tokenizers.Split(Regex("[.]+"), "contiguous"),
                    pre_tokenizers.ByteLevel(False)]), False),
            }
        else:
            mark = normalizers.Replace(" ", "▁")
            variants = {
                "gemma": (mark, pre_tokenizers.Split(" ", "merged_with_previous"), False),
                "llama2-legacy": (normalizers.Sequence([normalizers.Prepend("▁"), mark]), None, False),
                "llama2-first": (None, pre_tokenizers.Metaspace("▁", "first", split=False), False),
                "metaspace-always": (None, pre_tokenizers.Metaspace("▁", "always", split=True), False),
            }
        for name, (normalizer, pre_tokenizer, ignore) in variants.items():
            reference = Tokenizer.from_str(json.dumps(made))
            if normalizer:
                reference.normalizer = normalizer
            else:
                made_without = json.loads(reference.to_str())
                made_without["normalizer"] = None
                reference = Tokenizer.from_str(json.dumps(made_without))
            if pre_tokenizer:
                reference.pre_tokenizer = pre_tokenizer
            else:
                made_without = json.loads(reference.to_str())
                made_without["pre_tokenizer"] = None
                reference = Tokenizer.from_str(json.dumps(made_without))
            text = json.loads(reference.to_str())
            text["model"]["ignore_merges"] = ignore
            text = json.dumps(text)
            reference = Tokenizer.from_str(text)
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "tokenizer.json").write_text(text)
                controls = {t["id"] for t in json.loads(text)["added_tokens"] if t["special"]}
                for mode in ["plain", "prompt"]:
                    bad += compare(name, reference, mode, texts, ours(args.encode, "hf", folder, mode, texts), controls)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encode", default="target/release/examples/encode")
    parser.add_argument("--families", action="store_true")
    parser.add_argument("--codepoints", action="store_true", help="also every code point (a million texts)")
    parser.add_argument("gguf", nargs="+", help="GGUF files, then text files")
    args = parser.parse_args()
    files = [p for p in args.gguf if not p.endswith(".gguf")]
    args.gguf = [p for p in args.gguf if p.endswith(".gguf")]
    texts = corpus.FIXED + corpus.generated() + list(corpus.from_files(files))
    texts += ["".join(texts)[:1_000_000]]
    if args.codepoints:
        texts += corpus.codepoints()

    bad = 0
    if args.families:
        bad = families(args, texts)
    else:
        for path in args.gguf:
            backend, data = from_gguf(path)
            controls = {i for i, ty in enumerate(data["token_type"]) if ty == 3}
            bos = data["bos_token_id"] if data["add_bos"] else None
            name = pathlib.Path(path).name
            results = {mode: ours(args.encode, "gguf", path, mode, texts) for mode in ["plain", "prompt"]}
            if data.get("pre_tokenizer_type") == "smollm":
                for mode, got in results.items():
                    compare(f"{name} (transformers' own rule, for information)", backend, mode, texts, got, controls, bos)
                backend = smollm_rule(backend)
            for mode, got in results.items():
                bad += compare(name, backend, mode, texts, got, controls, bos)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
