"""Holds a running server to what clients of OpenAI's API expect: openai-python, LangChain, LlamaIndex. See README.md.

Each check is one thing that docs/clients.md shows. What is not installed is passed over and said; a check that fails says why and the others go on.
"""

import argparse
import asyncio
import importlib.util
import json
import sys

CHECKS = []
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 40}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "capital": {"type": "boolean"}},
    "required": ["name", "capital"],
    "additionalProperties": False,
}


def check(needs):
    """Marks a check of the client `needs`."""

    def mark(function):
        CHECKS.append((needs, function.__name__, function))
        return function

    return mark


class Server:
    """The server under test, and clients for it."""

    def __init__(self, args):
        self.url, self.key = args.url.rstrip("/"), args.key
        self.model = args.model or self.openai().models.list().data[0].id

    def openai(self, cls="OpenAI"):
        import openai

        return getattr(openai, cls)(base_url=self.url, api_key=self.key, max_retries=0)

    def chat(self, **fields):
        fields = {"model": self.model, "messages": QUESTION, "max_tokens": 32, "temperature": 0} | fields
        return self.openai().chat.completions.create(**fields)

    def langchain(self, **fields):
        from langchain_openai import ChatOpenAI

        fields = {"temperature": 0, "max_tokens": 64} | fields
        return ChatOpenAI(base_url=self.url, api_key=self.key, model=self.model, max_retries=0, **fields)

    def llama_index(self):
        from llama_index.llms.openai_like import OpenAILike

        return OpenAILike(
            api_base=self.url, api_key=self.key, model=self.model, is_chat_model=True, temperature=0, max_tokens=32, max_retries=0, context_window=2048
        )


@check("openai")
def models(s):
    assert s.model in [model.id for model in s.openai().models.list()]
    assert s.openai().models.retrieve(s.model).id == s.model


@check("openai")
def chat(s):
    answer = s.chat()
    assert answer.object == "chat.completion" and answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content and answer.choices[0].finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and 0 < usage.completion_tokens <= 32


@check("openai")
def content_parts_and_developer(s):
    parts = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    assert s.chat(messages=parts).choices[0].message.content


@check("openai")
def chat_stream(s):
    chunks = list(s.chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == s.chat().choices[0].message.content
    assert chunks[-1].usage.completion_tokens > 0 and chunks[-1].choices == []
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in ("stop", "length")


@check("openai")
def chat_stream_helper(s):
    # An answer that ends by its length is an error to this helper: it stops early.
    with s.openai().chat.completions.stream(model=s.model, messages=QUESTION, max_tokens=200, temperature=0, stop=[".", ",", "\n"]) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        assert stream.get_final_completion().choices[0].message.content == "".join(deltas)


@check("openai")
def chat_async(s):
    async def both():
        client = s.openai("AsyncOpenAI")
        ask = lambda n: client.chat.completions.create(model=s.model, messages=QUESTION, max_tokens=n, temperature=0)
        return await asyncio.gather(ask(8), ask(16))

    short, long = asyncio.run(both())
    assert long.choices[0].message.content.startswith(short.choices[0].message.content.strip())


@check("openai")
def seed(s):
    texts = [s.chat(temperature=1, seed=n).choices[0].message.content for n in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2], texts


@check("openai")
def speculation_changes_nothing(s):
    ask = lambda **fields: s.chat(max_tokens=64, **fields).choices[0].message.content
    for fields in ({}, {"temperature": 1, "seed": 5}):
        assert ask(extra_body={"speculation": "off"}, **fields) == ask(extra_body={"speculation": "auto"}, **fields)


@check("openai")
def logprobs(s):
    answer = s.chat(logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) >= answer.usage.completion_tokens - 1 and all(len(token.top_logprobs) == 3 for token in tokens)
    assert all(token.logprob <= 0 and token.top_logprobs[0].logprob >= token.logprob - 1e-6 for token in tokens)
    assert "".join(token.token for token in tokens).startswith(answer.choices[0].message.content[:5])


@check("openai")
def stop_and_choices(s):
    answer = s.chat(n=2, temperature=1, seed=1, stop=["."], max_tokens=48)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all("." not in choice.message.content for choice in answer.choices)


@check("openai")
def completions(s):
    create = lambda **fields: s.openai().completions.create(model=s.model, prompt="Once upon a time", max_tokens=16, temperature=0, **fields)
    answer = create()
    assert answer.object == "text_completion" and answer.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in create(stream=True)) == answer.choices[0].text


@check("openai")
def json_object(s):
    answer = s.chat(messages=[{"role": "user", "content": "A city as JSON."}], response_format={"type": "json_object"}, max_tokens=300)
    choice = answer.choices[0]
    assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content), dict), choice


@check("openai")
def json_schema(s):
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}
    value = json.loads(s.chat(response_format=wanted, max_tokens=128).choices[0].message.content)
    assert set(value) == {"name", "capital"} and isinstance(value["name"], str) and isinstance(value["capital"], bool), value


@check("openai")
def json_schema_of_pydantic(s):
    import pydantic

    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=40)
        capital: bool

    answer = s.openai().chat.completions.parse(model=s.model, messages=QUESTION, response_format=City, max_tokens=128, temperature=0)
    assert isinstance(answer.choices[0].message.parsed, City), answer


@check("openai")
def tools_auto(s):
    choice = s.chat(tools=[WEATHER]).choices[0]
    assert choice.message.content or choice.message.tool_calls, choice


@check("openai")
def tools_and_their_results(s):
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    choice = s.chat(messages=messages, tools=[WEATHER], tool_choice="required", max_tokens=128).choices[0]
    assert choice.finish_reason == "tool_calls", choice
    call = choice.message.tool_calls[0]
    assert call.type == "function" and call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments)["city"], str)
    messages += [choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "-3 degrees, snow"}]
    assert s.chat(messages=messages, tools=[WEATHER], tool_choice="none").choices[0].message.content


@check("openai")
def tools_stream(s):
    named = {"type": "function", "function": {"name": "get_weather"}}
    chunks = list(s.chat(tools=[WEATHER], tool_choice=named, stream=True, max_tokens=128))
    calls = [call for c in chunks if c.choices for call in c.choices[0].delta.tool_calls or []]
    assert calls[0].id and calls[0].function.name == "get_weather" and all(call.index == 0 for call in calls)
    assert "city" in json.loads("".join(call.function.arguments or "" for call in calls))


@check("openai")
def errors_are_openais(s):
    import openai

    for error, fields in ((openai.NotFoundError, {"model": "no-such-model"}), (openai.BadRequestError, {"temperature": 9})):
        try:
            s.chat(**fields)
        except error as e:
            assert e.body["message"], e.body
        else:
            raise AssertionError(f"{fields} is served")


@check("langchain_openai")
def langchain_invoke(s):
    answer = s.langchain().invoke([("system", "Be brief."), ("human", "Name a colour.")])
    assert answer.content and answer.usage_metadata["output_tokens"] > 0


@check("langchain_openai")
def langchain_stream(s):
    chunks = list(s.langchain(stream_usage=True).stream("Name a colour."))
    assert "".join(chunk.content for chunk in chunks)
    assert any(chunk.usage_metadata for chunk in chunks)


@check("langchain_openai")
def langchain_speculation_and_seed(s):
    ask = lambda speculation: s.langchain(temperature=1, seed=3, extra_body={"speculation": speculation}).invoke("Tell me a story.").content
    assert ask("auto") == ask("off")


@check("langchain_openai")
def langchain_structured_output(s):
    schema = CITY | {"title": "City", "description": "A city"}
    value = s.langchain(max_tokens=128).with_structured_output(schema, method="json_schema").invoke("What is the capital of France?")
    assert set(value) == {"name", "capital"}, value


@check("langchain_openai")
def langchain_tools(s):
    model = s.langchain(max_tokens=128).bind_tools([WEATHER], tool_choice="get_weather")
    calls = model.invoke("What is the weather in Oslo?").tool_calls
    assert calls[0]["name"] == "get_weather" and isinstance(calls[0]["args"]["city"], str), calls


@check("llama_index.llms.openai_like")
def llama_index_chat(s):
    from llama_index.core.llms import ChatMessage

    messages = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Name a colour.")]
    answer = s.llama_index().chat(messages)
    assert answer.message.content
    assert "".join(part.delta for part in s.llama_index().stream_chat(messages)) == answer.message.content


def installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--key", default="none", help="the server's key, if it asks for one")
    parser.add_argument("--model", help="its name (default: the first that the server lists)")
    parser.add_argument("--only", help="checks whose name holds this")
    args = parser.parse_args()
    if not installed("openai"):
        raise SystemExit(f"{sys.executable} has no openai\nhint: README.md says how to install it")
    server = Server(args)
    failed, ran = [], 0
    for needs, name, function in CHECKS:
        if args.only and args.only not in name:
            continue
        if not installed(needs):
            print(f"not installed: {needs}, {name} is passed over")
            continue
        ran += 1
        try:
            function(server)
            print(f"ok      {name}")
        except Exception as error:  # whatever a client raises is the finding
            failed.append(name)
            print(f"FAILED  {name}: {type(error).__name__}: {str(error)[:300]}")
    print(f"{ran - len(failed)} of {ran} checks passed")
    sys.exit(1 if failed or not ran else 0)


if __name__ == "__main__":
    main()
