"""Measures llama.cpp and selfspec side by side on one GGUF file. See README.md.

Each repetition runs every measurement of both programs once, in turn, so that what else the machine does falls on both.
The table gives medians, and the median of the ratios within each repetition.
"""

import argparse
import contextlib
import ctypes
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROWS = (1, 2, 4, 8)
PROMPT = 512
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class LlamaCpp:
    """llama.cpp through llama-cpp-python's C interface: plain batches, logits of all rows, nothing sampled."""

    def __init__(self, model, threads, context):
        import llama_cpp

        self.lib, self.threads = llama_cpp, threads
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.info = llama_cpp.llama_print_system_info().decode()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(model.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {model}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, PROMPT, PROMPT
        params.n_threads = params.n_threads_batch = threads
        self.ctx = llama_cpp.llama_init_from_model(self.model, params)
        if not self.ctx:
            raise SystemExit("llama.cpp cannot make a context")
        self.batch = llama_cpp.llama_batch_init(PROMPT, 0, 1)

    def truncate(self, position):
        """Forgets everything from `position` on."""
        memory = self.lib.llama_get_memory(self.ctx)
        if not self.lib.llama_memory_seq_rm(memory, 0, position, -1):
            raise SystemExit("llama.cpp cannot roll back")

    def step(self, position, tokens, all_logits):
        """One pass over `tokens` from `position` on; seconds."""
        b = self.batch
        b.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            b.token[i], b.pos[i], b.n_seq_id[i] = token, position + i, 1
            b.seq_id[i][0] = 0
            b.logits[i] = all_logits or i + 1 == len(tokens)
        start = time.perf_counter()
        if self.lib.llama_decode(self.ctx, b) != 0:
            raise SystemExit("llama_decode failed")
        self.lib.llama_synchronize(self.ctx)
        seconds = time.perf_counter() - start
        self.lib.llama_get_logits_ith(self.ctx, len(tokens) - 1)[0]
        return seconds

    def measure(self, context, passes):
        """Seconds: prefill, and passes of 1, 2, 4 and 8 rows after `context` positions."""
        prompt = [(i * 7919 + 13) % min(self.vocab, 30_000) for i in range(max(PROMPT, context))]
        self.truncate(0)
        out = {"prefill": self.step(0, prompt[:PROMPT], False) / PROMPT}
        self.truncate(0)
        for start in range(0, context, PROMPT):
            self.step(start, prompt[start : min(start + PROMPT, context)], False)
        # Plain decoding: one row after the other, the context growing as in real use.
        times = [self.step(context + i, [prompt[i]], True) for i in range(passes)]
        out["decode"] = statistics.median(times)
        for m in ROWS:
            times = []
            for _ in range(passes // 2):
                self.truncate(context)
                times.append(self.step(context, prompt[:m], True))
            out[m] = statistics.median(times)
        self.truncate(0)
        return out


def selfspec(binary, model, threads):
    """The same measures from one run of `selfspec bench -o json`, in seconds."""
    command = [binary, "bench", model, "-o", "json", "-t", str(threads), "--repetitions", "2", "--no-speculation"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr}")
    report = json.loads(done.stdout)
    if report["prefill_tok_s"] is None:
        raise SystemExit(f"{model}: its context is too short to measure prefill")
    out = {"prefill": 1 / report["prefill_tok_s"], "decode": 1 / report["plain_tok_s"], "isa": report["isa"]}
    for m in ROWS:
        out[m] = report["pass_ms"][str(m)] / 1000
    return out


def child(args):
    """One measurement of llama.cpp, in a process of its own: its worker threads are gone when selfspec is measured."""
    with open(os.devnull, "w") as null, contextlib.redirect_stderr(null):
        peer = LlamaCpp(args.model, args.child, args.context + 1024)
        peer.measure(args.context, 4)  # warm-up
        result = peer.measure(args.context, args.passes)
    print(json.dumps(result | {"info": peer.info}))


def llama_cpp(args, threads):
    command = [sys.executable, __file__, args.model, "--child", str(threads), "--context", str(args.context), "--passes", str(args.passes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"measuring llama.cpp failed with {done.returncode}")
    result = json.loads(done.stdout.splitlines()[-1])
    return {int(k) if k.isdigit() else k: v for k, v in result.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .gguf file")
    parser.add_argument("--selfspec", default=str(ROOT / "target/release/selfspec"), help="the binary; `none` measures llama.cpp alone")
    parser.add_argument("--threads", type=lambda s: [int(t) for t in s.split(",")], default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--context", type=int, default=256, help="positions before the measured passes")
    parser.add_argument("--passes", type=int, default=32)
    parser.add_argument("--json", help="also write every measurement to this file")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)

    runs = {t: [] for t in args.threads}
    for repetition in range(args.repetitions):
        for threads in args.threads:
            pair = {"llama.cpp": llama_cpp(args, threads)}
            if args.selfspec != "none":
                pair["selfspec"] = selfspec(args.selfspec, args.model, threads)
            runs[threads].append(pair)
            print(f"repetition {repetition + 1} of {args.repetitions}, {threads} threads", file=sys.stderr)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(runs, indent=1))

    first = runs[args.threads[0]][0]
    info = first["llama.cpp"]["info"]
    print(f"{pathlib.Path(args.model).name}, context {args.context}, medians of {args.repetitions} interleaved repetitions, load {os.getloadavg()[0]:.1f}")
    print(f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}: {info.strip()}")
    if "selfspec" in first:
        print(f"selfspec: {first['selfspec']['isa']}")
    print("\n| threads | measure | llama.cpp | selfspec | selfspec / llama.cpp |\n|---|---|---|---|---|")
    for threads, pairs in runs.items():
        rate = lambda key: lambda run: 1 / run[key]
        cost = lambda m: lambda run: run[m] / run[1]
        rows = [("prefill tok/s", rate("prefill"), 0), ("decode tok/s", rate("decode"), 1)]
        rows += [(f"T({m})/T(1)", cost(m), 2) for m in ROWS[1:]]
        for name, value, digits in rows:
            theirs = statistics.median(value(p["llama.cpp"]) for p in pairs)
            cells = ["", ""]
            if "selfspec" in first:
                ours = statistics.median(value(p["selfspec"]) for p in pairs)
                ratio = statistics.median(value(p["selfspec"]) / value(p["llama.cpp"]) for p in pairs)
                cells = [f"{ours:.{digits}f}", f"{ratio:.2f}"]
            print(f"| {threads} | {name} | {theirs:.{digits}f} | {cells[0]} | {cells[1]} |")
    if "AVX512_VNNI = 1" not in info:
        print("\nThis llama.cpp was built without AVX-512 VNNI: if the processor has it, the comparison is not fair.")


if __name__ == "__main__":
    main()
