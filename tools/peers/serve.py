"""Measures selfspec's server and llama.cpp's side by side under the same load, with `selfspec bench serve`. See README.md.

Each repetition starts every server anew for every number of requests at a time, one server at a time, so that no prompt is answered from a cache.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Rows of the table: a figure of `bench serve`, its name, digits, and whether ratios to the peers are printed.
ROWS = [
    ("completed", "successful requests", 0, False),
    ("failed", "failed requests", 0, False),
    ("total_output_tokens", "generated tokens", 0, False),
    ("cached_tokens", "prompt tokens from a cache", 0, False),
    ("request_throughput", "requests/s", 2, True),
    ("output_throughput", "output tok/s", 1, True),
    ("median_ttft_ms", "TTFT median (ms)", 1, True),
    ("p99_ttft_ms", "TTFT P99 (ms)", 1, True),
    ("median_tpot_ms", "TPOT median (ms)", 2, True),
    ("p99_itl_ms", "ITL P99 (ms)", 2, True),
    ("median_e2el_ms", "E2E median (ms)", 0, True),
]


class Program:
    """A server under test: how it is started, and what `bench serve` is told about it."""

    def __init__(self, name, command, flags=()):
        self.name, self.command, self.flags = name, command, list(flags)

    def measure(self, args, concurrency):
        """The figures of one run on a new process."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as folder:
            log, out = pathlib.Path(folder, "log"), pathlib.Path(folder, "out.json")
            command = self.command + ["--port", str(port)]
            with log.open("w") as file:
                process = subprocess.Popen(command, stdout=file, stderr=file)
            try:
                self.wait(process, port, log)
                self.warm_up(port)
                bench = [args.selfspec, "bench", "serve", "--url", f"http://127.0.0.1:{port}", "--prompts", args.prompts, "--json", str(out), "-q"]
                bench += ["-n", str(args.tokens), "--concurrency", str(concurrency), "--warmup", "0"] + self.flags
                done = subprocess.run(bench, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                if done.returncode:
                    raise SystemExit(f"{' '.join(bench)} failed with {done.returncode}:\n{done.stderr}")
                run = json.loads(out.read_text())["settings"][0]["runs"][0]
            finally:
                process.terminate()
                process.wait()
        return run

    def wait(self, process, port, log):
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models").close()
                # llama-server listens before its model is there.
                if json.load(post(port, {"max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}))["choices"]:
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        raise SystemExit(f"{self.name} does not become ready:\n{log.read_text()[-2000:]}")

    def warm_up(self, port):
        """A prompt that none of the measured ones begins with."""
        post(port, {"max_tokens": 16, "temperature": 0, "messages": [{"role": "user", "content": "Count from one to ten."}]}).close()


def post(port, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    return urllib.request.urlopen(request)


def programs(args):
    """The servers, each with places for the widest load, and for a prompt and its answer in each place."""
    widest = max(args.concurrency)
    ours = [args.selfspec, "serve", args.model, "-t", str(args.threads), "--max-batch", str(widest), "-c", str(args.context), "-q"]
    ours += ["--kv-mib", str(args.kv_mib)] if args.kv_mib else []
    flags = ["--timings-per-token"] + (["--ignore-eos"] if args.ignore_eos else [])
    found = [Program("selfspec", ours, flags), Program("selfspec, speculation off", ours, flags + ["--speculation", "off"])]
    if args.llama_server:
        command = [args.llama_server, "-m", args.model, "-t", str(args.threads), "-np", str(widest), "-c", str(args.context * widest), "-fa", args.flash_attention]
        found.append(Program("llama-server", command + args.llama_options, flags))
    if args.llama_python:
        command = [args.llama_python, "-m", "llama_cpp.server", "--model", args.model, "--n_ctx", str(args.context), "--n_threads", str(args.threads)]
        # It answers one request after the other; by default a new one would end the one under way.
        command += ["--n_threads_batch", str(args.threads), "--interrupt_requests", "False"]
        found.append(Program("llama-cpp-python", command, ["--count-chunks"]))
    return found


def table(args, runs, concurrency):
    """Prints medians, and medians of the ratio to each peer within a repetition."""
    names = list(runs)
    peers = [name for name in names if not name.startswith("selfspec")]
    plain = "selfspec, speculation off"
    head = [f"{concurrency} at a time"] + names + ["selfspec / its plain"] + [f"selfspec / {peer}" for peer in peers]
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for key, label, digits, compared in ROWS:
        values = {name: [run[key] for run in runs[name]] for name in names}
        cells = [label]
        for name in names:
            known = [v for v in values[name] if v is not None]
            cells.append(f"{statistics.median(known):.{digits}f}" if known else "")
        for other in [plain] + peers:
            pairs = [(a, b) for a, b in zip(values["selfspec"], values[other]) if a is not None and b]
            cells.append(f"{statistics.median(a / b for a, b in pairs):.2f}" if compared and pairs else "")
        print(f"| {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .gguf file with a chat template")
    parser.add_argument("--selfspec", default=str(ROOT / "target/release/selfspec"), help="the binary")
    parser.add_argument("--llama-server", help="llama.cpp's server")
    parser.add_argument("--llama-python", help="a Python that has llama-cpp-python[server]")
    parser.add_argument("--llama-options", type=str.split, default=[], help="more flags for llama-server, in one string")
    parser.add_argument("--flash-attention", default="off", choices=["off", "on", "auto"], help="of llama-server (default: off, see README.md)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--concurrency", type=lambda s: [int(n) for n in s.split(",")], default=[1, 8])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--prompts", default=str(ROOT / "crates/lab/src/prompts/builtin.jsonl"), help="as of bench serve; each is asked once a run")
    parser.add_argument("--tokens", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--ignore-eos", action="store_true", help="all of --tokens, of the servers that know it: selfspec and llama-server")
    parser.add_argument("--context", type=int, default=1024, help="positions for a prompt and its answer")
    parser.add_argument("--kv-mib", type=int, help="memory for selfspec's cache (default: its own)")
    parser.add_argument("--json", help="also write every run to this file")
    args = parser.parse_args()
    if not shutil.which(args.selfspec):
        raise SystemExit(f"there is no program {args.selfspec}\nhint: cargo build --release, or name it: --selfspec PATH")
    if not args.llama_server and not args.llama_python:
        parser.error("no peer: --llama-server PATH, --llama-python PYTHON, or both")
    if args.llama_server and not shutil.which(args.llama_server):
        raise SystemExit(f"{args.llama_server} is no program\nhint: README.md says how to build it")
    if args.llama_python:
        probe = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(m) is None for m in ('llama_cpp', 'uvicorn', 'fastapi')))"
        if subprocess.run([args.llama_python, "-c", probe]).returncode:
            raise SystemExit(f"{args.llama_python} has no llama_cpp.server\nhint: {args.llama_python} -m pip install 'llama-cpp-python[server]'")

    found = programs(args)
    runs = {c: {program.name: [] for program in found} for c in args.concurrency}
    for repetition in range(args.repetitions):
        for concurrency in args.concurrency:
            order = found if repetition % 2 == 0 else found[::-1]
            for program in order:
                runs[concurrency][program.name].append(program.measure(args, concurrency))
        print(f"repetition {repetition + 1} of {args.repetitions}", file=sys.stderr)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(runs, indent=1))

    prompts = sum(1 for line in pathlib.Path(args.prompts).read_text().splitlines() if line.strip())
    print(f"{pathlib.Path(args.model).name}, {args.threads} threads, {prompts} prompts, at most {args.tokens} tokens, greedy, load {os.getloadavg()[0]:.1f}")
    print(f"medians of {args.repetitions} interleaved repetitions; of a ratio above 1, rates are better and times worse")
    for concurrency in args.concurrency:
        table(args, runs[concurrency], concurrency)


if __name__ == "__main__":
    main()
