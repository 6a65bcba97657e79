"""Writes the golden file of a real model. See README.md for the format.

    python make.py MODEL.gguf NAME [--long 4600]
"""

import argparse
import hashlib
import json
import pathlib

from reference import Reference
from tokens import Tokens

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent.parent / "crates/model/tests/it/golden"
TOP = 8


def long_text(lines):
    """A log whose lines share a frame and differ in their facts: predictable only by looking far back."""
    towns = ["Arden", "Brixley", "Corvath", "Dunmere", "Elswick", "Farrow", "Glenholt"]
    cargo = ["barley", "copper wire", "slate", "wool", "lamp oil", "salted fish", "paper", "clay pots", "rope", "tea", "nails"]
    return "".join(
        f"Entry {i}: the barge from {towns[i % 7]} brought {3 + i * i % 89} crates of {cargo[i * 5 % 11]}; "
        f"the clerk of {towns[(i * 3 + 1) % 7]} paid {17 + i * 31 % 400} crowns.\n"
        for i in range(lines)
    )


def golden(ref, name, text, tokens, positions):
    """One entry of `texts`."""
    keep = {0: None, ref.n_layers // 2: None, ref.n_layers: None}
    for layer, x in enumerate(ref.residuals(tokens)):
        if layer in keep:
            keep[layer] = x[positions].abs().mean(-1)
    logprobs, nll = {}, []
    for start in range(0, len(tokens), 256):  # the logits of all positions of a long text would not fit
        rows = ref.logits(x[start : start + 256]).double().log_softmax(-1)
        for i, row in enumerate(rows, start):
            if i in positions:
                logprobs[i] = row
            if i + 1 < len(tokens):
                nll.append(-row[tokens[i + 1]].item())
    entries = []
    for i, pos in enumerate(positions):
        top = logprobs[pos].topk(TOP)
        entry = {"pos": pos}
        if pos < len(nll):
            entry["nll"] = round(nll[pos], 6)
        entry["top"] = [[t, round(lp, 6)] for t, lp in zip(top.indices.tolist(), top.values.tolist())]
        entry["residual"] = {str(layer): round(v[i].item(), 7) for layer, v in keep.items()}
        entries.append(entry)
    return {"name": name, "text": text, "tokens": tokens, "nll": round(sum(nll), 4), "positions": entries}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("name")
    parser.add_argument("--long", type=int, default=4600, help="positions of the long text")
    args = parser.parse_args()
    ref, tok = Reference(args.model), Tokens(args.model)
    texts = []
    for name, text in json.loads((HERE / "texts.json").read_text()).items():
        ids = tok.encode(text)
        n = len(ids)
        texts.append(golden(ref, name, text, ids, [0, 1, 5, n // 4, n // 2, 3 * n // 4, n - 2, n - 1]))
    ids = tok.encode(long_text(args.long // 20))[: args.long]
    if len(ids) < args.long:
        raise SystemExit(f"the long text has only {len(ids)} tokens")
    far = [n for n in (511, 512, 600, 1024, 2048, 4095, 4096, 4300) if n < args.long] + [args.long - 2, args.long - 1]
    texts.append(golden(ref, "long", None, ids, far))
    out = {
        "file": pathlib.Path(args.model).name,
        "sha256": hashlib.sha256(pathlib.Path(args.model).read_bytes()).hexdigest(),
        "arch": ref.arch, "n_layers": ref.n_layers, "vocab": ref.vocab, "texts": texts,
    }
    GOLDEN.mkdir(parents=True, exist_ok=True)
    path = GOLDEN / f"{args.name}.json"
    # One line an entry: short in the repository, readable in a diff.
    body = ",\n  ".join(
        json.dumps({k: v for k, v in t.items() if k != "positions"}, ensure_ascii=False)[:-1]
        + ', "positions": [\n    ' + ",\n    ".join(json.dumps(p) for p in t["positions"]) + "]}"
        for t in texts
    )
    head = json.dumps({k: v for k, v in out.items() if k != "texts"})[:-1]
    path.write_text(f'{head}, "texts": [\n  {body}\n]}}\n')
    json.loads(path.read_text())
    for t in texts:
        print(f"{t['name']}: {len(t['tokens'])} tokens, perplexity {2.718281828459045 ** (t['nll'] / (len(t['tokens']) - 1)):.3f}")
    print(path)


if __name__ == "__main__":
    main()
