"""Texts that tokenizers disagree about: written or generated here, always the same."""

import json
import random

FIXED = [
    "", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\r", "a", " a", "a ", "  a  ",
    "The quick brown fox jumps over the lazy dog.",
    "Don't we've they'll I'M YOU'RE it'S 'tis 'S 'd",
    "def f(x: int) -> int:\n    if x <= 1:\n        return 1\n\n    return x * f(x - 1)\n",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];\r\n\t}\r\n",
    "SELECT id, name FROM users WHERE age >= 18 AND name LIKE '%ann%';",
    "{\"key\": [1, 2.5, -3e10, null, true], \"nested\": {\"a\": \"b\\n\"}}",
    "<html>\n<body><h1>Title</h1><table><tr><td>1</td></tr></table></body>\n</html>",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\Users\\x",
    "0 1 12 123 1234 12345 123456 3.14159 1,000,000 1e-5 0x1F ½ ² Ⅷ ٣٤ １２３",
    "  1   2    3\n 4\n  5\t6", "1  ", "a1b22c333", "v1.2.3-rc4",
    "你好，世界！今天天气怎么样？", "日本語のテキストです。カタカナとひらがな、漢字。", "안녕하세요 세계",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Привет, мир! Ёжик",
    "Ünïcödé çà et là, naïve café — “quotes” ‘single’ … • ©®™ €£¥",
    "e\u0301 cafe\u0301 A\u030a \u1100\u1161\u11a8 \ufb01 \u212b", "\u01c4\u01c5\u01c6 ſ K ß İ ı",
    "😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 🧑🏿‍💻", "a😀b", "☃☄★",
    "a\u00a0b\u00a0\u00a0c \u2003d\u2009e\u200bf\ufeffg\u3000h\u0085i\u2028j",
    "tabs\t\tand\t \tspaces   \t end", "\r\n\r\n\r\n", "a\r\nb\rc\nd", " \n \n ", "\n   \n", "   \n   a",
    "trailing space ", "trailing newline\n", "trailing both \n ", "\x00\x01\x02\x1b[0m\x7f",
    "▁ ▁▁ a▁b", "Ġ Ċ Ġword", "<0x0A> <0x41>",
    "<|im_start|>user\nHello<|im_end|>\n", "<|endoftext|>", "<bos><start_of_turn>user\nhi<end_of_turn>\n",
    "</s><s>[INST] hi [/INST]", "<|begin_of_text|><|eot_id|>", "<unk><pad><mask>[multimodal]", "a<|im_end|>b", "<|im_end",
    "<<|im_end|>>", "<unused0> <unused99>",
    "\ud7ff\ue000\ufffd\ufdd0\uffff", "\U0010ffff\U000e0001", "\ufffd\ufffd",
    "a" * 1000, "ab" * 1000, "=" * 77, "-" * 130, "." * 35, "!?" * 40, "_" * 300, "#" * 9, "\\" * 33,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "abcdefghijklmnopqrstuvwxyz" * 30, "0123456789" * 30, "中" * 200, "한" * 70, "😀" * 50,
    "camelCaseWithManyWords snake_case_with_many_words SCREAMING_CASE kebab-case-too",
]


def generated():
    rng = random.Random(20240607)
    out = [" " * n for n in range(1, 70)] + ["\n" * n for n in range(1, 70)] + ["\t" * n for n in range(1, 70)]
    out += [" " * a + "x" + " " * b + "7" for a in range(0, 40, 3) for b in range(0, 40, 7)]
    out += ["x" + "\n" * a + " " * b + "y" for a in range(0, 36, 5) for b in range(0, 36, 5)]
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE80), (0x1E00, 0x2190), (0x2190, 0x2C00),
              (0x3000, 0x3130), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0x1F300, 0x1FAFF), (0xE000, 0xE100), (0x10000, 0x10FFFF)]
    pieces = ["the", " and", "\n", "  ", "\t", "'s", "'LL", "123", " 7", "==", "()", "é", "中文", "😀", "‍", "\r\n", "▁", "<|im_end|>",
              "<eos>", "</s>", "\u00a0", "﷽", "ı", "A" * 20, " ", "    ", "_", "-", "ß", "１", "²"]
    for _ in range(3000):
        parts = []
        for _ in range(rng.randint(1, 40)):
            if rng.random() < 0.5:
                parts.append(rng.choice(pieces))
            else:
                low, high = rng.choice(blocks)
                for _ in range(rng.randint(1, 6)):
                    c = rng.randrange(low, high)
                    if not 0xD800 <= c < 0xE000:
                        parts.append(chr(c))
        out.append("".join(parts))
    return out


def codepoints():
    """Every code point between letters and after a space: shows where two Unicode versions classify differently."""
    chars = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000 and not 0x20000 <= c < 0xE0000]
    return [f"a{c}b {c}{c} 1{c}" for c in chars]


def from_files(paths):
    """All strings of JSON or JSONL files, and whole other files."""
    def strings(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for item in value.values():
                yield from strings(item)
        elif isinstance(value, list):
            for item in value:
                yield from strings(item)

    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        if path.endswith(".jsonl"):
            for line in text.splitlines():
                if line.strip():
                    yield from strings(json.loads(line))
        elif path.endswith(".json"):
            yield from strings(json.loads(text))
        else:
            yield text
