"""Writes the golden pairs of crates/text/tests/it/golden: texts with the reference's ids, and a rendered chat.

    venv/bin/python tools/tokenizer-check/golden.py smollm2=SmolLM2-135M-Instruct.Q4_1.gguf gemma3=gemma-3-270m-q4_k_m.gguf
"""

import json
import pathlib
import sys

import check
import gguf
from transformers.utils.chat_template_utils import _compile_jinja_template

FOLDER = pathlib.Path(__file__).parents[2] / "crates/text/tests/it/golden"

TEXTS = [
    "A bicycle stays upright because its front wheel steers into the fall.",
    "def area(r):\n    \"\"\"Area of a circle.\"\"\"\n    return 3.14159 * r ** 2  # r >= 0\n",
    "for (size_t i = 0; i < 1024; ++i) {\n\t\tsum[i] += (x[i] != y[i]) ? 1 : 0;\r\n\t}\r\n",
    "今天天气很好，我们去公园散步吧。価格は１２３４円です。안녕!",
    "مرحبا بالعالم ١٢٣ — Привет, мир! naïve café e\u0301",
    "👨‍👩‍👧‍👦 🏳️‍🌈👍🏽 ok?",
    "a  b   c    d     7      8\t\t9 \n\n\n  \n\u00a0x\u3000y " + " " * 40 + "z\n",
    "<|im_end|><|endoftext|><bos></s><end_of_turn>",
    "supercalifragilisticexpialidocious" * 3 + "=" * 37 + "0123456789" * 2,
    "I'M sure they'll say it's DON'T, isn't it?",
]

CHAT = [
    {"role": "user", "content": "Write a haiku about rain.\n"},
    {"role": "assistant", "content": "Soft rain on the roof"},
    {"role": "user", "content": "More: 123"},
]


def main():
    for argument in sys.argv[1:]:
        name, path = argument.split("=", 1)
        backend, data = check.from_gguf(path)
        if data.get("pre_tokenizer_type") == "smollm":
            backend = check.smollm_rule(backend)
        backend.encode_special_tokens = True
        out = {"texts": [{"text": t, "ids": backend.encode(t, add_special_tokens=False).ids} for t in TEXTS]}
        backend.encode_special_tokens = False
        fields = gguf.GGUFReader(path).fields
        if "tokenizer.chat_template" in fields:
            template = _compile_jinja_template(fields["tokenizer.chat_template"].contents())
            out["chats"] = []
            for messages in [CHAT[:1], CHAT, [{"role": "system", "content": "Answer in French."}, *CHAT[:1]]]:
                text = template.render(messages=messages, add_generation_prompt=True, tools=None, documents=None)
                ids = backend.encode(text, add_special_tokens=False).ids
                out["chats"].append({"messages": messages, "text": text, "ids": ids})
        FOLDER.mkdir(exist_ok=True)
        lines = json.dumps(out, ensure_ascii=True, indent=None, separators=(",", ":")).replace("},{", "},\n{")
        (FOLDER / f"{name}.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
