"""Cuts a text into windows of tokens. See README.md for the file's format.

    python windows.py MODEL.gguf OUT.json FILE... [--tokens 20000] [--window 1024]

A .jsonl or .json file gives the strings of its records (prompts, turns, questions, answers, code); any other file is
taken as it is. When there are more files than one, each gives an equal share of the tokens.
"""

import argparse
import json
import pathlib

from tokens import Tokens

FIELDS = ("prompt", "canonical_solution", "turns", "question", "answer", "text", "code", "content")


def texts(path):
    """The texts of one file, in order."""
    raw = pathlib.Path(path).read_text(encoding="utf-8")
    if path.endswith(".jsonl"):
        records = [json.loads(line) for line in raw.splitlines() if line.strip()]
    elif path.endswith(".json"):
        records = json.loads(raw)
    else:
        return [raw]
    out = []
    for record in records:
        for field in FIELDS:
            value = record.get(field)
            parts = value if isinstance(value, list) else [value]
            out += [p for p in parts if isinstance(p, str)]
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--window", type=int, default=1024)
    args = parser.parse_args()
    tok = Tokens(args.model)
    ids = []
    for i, path in enumerate(args.files, 1):
        share = args.tokens * i // len(args.files)
        for text in texts(path):
            if len(ids) >= share:
                break
            ids += tok.encode(text + "\n", bos=False)
        ids = ids[:share]
    if len(ids) < args.tokens:
        raise SystemExit(f"the files hold only {len(ids)} tokens, {args.tokens} wanted")
    body = args.window - len(tok.bos)
    windows = [tok.bos + ids[i : i + body] for i in range(0, len(ids), body)]
    windows = [w for w in windows if len(w) > 1]
    pathlib.Path(args.out).write_text(json.dumps({"windows": windows}))
    print(f"{args.out}: {len(windows)} windows, {sum(map(len, windows))} positions")


if __name__ == "__main__":
    main()
