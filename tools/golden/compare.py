"""Compares logits of the engine with the float32 reference over windows of a text. See README.md for the formats.

    python compare.py MODEL.gguf WINDOWS.json LOGITS.f32 [--max-ppl 1.0] [--max-kl 0.005]

LOGITS.f32 may be `-` for standard input. Exits 1 when the perplexity is off by more than --max-ppl per cent, or the
mean KL(reference || engine) of the next-token distributions is above --max-kl.
"""

import argparse
import json
import math
import os
import pathlib
import sys

import numpy as np
import torch

from reference import Reference

CHUNK = 64  # rows of logits compared at a time


def read_rows(stream, rows, vocab):
    """The next `rows` rows of logits: (rows, vocab)."""
    want = rows * vocab * 4
    raw = bytearray(want)
    view, got = memoryview(raw), 0
    while got < want:
        n = stream.readinto(view[got:])
        if not n:
            raise SystemExit(f"the logits end {want - got} bytes early")
        got += n
    return torch.from_numpy(np.frombuffer(raw, dtype="<f4").astype(np.float32, copy=False).reshape(rows, vocab))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("windows")
    parser.add_argument("logits")
    parser.add_argument("--max-ppl", type=float, default=1.0, help="largest difference in perplexity, per cent")
    parser.add_argument("--max-kl", type=float, default=0.005, help="largest mean KL divergence, nats")
    args = parser.parse_args()
    windows = json.loads(pathlib.Path(args.windows).read_text())["windows"]
    ref = Reference(args.model)
    positions = sum(map(len, windows))
    if args.logits == "-":
        stream = sys.stdin.buffer
    else:
        size, want = os.path.getsize(args.logits), positions * ref.vocab * 4
        if size != want:
            raise SystemExit(f"{args.logits} has {size} bytes; {positions} positions of {ref.vocab} logits are {want}")
        stream = open(args.logits, "rb")
    nll_ref = nll_ours = kl = 0.0
    kls, same, predicted, worst = [], 0, 0, 0.0
    for number, window in enumerate(windows, 1):
        for last in ref.residuals(window):
            pass
        targets = torch.tensor(window[1:])
        for start in range(0, len(window), CHUNK):
            theirs = ref.logits(last[start : start + CHUNK])
            ours = read_rows(stream, len(theirs), ref.vocab)
            if not ours.isfinite().all():
                raise SystemExit(f"window {number}, positions from {start}: a logit is not finite")
            worst = max(worst, (ours - theirs).abs().max().item())
            lp, lq = theirs.log_softmax(-1), ours.log_softmax(-1)  # float32: right to 1e-6
            kls.append((lp.exp() * (lp - lq)).sum(-1).double())
            same += (lp.argmax(-1) == lq.argmax(-1)).sum().item()
            t = targets[start : start + CHUNK, None]
            nll_ref -= lp[: len(t)].gather(1, t).double().sum().item()
            nll_ours -= lq[: len(t)].gather(1, t).double().sum().item()
            predicted += len(t)
        print(f"window {number} of {len(windows)}: perplexity so far {math.exp(nll_ref / predicted):.4f} (reference) "
              f"{math.exp(nll_ours / predicted):.4f} (engine), mean KL {torch.cat(kls).mean().item():.6f}", file=sys.stderr)
    if stream.read(1):
        raise SystemExit("there are more logits than positions")
    kls = torch.cat(kls)
    ppl_ref, ppl_ours = math.exp(nll_ref / predicted), math.exp(nll_ours / predicted)
    change = 100 * (ppl_ours / ppl_ref - 1)
    kl = kls.mean().item()
    result = {
        "positions": positions, "predicted": predicted, "ppl_reference": ppl_ref, "ppl_engine": ppl_ours,
        "ppl_change_percent": change, "mean_kl": kl, "p99_kl": kls.quantile(0.99).item(), "max_kl": kls.max().item(),
        "same_argmax": same / positions, "largest_logit_difference": worst,
    }
    print(json.dumps(result, indent=1))
    if abs(change) > args.max_ppl or not kl <= args.max_kl:
        raise SystemExit(f"outside the limits: perplexity {change:+.3f}% (limit {args.max_ppl}%), mean KL {kl:.6f} (limit {args.max_kl})")


if __name__ == "__main__":
    main()
