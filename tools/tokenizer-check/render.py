"""Renders the chat templates of crates/text/tests/it/templates with Jinja2 as `transformers` sets it up, and writes the
results to expected.json there. Needs `pip install transformers jinja2`; run it only when a template or case changes.
"""

import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

FOLDER = pathlib.Path(__file__).parents[2] / "crates/text/tests/it/templates"

HI = [{"role": "user", "content": " Hello\n"}]
CHAT = [{"role": "system", "content": "You are terse. "}, {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<think>\nsum\n</think>\n\n2"}, {"role": "user", "content": "\tand\t2+2?\n"}]
TURNS = CHAT[1:]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "Adds \"é\" — <b>&'</b>", "parameters": {
    "type": "object", "properties": {"x": {"type": "number", "minimum": 0.5}}, "required": ["x"]}}}]

CASES = [
    ("chatml", HI, True, {}), ("chatml", CHAT, False, {}), ("chatml", [], True, {}),
    ("headers", HI, True, {}), ("headers", CHAT, True, {"date_string": "26 Jul 2024"}), ("headers", CHAT, False, {"tools": TOOLS}),
    ("turns", TURNS, True, {}), ("turns", CHAT, True, {}), ("turns", HI + HI, True, {}),
    ("thinking", HI, True, {}), ("thinking", CHAT, True, {"enable_thinking": False}), ("thinking", CHAT, False, {"tools": TOOLS}),
    ("thinking", [{"role": "developer", "content": "x"}] + HI, True, {"show_values": True}),
    ("thinking", [{"role": "user", "content": "<tool_response>3</tool_response>"}] + HI, True, {"show_values": True}),
]


def main():
    out = []
    for name, messages, generate, extra in CASES:
        source = (FOLDER / f"{name}.jinja").read_text()
        case = {"template": name, "messages": messages, "add_generation_prompt": generate, "extra": extra}
        context = {"tools": None, "documents": None, **extra, "bos_token": "<bos>", "eos_token": "<eos>"}
        try:
            template = _compile_jinja_template(source)
            case["text"] = template.render(messages=messages, add_generation_prompt=generate, **context)
        except Exception as error:
            case["error"] = str(error)
        out.append(case)
    (FOLDER / "expected.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
