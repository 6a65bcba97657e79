"""Asks a served model for values of many JSON schemas, and checks each answer against its schema.

    pip install -r requirements.txt
    npm pack json-schema-test-suite && tar xzf json-schema-test-suite-*.tgz
    selfspec serve MODEL --port 8080 &
    python check.py --url http://127.0.0.1:8080 --suite package/tests --made 300

Every answer must be a value of its schema, or the schema must be refused with 400 in less than two seconds. An answer that `max_tokens` cut short is
counted and not judged. Prints the counts and every fault; ends with 1 if there was one. With `--speed` it also compares the time of a token with a grammar
and without.
"""

import argparse
import collections
import json
import random
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema

WORDS = ["name", "age", "city", "tags", "price", "unit", "id", "kind", "note", "items", "größe", "naïve key", "a\"b", "日本"]


class Maker:
    """Makes schemas at random, from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def schema(self):
        schema = self.any(3)
        if self.random.random() < 0.2:
            # A tree that refers to itself.
            node = {"type": "object", "properties": {"value": self.leaf(), "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                    "required": ["value", "next"], "additionalProperties": False}
            schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/node"}, "other": schema}, "required": ["tree"],
                      "additionalProperties": False, "$defs": {"node": node}}
        return schema

    def any(self, depth):
        pick = self.random.random()
        if depth == 0 or pick < 0.25:
            return self.leaf()
        if pick < 0.65:
            return self.object(depth)
        if pick < 0.85:
            return self.array(depth)
        return {"anyOf": [self.any(depth - 1) for _ in range(self.random.randint(2, 3))]}

    def leaf(self):
        r = self.random
        choices = [
            lambda: {"type": "string", "maxLength": r.randint(1, 30)},
            lambda: {"type": "string", "minLength": 2, "maxLength": 12},
            lambda: {"type": "string", "pattern": r.choice([r"^[a-z]{2,6}$", r"^\d{3}-\d{4}$", r"^(foo|bar)+$", r"^#[0-9a-f]{6}$", r"^[^\s]{1,9}$"])},
            lambda: {"type": "string", "format": r.choice(["date", "time", "date-time", "email", "uuid", "ipv4"])},
            lambda: {"type": "integer"},
            lambda: {"type": "integer", "minimum": r.randint(-50, 0), "maximum": r.randint(1, 5000)},
            lambda: {"type": "integer", "multipleOf": r.choice([2, 5, 7])},
            lambda: {"type": "number", "minimum": 0, "exclusiveMaximum": r.choice([1, 2.5, 100])},
            lambda: {"type": "boolean"},
            lambda: {"type": "null"},
            lambda: {"enum": r.sample([1, "two", None, True, 3.5, "vier", ["x"], {"k": 1}], 3)},
            lambda: {"const": r.choice([7, "fixed", {"a": [1, 2]}, "ü\n\"", False])},
            lambda: {"type": ["string", "null"], "maxLength": 8},
        ]
        return r.choice(choices)()

    def object(self, depth):
        keys = self.random.sample(WORDS, self.random.randint(1, 4))
        schema = {"type": "object", "properties": {key: self.any(depth - 1) for key in keys}}
        schema["required"] = [key for key in keys if self.random.random() < 0.7]
        schema["additionalProperties"] = self.random.choice([False, False, False, {"type": "integer"}])
        return schema

    def array(self, depth):
        low = self.random.randint(0, 2)
        schema = {"type": "array", "items": self.any(depth - 1), "minItems": low, "maxItems": low + self.random.randint(0, 3)}
        if self.random.random() < 0.2:
            schema = {"type": "array", "prefixItems": [self.leaf(), self.leaf()], "items": False, "minItems": 2}
        return schema


def suite(folder):
    """The schemas of a JSON Schema test suite's folder, with their draft."""
    for path in sorted(Path(folder).rglob("*.json")):
        draft = next((part for part in path.parts if part.startswith("draft")), "")
        for case in json.loads(path.read_text()):
            yield f"{draft}/{path.stem}: {case['description']}", draft, case["schema"]


def validator(draft, schema):
    kinds = {"draft3": jsonschema.Draft3Validator, "draft4": jsonschema.Draft4Validator}
    kind = kinds.get(draft, jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


class Client:
    def __init__(self, url):
        self.url = url

    def post(self, body):
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def value(self, schema, seed, speculation, most):
        return self.post({
            "messages": [{"role": "user", "content": "Give an example as JSON."}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "example", "schema": schema}},
            "temperature": 1.0, "seed": seed, "max_tokens": most, "speculation": speculation,
        })


def check(client, name, draft, schema, seed, most):
    """What became of one schema: a word, and what is wrong if something is."""
    started = time.monotonic()
    status, answer = client.value(schema, seed, "auto", most)
    seconds = time.monotonic() - started
    if status == 400:
        message = answer["error"]["message"]
        return ("refused", None) if seconds < 2.5 else ("slow refusal", f"{name}: {seconds:.1f} s: {message}")
    if status == 429:
        time.sleep(0.2)
        return check(client, name, draft, schema, seed, most)
    if status != 200:
        return "error", f"{name}: {status} {answer} for {schema}"
    choice = answer["choices"][0]
    plain = client.value(schema, seed, "off", most)[1]["choices"][0]
    if plain["message"]["content"] != choice["message"]["content"]:
        return "differs", f"{name}: with speculation {choice['message']['content']!r}, without {plain['message']['content']!r}"
    if choice["finish_reason"] == "length":
        return "cut short", None
    text = choice["message"]["content"]
    try:
        value = json.loads(text)
    except ValueError as error:
        return "no JSON", f"{name}: {error}: {text!r} for {schema}"
    try:
        fault = next(validator(draft, schema).iter_errors(value), None)
    except Exception as error:  # a schema that the validator itself cannot use
        return "unjudged", f"note: {name}: the validator says {type(error).__name__}: {error}"
    return ("invalid", f"{name}: {fault.message}: {text!r} for {schema}") if fault else ("valid", None)


def speed(client, rounds=7):
    """Milliseconds a token with a grammar and without, of the same tokens, in turn: the grammar lets any text through."""
    base = {"messages": [{"role": "user", "content": "Tell a long story."}], "temperature": 0, "max_tokens": 100}
    held = {"response_format": {"type": "regex", "regex": "(?s:.*)"}}
    for speculation in ("off", "auto"):
        times = collections.defaultdict(list)
        for _ in range(rounds):
            for kind, more in (("without", {}), ("with", held)):
                timings = client.post({**base, **more, "speculation": speculation})[1]["timings"]
                times[kind].append(timings["predicted_ms"] / max(1, timings["predicted_n"] - 1))
        with_, without = (statistics.median(times[kind]) for kind in ("with", "without"))
        print(f"speculation {speculation}: {with_:.2f} ms a token with a grammar, {without:.2f} without: {with_ / without:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--suite", help="folder of a JSON Schema test suite")
    parser.add_argument("--made", type=int, default=300, help="schemas that are made at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--at-a-time", type=int, default=8)
    parser.add_argument("--speed", action="store_true")
    args = parser.parse_args()
    client = Client(args.url)
    maker = Maker(args.seed)
    cases = [(f"made {i}", "", maker.schema()) for i in range(args.made)]
    cases += list(suite(args.suite)) if args.suite else []
    counts, lock = collections.Counter(), threading.Lock()

    def run(numbered):
        number, (name, draft, schema) = numbered
        word, fault = check(client, name, draft, schema, number, args.max_tokens)
        with lock:
            counts[word] += 1
            if fault:
                print(fault, flush=True)

    with ThreadPoolExecutor(args.at_a_time) as pool:
        list(pool.map(run, enumerate(cases)))
    print(f"{len(cases)} schemas: " + ", ".join(f"{n} {word}" for word, n in counts.most_common()))
    if args.speed:
        speed(client)
    bad = sum(counts[word] for word in ("invalid", "no JSON", "error", "differs", "slow refusal"))
    sys.exit(1 if bad or not counts["valid"] else 0)


if __name__ == "__main__":
    main()
