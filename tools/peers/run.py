"""Measures other engines and selfspec side by side on one GGUF file. See README.md.

Each repetition runs every measurement of every program once, in turn, so that what else the machine does falls on all.
The table gives medians, and the median of the ratios within each repetition.
"""

import argparse
import contextlib
import ctypes
import importlib.metadata
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROWS = (1, 2, 4, 8)
PROMPT = 512
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# What to do when a peer is not there.
INSTALL = {
    "llama.cpp": """python3 -m venv /tmp/venv-llama
    CMAKE_ARGS="-DGGML_NATIVE=ON" /tmp/venv-llama/bin/pip install cmake ninja llama-cpp-python""",
    "openvino": """python3 -m venv /tmp/venv-ov
    /tmp/venv-ov/bin/pip install openvino-genai""",
    "candle": """RUSTFLAGS="-C target-cpu=native" cargo build --release --manifest-path tools/peers/candle/Cargo.toml --target-dir /tmp/target/peers""",
}


def prompt_ids(vocabulary, count):
    """The tokens that every peer gets. Their values cost nothing, but a cache of prompts must not meet one again unnoticed."""
    return [(i * 7919 + 13) % min(vocabulary, 30_000) for i in range(count)]


class LlamaCpp:
    """llama.cpp through llama-cpp-python's C interface: plain batches, logits of all rows, nothing sampled."""

    def __init__(self, model, threads, context, flash_attention):
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
        params.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[flash_attention]  # enum llama_flash_attn_type
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
        prompt = prompt_ids(self.vocab, max(PROMPT, context, passes))
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


class OpenVino:
    """OpenVINO GenAI's pipeline, by its own metrics. It gives no logits of several rows, so there are no passes."""

    def __init__(self, model, threads, backend):
        import openvino
        import openvino_genai

        self.ov, self.genai = openvino, openvino_genai
        options = {"INFERENCE_NUM_THREADS": threads, "ATTENTION_BACKEND": backend}
        if backend == "PA":
            # Its default keeps the prompts it has seen, and would not compute the measured one a second time.
            scheduler = openvino_genai.SchedulerConfig()
            scheduler.enable_prefix_caching, scheduler.max_num_batched_tokens = False, 2**20
            options["scheduler_config"] = scheduler
        self.pipeline = openvino_genai.LLMPipeline(model, "CPU", **options)
        self.vocab = len(self.pipeline.get_tokenizer().get_vocab())

    def generate(self, prompt, tokens):
        import numpy

        ids = numpy.array([prompt], dtype=numpy.int64)
        inputs = self.genai.TokenizedInputs(self.ov.Tensor(ids), self.ov.Tensor(numpy.ones_like(ids)))
        config = self.genai.GenerationConfig(do_sample=False, ignore_eos=True, max_new_tokens=tokens, min_new_tokens=tokens)
        metrics = self.pipeline.generate(inputs, config).perf_metrics
        if (metrics.get_num_input_tokens(), metrics.get_num_generated_tokens()) != (len(prompt), tokens):
            raise SystemExit("openvino computed other numbers of tokens than asked for")
        return metrics

    def measure(self, context, passes):
        """Seconds a token: prefill, and decoding after `context` positions. Its times include taking the most probable token."""
        prompt = prompt_ids(self.vocab, max(PROMPT, context))
        prefill = self.generate(prompt[:PROMPT], 1).get_ttft().mean / 1e3 / PROMPT
        times = self.generate(prompt[:context], passes + 1).raw_metrics.m_durations
        return {"prefill": prefill, "decode": statistics.median(times) / 1e6}


def selfspec(binary, model, threads, context, passes):
    """The same measures from one run of `selfspec bench -o json`, in seconds. A repetition of it times five passes of each kind."""
    command = [binary, "bench", model, "-o", "json", "-t", str(threads), "--repetitions", str(max(1, round(passes / 5))), "--no-speculation"]
    command += ["--contexts", str(context)]
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
    """One measurement of a Python peer, in a process of its own: its worker threads are gone when the next one is measured."""
    with open(os.devnull, "w") as null, contextlib.redirect_stderr(null):
        if args.child == "llama.cpp":
            peer = LlamaCpp(args.model, args.threads[0], args.context + 1024, args.flash_attention)
            info = f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}, flash attention {args.flash_attention}: {peer.info.strip()}"
        else:
            peer = OpenVino(args.model, args.threads[0], args.openvino_backend)
            info = f"openvino-genai {importlib.metadata.version('openvino-genai')}, attention {args.openvino_backend}"
        peer.measure(args.context, 4)  # warm-up
        result = peer.measure(args.context, args.passes)
    print(json.dumps(result | {"info": info}))


def run_child(name, command, env=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"measuring {name} failed with {done.returncode}:\n{done.stderr.strip()[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    return {int(k) if k.isdigit() else k: v for k, v in result.items()}


def python_peer(name, python):
    def measure(args, threads):
        command = [python, __file__, args.model, "--child", name, "--threads", str(threads), "--context", str(args.context)]
        command += ["--passes", str(args.passes), "--flash-attention", args.flash_attention, "--openvino-backend", args.openvino_backend]
        return run_child(name, command)

    return measure


def candle(args, threads):
    env = os.environ | {"RAYON_NUM_THREADS": str(threads), "CANDLE_NUM_THREADS": str(threads)}
    result = run_child("candle", [args.candle, args.model, str(args.context), str(args.passes)], env)
    lock = (HERE / "candle/Cargo.lock").read_text()
    version = lock.split('name = "candle-core"\nversion = "')[1].split('"')[0]
    return result | {"info": f"candle {version}, compiled for {result['compiled']}"}


def ensure_installed(args):
    """Fails before anything is measured, and says what is missing."""
    if args.selfspec != "none" and not shutil.which(args.selfspec):
        raise SystemExit(f"there is no program {args.selfspec}\nhint: cargo build --release, or name it: --selfspec PATH")
    for name in args.peers:
        if name == "candle":
            found = shutil.which(args.candle)
            what = args.candle
        else:
            python, module = (args.llama_python, "llama_cpp") if name == "llama.cpp" else (args.openvino_python, "openvino_genai")
            what = f"{module} for {python}"
            probe = [python, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"]
            found = shutil.which(python) and subprocess.run(probe).returncode == 0
        if not found:
            raise SystemExit(f"the peer {name} needs {what}, which is not there\nhint: install it:\n    {INSTALL[name]}")


def table(args, runs):
    """Prints medians, and medians of selfspec's ratio to each peer within a repetition."""
    first = runs[args.threads[0]][0]
    ours = "selfspec" in first
    head = ["threads", "measure"] + ["selfspec"] * ours
    for peer in args.peers:
        head += [peer] + [f"selfspec / {peer}"] * ours
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    rate = lambda key: lambda run: 1 / run[key] if key in run else None
    cost = lambda m: lambda run: run[m] / run[1] if m in run else None
    rows = [("prefill tok/s", rate("prefill"), 0), ("decode tok/s", rate("decode"), 1)]
    rows += [(f"T({m})/T(1)", cost(m), 2) for m in ROWS[1:]]
    for threads, repetitions in runs.items():
        for name, value, digits in rows:
            cells = [str(threads), name]
            if ours:
                cells.append(f"{statistics.median(value(r['selfspec']) for r in repetitions):.{digits}f}")
            for peer in args.peers:
                if value(repetitions[0][peer]) is None:
                    cells += [""] * (1 + ours)
                    continue
                cells.append(f"{statistics.median(value(r[peer]) for r in repetitions):.{digits}f}")
                if ours:
                    cells.append(f"{statistics.median(value(r['selfspec']) / value(r[peer]) for r in repetitions):.2f}")
            if any(cells[2 + ours :]):
                print(f"| {' | '.join(cells)} |")


def main():
    venv = lambda path: path if shutil.which(path) else sys.executable
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .gguf file")
    parser.add_argument("--peers", type=lambda s: s.split(","), default=["llama.cpp"], help=f"of {','.join(INSTALL)} (default: llama.cpp)")
    parser.add_argument("--selfspec", default=str(ROOT / "target/release/selfspec"), help="the binary; `none` measures the peers alone")
    parser.add_argument("--threads", type=lambda s: [int(t) for t in s.split(",")], default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--context", type=int, default=256, help="positions before the measured passes")
    parser.add_argument("--passes", type=int, default=32)
    parser.add_argument("--json", help="also write every measurement to this file")
    parser.add_argument("--llama-python", default=sys.executable, help="a Python that has llama-cpp-python (default: this one)")
    parser.add_argument("--flash-attention", default="off", choices=["off", "on", "auto"], help="of llama.cpp (default: off, see README.md)")
    parser.add_argument("--openvino-python", default=venv("/tmp/venv-ov/bin/python"), help="a Python that has openvino-genai (default: %(default)s)")
    parser.add_argument("--openvino-backend", default="PA", choices=["PA", "SDPA"], help="its attention: paged with a scheduler (its default, and the faster here), or plain")
    parser.add_argument("--candle", default="/tmp/target/peers/release/peers-candle", help="the binary (default: %(default)s)")
    parser.add_argument("--child", choices=["llama.cpp", "openvino"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    measures = {
        "llama.cpp": python_peer("llama.cpp", args.llama_python),
        "openvino": python_peer("openvino", args.openvino_python),
        "candle": candle,
    }
    for name in args.peers:
        if name not in measures:
            parser.error(f"{name} is none of {', '.join(measures)}")
    ensure_installed(args)

    runs = {t: [] for t in args.threads}
    for repetition in range(args.repetitions):
        for threads in args.threads:
            one = {name: measures[name](args, threads) for name in args.peers}
            if args.selfspec != "none":
                one["selfspec"] = selfspec(args.selfspec, args.model, threads, args.context, args.passes)
            runs[threads].append(one)
            print(f"repetition {repetition + 1} of {args.repetitions}, {threads} threads", file=sys.stderr)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(runs, indent=1))

    first = runs[args.threads[0]][0]
    print(f"{pathlib.Path(args.model).name}, context {args.context}, medians of {args.repetitions} interleaved repetitions, load {os.getloadavg()[0]:.1f}")
    for name in args.peers:
        print(first[name]["info"])
    if "selfspec" in first:
        print(f"selfspec: {first['selfspec']['isa']}")
    table(args, runs)
    if "llama.cpp" in first and "AVX512_VNNI = 1" not in first["llama.cpp"]["info"]:
        print("\nThis llama.cpp was built without AVX-512 VNNI: if the processor has it, the comparison is not fair.")
    if "candle" in first and first["candle"]["compiled"] == "baseline":
        print("\nThis candle was compiled for any processor: build it with the RUSTFLAGS of README.md, else the comparison is not fair.")


if __name__ == "__main__":
    main()
