"""Measures prompt lookup of llama.cpp and of selfspec side by side on prompts whose answer copies from the prompt. See README.md.

Each repetition asks every program every prompt once, prompt after prompt, so that what else the machine does falls on all.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONTEXT = 1024

PROMPTS = {
    "quote": """Copy the following text word for word:

The harbour of the small town had been built by fishermen from the north, who brought with them their nets, their songs and their habit of \
painting each boat in two colours. In the morning the market opened at six, and by seven the first baskets of herring were already sold. \
The lighthouse keeper, a quiet man named Anders, wrote down every ship that passed, the weather, and the colour of its sails. He had done so \
for thirty-one years, and his books filled a whole shelf in the town hall.""",
    "fix": """There is one misspelled word in this Python function: `retrun` should be `return`. Write the whole function again with that word fixed \
and nothing else changed.

```python
def moving_average(values, window):
    if window <= 0:
        raise ValueError("window must be positive")
    averages = []
    total = 0.0
    for index, value in enumerate(values):
        total += value
        if index >= window:
            total -= values[index - window]
        if index >= window - 1:
            averages.append(total / window)
    retrun averages
```""",
    "list": """Repeat this list exactly, with all its lines:

1. 500 g of wholemeal flour from the mill
2. 12 fresh eggs from the farm next door
3. 2 litres of unsweetened almond milk
4. 1 jar of wild forest honey
5. 250 g of salted butter
6. 3 bars of dark chocolate with sea salt
7. 1 bunch of flat-leaved parsley
8. 6 ripe tomatoes on the vine
9. 1 bottle of cold-pressed olive oil
10. 2 packets of dried yeast""",
    "json": """Write this JSON again, but change the city of Maria from "Lisbon" to "Porto". Answer with the JSON only.

```json
{
  "customers": [
    {"id": 101, "name": "Johan", "city": "Utrecht", "orders": 12, "active": true},
    {"id": 102, "name": "Maria", "city": "Lisbon", "orders": 7, "active": true},
    {"id": 103, "name": "Pavel", "city": "Brno", "orders": 31, "active": false},
    {"id": 104, "name": "Aiko", "city": "Sendai", "orders": 4, "active": true}
  ]
}
```""",
    "rename": """Rename the variable `x` to `distance` in this C function and write the whole function again.

```c
static int parse_record(const char *line, struct record *out) {
    int x = 0;
    char name[64];
    if (sscanf(line, "%63s %d", name, &x) != 2) {
        fprintf(stderr, "cannot parse the line: %s\\n", line);
        return -1;
    }
    out->distance = x;
    strncpy(out->name, name, sizeof(out->name) - 1);
    out->name[sizeof(out->name) - 1] = 0;
    return 0;
}
```""",
    "extract": """Here are the notes of a meeting. Quote the three paragraphs about the budget, word for word.

Anna opened the meeting at nine and thanked everyone for coming in spite of the snow.

Budget: The committee spent 14,200 crowns on the new roof, which is 1,800 crowns more than planned, because the old beams had to be replaced.

Budget: The library asked for 3,500 crowns for children's books. The committee agreed to pay one half this year and the other half next year.

Tom reported that the football field is closed until April.

Budget: The remaining 9,750 crowns stay in the savings account at the regional bank until the next meeting in March.""",
}

# n-gram drafting of llama-server: name, tokens matched / most tokens drafted. Its defaults, 12 or 24 and 48 or 64, are long for a CPU and short answers.
SERVER = {
    "plain": [],
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-simple 3/8": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "8"],
    "ngram-map-k 3/8": ["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "3", "--spec-ngram-map-k-size-m", "8"],
    "ngram-cache": ["--spec-type", "ngram-cache", "--spec-draft-n-max", "8"],
    "ngram-mod 4/8": "--spec-type ngram-mod --spec-ngram-mod-n-match 4 --spec-ngram-mod-n-min 2 --spec-ngram-mod-n-max 8".split(),
}


def child(args):
    """Answers requests, one JSON line each, with llama-cpp-python; `args.child` tokens drafted by prompt lookup, 0 is plain."""
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    drafter = LlamaPromptLookupDecoding(num_pred_tokens=args.child) if args.child else None
    llama = llama_cpp.Llama(
        args.model, n_ctx=CONTEXT, n_batch=512, n_threads=args.threads, n_threads_batch=args.threads, draft_model=drafter, verbose=False
    )
    vocab = llama_cpp.llama_model_get_vocab(llama.model)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        llama.reset()
        ids = []
        for token in llama.generate(request["prompt"], temp=0.0, top_k=1, top_p=1.0, min_p=0.0, repeat_penalty=1.0):
            now = time.perf_counter()
            first = first if ids else now
            ids.append(token)
            if len(ids) == request["tokens"] or llama_cpp.llama_vocab_is_eog(vocab, token):
                break
        print(json.dumps({"ids": ids, "seconds": now - first}), flush=True)


class Python:
    """llama-cpp-python in a process of its own."""

    def __init__(self, args, drafted):
        command = [sys.executable, __file__, args.model, "--child", str(drafted), "--threads", str(args.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"llama-cpp-python cannot run {args.model}\nhint: see README.md for how to install it")

    def ask(self, _, prompt, tokens):
        self.process.stdin.write(json.dumps({"prompt": prompt, "tokens": tokens}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Server:
    """llama-server, asked over HTTP for its own timings."""

    def __init__(self, args, options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [args.llama_server, "-m", args.model, "-c", str(CONTEXT), "-np", "1", "-t", str(args.threads), "--port", str(self.port)]
        command += ["-fa", "off"]  # as llama-cpp-python has it; on, its default, decodes more slowly on CPUs
        self.process = subprocess.Popen(command + options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            if self.process.poll() is not None:
                raise SystemExit(f"{' '.join(command + options)} ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").close()
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        raise SystemExit("llama-server does not become ready")

    def ask(self, _, prompt, tokens):
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "top_k": 1, "samplers": ["top_k"]}
        body |= {"cache_prompt": False, "return_tokens": True}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as answer:
            result = json.load(answer)
        return {"ids": result["tokens"], "n": result["timings"]["predicted_n"], "seconds": result["timings"]["predicted_ms"] / 1e3}

    def close(self):
        self.process.terminate()
        self.process.wait()


class Selfspec:
    """`selfspec run`, a process for each answer."""

    def __init__(self, args, drafter):
        self.command = [args.selfspec, "run", args.model, "--json", "--spec", drafter, "-t", str(args.threads), "-q"]

    def ask(self, text, prompt, tokens):
        result = json.loads(subprocess.run(self.command + ["-n", str(tokens), "-p", text], stdout=subprocess.PIPE, check=True).stdout)
        if result["usage"]["prompt_tokens"] != len(prompt):
            raise SystemExit("selfspec run and selfspec tokenize --chat make different prompts")
        return {"ids": result["token_ids"], "seconds": result["timings"]["predicted_ms"] / 1e3}

    def close(self):
        pass


def rate(answer):
    """Tokens a second after the first token, which comes from the prompt's pass."""
    return (answer.get("n", len(answer["ids"])) - 1) / answer["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .gguf file with a chat template")
    parser.add_argument("--selfspec", default=str(ROOT / "target/release/selfspec"), help="the binary")
    parser.add_argument("--llama-server", help="llama.cpp's server, to measure its n-gram drafting as well")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--drafts", type=lambda s: [int(n) for n in s.split(",")], default=[2, 4, 6, 8, 10], help="num_pred_tokens of llama-cpp-python")
    parser.add_argument("--server-settings", type=lambda s: s.split(","), default=list(SERVER), help=f"of {', '.join(SERVER)}")
    parser.add_argument("--json", help="also write every answer to this file")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        return child(args)
    if not shutil.which(args.selfspec):
        raise SystemExit(f"there is no program {args.selfspec}\nhint: cargo build --release, or name it: --selfspec PATH")
    if importlib.util.find_spec("llama_cpp") is None:
        raise SystemExit(f"{sys.executable} has no llama_cpp\nhint: README.md says how to install it")
    if args.llama_server and not shutil.which(args.llama_server):
        raise SystemExit(f"{args.llama_server} is no program\nhint: README.md says how to build it")

    programs = {("selfspec", drafter): lambda d=drafter: Selfspec(args, d) for drafter in ("off", "prompt-lookup", "auto")}
    programs |= {("llama-cpp-python", f"lookup {n}" if n else "plain"): lambda n=n: Python(args, n) for n in [0] + args.drafts}
    if args.llama_server:
        programs |= {("llama-server", name): lambda o=SERVER[name]: Server(args, o) for name in args.server_settings}
    tokenize = lambda text: subprocess.run([args.selfspec, "tokenize", args.model, "--chat", "--json", "-q", "-p", text], stdout=subprocess.PIPE, check=True)
    ids = {name: json.loads(tokenize(text).stdout)["ids"] for name, text in PROMPTS.items()}
    longest = max(ids, key=lambda name: len(ids[name]))
    assert len(ids[longest]) + args.tokens < CONTEXT, "the context must hold each prompt and its answer"

    answers = {program: {name: [] for name in PROMPTS} for program in programs}
    for repetition in range(args.repetitions):
        # New processes: some of llama-server's drafters remember the answers of earlier requests.
        running = {program: start() for program, start in programs.items()}
        try:
            for program in running.values():
                program.ask(PROMPTS[longest], ids[longest], 2)  # warm-up
            for name, text in PROMPTS.items():
                order = list(running) if repetition % 2 == 0 else list(running)[::-1]
                for program in order:
                    answers[program][name].append(running[program].ask(text, ids[name], args.tokens))
        finally:
            for program in running.values():
                program.close()
        print(f"repetition {repetition + 1} of {args.repetitions}", file=sys.stderr)
    if args.json:
        flat = {f"{engine}, {setting}": by_prompt for (engine, setting), by_prompt in answers.items()}
        pathlib.Path(args.json).write_text(json.dumps(flat))

    median = {p: {n: statistics.median(map(rate, by_prompt[n])) for n in PROMPTS} for p, by_prompt in answers.items()}
    middle = {p: statistics.median(rates.values()) for p, rates in median.items()}
    best = {}
    for engine in dict.fromkeys(engine for engine, _ in programs if engine != "selfspec"):
        best[engine] = max((p for p in programs if p[0] == engine and p[1] != "plain"), key=middle.get)

    print(f"{pathlib.Path(args.model).name}, {args.threads} threads, at most {args.tokens} tokens, greedy, load {os.getloadavg()[0]:.1f}")
    print(f"medians of {args.repetitions} interleaved repetitions, tok/s after the first token\n")
    plain = {p: (p[0], "off" if p[0] == "selfspec" else "plain") for p in programs}
    print("| engine | setting | median of the prompts | over its own plain decoding | answers equal to its plain ones |\n|---|---|---|---|---|")
    for p in programs:
        gain = "" if p == plain[p] or plain[p] not in programs else f"{ratio(answers, p, plain[p], list(PROMPTS)):.2f}"
        same = "" if not gain else f"{sum(answers[p][n][0]['ids'] == answers[plain[p]][n][0]['ids'] for n in PROMPTS)} of {len(PROMPTS)}"
        print(f"| {p[0]} | {p[1]}{' (best)' if p in best.values() else ''} | {middle[p]:.0f} | {gain} | {same} |")

    ours = [("selfspec", "prompt-lookup"), ("selfspec", "auto")]
    columns = [("selfspec", "off")] + ours + list(best.values())
    head = ["prompt", "tokens in, out"] + [", ".join(p) for p in columns]
    head += [f"{p[1]} / {engine}" for engine in best for p in ours] + ["tokens in common with llama-cpp-python"]
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for n in PROMPTS:
        answer = answers[ours[0]][n][0]["ids"]
        cells = [n, f"{len(ids[n])}, {len(answer)}"] + [f"{median[p][n]:.0f}" for p in columns]
        cells += [f"{ratio(answers, p, theirs, [n]):.2f}" for theirs in best.values() for p in ours]
        other = answers[best["llama-cpp-python"]][n][0]["ids"]
        print(f"| {' | '.join(cells + [str(len(os.path.commonprefix([answer, other])))])} |")
    cells = ["median", ""] + [f"{middle[p]:.0f}" for p in columns]
    cells += [f"{ratio(answers, p, theirs, list(PROMPTS)):.2f}" for theirs in best.values() for p in ours]
    print(f"| {' | '.join(cells + [''])} |")


def ratio(answers, a, b, names):
    """Median over the prompts of the median, over the repetitions, of a's rate over b's."""
    return statistics.median(statistics.median(rate(x) / rate(y) for x, y in zip(answers[a][n], answers[b][n])) for n in names)


if __name__ == "__main__":
    main()
