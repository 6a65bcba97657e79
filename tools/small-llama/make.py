"""Makes a small Llama with random weights, its tokenizer, and a text to train it on.

    python make.py --out FOLDER [--layers 8] [--dim 128] [--vocab 2048] [--seed 1]
                   [--gsm8k FILE] [--mbpp FILE] [--passages FILE]

writes FOLDER/model (a Hugging Face folder: config.json, model.safetensors in F32, tokenizer.json, tokenizer_config.json), FOLDER/text.jsonl (lines
with `text`, in an order that the seed gives), and FOLDER/prompts.jsonl (questions that are in no text, with their kind, for `selfspec bench` and `tune`).

The texts are the questions and answers of GSM8K's training split (MIT), the tasks and solutions of MBPP's sanitized part (CC BY 4.0), and passages that a
model has written (lines with `prompt`). Every text begins with its kind, so that a prompt asks for what it should.

Needs numpy, tokenizers and safetensors.
"""

import argparse
import json
import pathlib
import random

import numpy
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|end|>"
HELD_OUT = 24  # prompts of each kind that are in no text


def gsm8k(path):
    """(kind, prompt, whole text) of each question."""
    for line in open(path, encoding="utf-8"):
        item = json.loads(line)
        prompt = f"Question: {item['question'].strip()}\nAnswer:"
        yield "math", prompt, f"{prompt} {item['answer'].strip()}\n"


def mbpp(path):
    for item in json.load(open(path, encoding="utf-8")):
        tests = "\n".join(item["test_list"])
        prompt = f"Task: {item['prompt'].strip()}\n{tests}\nCode:\n"
        yield "code", prompt, f"{prompt}{item['code'].strip()}\n"


def passages(path):
    for line in open(path, encoding="utf-8"):
        text = json.loads(line)["prompt"].strip()
        yield "text", "Text: " + " ".join(text.split()[:24]), f"Text: {text}\n"


def tokenizer(texts, vocab):
    """A byte-level BPE, as Llama 3 and Qwen have it."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END], initial_alphabet=alphabet)
    )
    return bpe


def weights(config, seed):
    """Random weights by name: normal, the parts that are added to the residual stream smaller with the depth (as GPT-2 has it)."""
    rng = numpy.random.default_rng(seed)
    dim, ffn = config["hidden_size"], config["intermediate_size"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    layers = config["num_hidden_layers"]
    out = {}

    def matrix(name, rows, cols, std):
        out[name] = (rng.standard_normal((rows, cols)) * std).astype(numpy.float32)

    def norm(name):
        out[name] = numpy.ones(dim, numpy.float32)

    std = dim**-0.5
    matrix("model.embed_tokens.weight", config["vocab_size"], dim, std)
    for layer in range(layers):
        at = f"model.layers.{layer}"
        norm(f"{at}.input_layernorm.weight")
        matrix(f"{at}.self_attn.q_proj.weight", dim, dim, std)
        matrix(f"{at}.self_attn.k_proj.weight", kv, dim, std)
        matrix(f"{at}.self_attn.v_proj.weight", kv, dim, std)
        matrix(f"{at}.self_attn.o_proj.weight", dim, dim, std * (2 * layers) ** -0.5)
        norm(f"{at}.post_attention_layernorm.weight")
        matrix(f"{at}.mlp.gate_proj.weight", ffn, dim, std)
        matrix(f"{at}.mlp.up_proj.weight", ffn, dim, std)
        matrix(f"{at}.mlp.down_proj.weight", dim, ffn, ffn**-0.5 * (2 * layers) ** -0.5)
    norm("model.norm.weight")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--ffn", type=int, help="width of the feed-forward part [8/3 of the dimension]")
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gsm8k", type=pathlib.Path)
    parser.add_argument("--mbpp", type=pathlib.Path)
    parser.add_argument("--passages", type=pathlib.Path)
    args = parser.parse_args()

    sources = [(gsm8k, args.gsm8k), (mbpp, args.mbpp), (passages, args.passages)]
    items, prompts = [], []
    order = random.Random(args.seed)
    for read, path in sources:
        if path is None:
            continue
        found = list(read(path))
        order.shuffle(found)
        prompts += [{"prompt": prompt, "category": kind} for kind, prompt, _ in found[:HELD_OUT]]
        items += [text for _, _, text in found[HELD_OUT:]]
    if not items:
        parser.error("no text: give at least one of --gsm8k, --mbpp and --passages")
    order.shuffle(items)
    order.shuffle(prompts)

    folder = args.out / "model"
    folder.mkdir(parents=True, exist_ok=True)
    bpe = tokenizer(items, args.vocab)
    bpe.save(str(folder / "tokenizer.json"))
    head_dim = 32
    heads = args.dim // head_dim
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": args.dim,
        "intermediate_size": args.ffn or (8 * args.dim // 3 + 31) // 32 * 32,
        "num_hidden_layers": args.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(heads // 2, 1),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "vocab_size": bpe.get_vocab_size(),
        "bos_token_id": None,
        "eos_token_id": bpe.token_to_id(END),
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "model_max_length": 1024}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    tensors = weights(config, args.seed)
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    for name, lines in [("text.jsonl", [{"text": text} for text in items]), ("prompts.jsonl", prompts)]:
        with open(args.out / name, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    numbers = sum(t.size for t in tensors.values())
    tokens = sum(len(e.ids) + 1 for e in bpe.encode_batch(items))
    print(f"{folder}: {numbers} numbers; {len(items)} texts of {tokens} tokens; {len(prompts)} prompts")


if __name__ == "__main__":
    main()
