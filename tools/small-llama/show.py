"""Compares a layer-skip model with its plain twin: acceptance at an exit, and measured speed-up against the formula.

    python show.py --selfspec FILE --prompts FILE [--exit L] [--draft-len K] [--threads N] [--runs N] MODEL...

For each model `selfspec bench` measures c, b(k+1), and layer skip at exit L with K drafts a round on the prompts, N times in turns; medians count. `alpha` is the
acceptance of a draft whose predecessors in the round were accepted, with which E(k) = (1 - alpha^(k+1)) / (1 - alpha) and
speed-up = E(k) / (c k + b(k+1)). A plain step is one of plain decoding: a pass over one row, and what handing out a token takes. On a model this small that
is an eighth of the pass, and a round takes it once.
"""

import argparse
import json
import statistics
import subprocess


def bench(args, model):
    command = [args.selfspec, "bench", model, "--exits", str(args.exit), "--draft-len", str(args.draft_len)]
    command += ["--prompts", args.prompts, "--raw", "--no-tuning", "--contexts", "192", "-n", str(args.max_tokens), "-t", str(args.threads)]
    command += ["--repetitions", "3", "--limit", str(args.limit), "--output", "json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def figures(args, result):
    """(kind, acceptance of drafted tokens, alpha, E, predicted speed-up, measured speed-up, c, b) of each kind of prompt."""
    k = args.draft_len
    one, plain = result["pass_ms"]["1"], 1000 / result["plain_tok_s"]
    c = result["c"][str(args.exit)] * one / plain
    b = (result["pass_ms"][str(k + 1)] + plain - one) / plain
    for row in result["speculation"]:
        if row["drafter"] != "layer-skip":
            continue
        drafted, accepted, rounds = row["drafted"], row["accepted"], row["rounds"]
        alpha = alpha_of(accepted / rounds, k)
        expected = sum(alpha**i for i in range(k + 1))
        yield row["category"], accepted / drafted, alpha, expected, expected / (c * k + b), row["speedup"], c, b


def alpha_of(mean, k):
    """The acceptance with which a round of k drafts has so many accepted in the mean."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if sum(middle**i for i in range(1, k + 1)) < mean:
            low = middle
        else:
            high = middle
    return low


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--selfspec", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--exit", type=int, default=4)
    parser.add_argument("--draft-len", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--limit", type=int, default=72)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    runs = {model: [] for model in args.models}
    for _ in range(args.runs):
        for model in args.models:
            runs[model].append(list(figures(args, bench(args, model))))
    print(f"{'model':<24} {'kind':<6} accepted  alpha   E({args.draft_len})     c  b({args.draft_len + 1})  predicted  measured")
    for model, found in runs.items():
        for rows in zip(*found):
            kind, values = rows[0][0], [statistics.median(row[i] for row in rows) for i in range(1, 8)]
            accepted, alpha, expected, predicted, measured, c, b = values
            print(
                f"{model:<24} {kind:<6} {accepted:8.3f} {alpha:6.3f} {expected:6.2f} {c:5.2f} {b:5.2f} {predicted:10.2f} {measured:9.2f}"
            )


if __name__ == "__main__":
    main()
