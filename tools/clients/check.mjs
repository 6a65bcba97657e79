// Holds a running server to what openai-node expects. See README.md.
import assert from "node:assert/strict";
import OpenAI from "openai";

const option = (name, otherwise) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const client = new OpenAI({
  baseURL: option("--url", "http://127.0.0.1:8080/v1"),
  apiKey: option("--key", "none"),
  maxRetries: 0,
});
const model = option("--model", (await client.models.list()).data[0].id);
const messages = [{ role: "user", content: "What is the capital of France?" }];
const usual = { model, messages, max_tokens: 32, temperature: 0 };
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string", maxLength: 40 } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};

const checks = {
  async chat() {
    const answer = await client.chat.completions.create(usual);
    assert.ok(answer.choices[0].message.content);
    assert.ok(answer.usage.completion_tokens > 0);
  },
  async chatStream() {
    const whole = await client.chat.completions.create(usual);
    const stream = await client.chat.completions.create({ ...usual, stream: true, stream_options: { include_usage: true } });
    let text = "";
    let usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.deepEqual(usage.completion_tokens, whole.usage.completion_tokens);
  },
  async abortedStream() {
    const stream = await client.chat.completions.create({ ...usual, max_tokens: 512, stream: true });
    for await (const _ of stream) break; // leaving the loop closes the connection
    assert.ok((await client.chat.completions.create(usual)).choices[0].message.content);
  },
  async seedAndSpeculation() {
    const ask = async (speculation) =>
      (await client.chat.completions.create({ ...usual, temperature: 1, seed: 7, speculation })).choices[0].message.content;
    assert.equal(await ask("auto"), await ask("off"));
  },
  async completions() {
    const answer = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 8, temperature: 0 });
    assert.ok(answer.choices[0].text);
  },
  async jsonSchema() {
    const schema = {
      type: "object",
      properties: { name: { type: "string", maxLength: 40 }, capital: { type: "boolean" } },
      required: ["name", "capital"],
      additionalProperties: false,
    };
    const response_format = { type: "json_schema", json_schema: { name: "city", strict: true, schema } };
    const answer = await client.chat.completions.create({ ...usual, max_tokens: 128, response_format });
    assert.deepEqual(Object.keys(JSON.parse(answer.choices[0].message.content)).sort(), ["capital", "name"]);
  },
  async tools() {
    const answer = await client.chat.completions.create({ ...usual, max_tokens: 128, tools: [weather], tool_choice: "required" });
    const call = answer.choices[0].message.tool_calls[0];
    assert.equal(call.function.name, "get_weather");
    assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
  },
  async errors() {
    await assert.rejects(client.chat.completions.create({ ...usual, model: "no-such-model" }), OpenAI.NotFoundError);
    await assert.rejects(client.chat.completions.create({ ...usual, temperature: 9 }), OpenAI.BadRequestError);
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}: ${String(error).slice(0, 300)}`);
  }
}
const all = Object.keys(checks).length;
console.log(`${all - failed} of ${all} checks passed`);
process.exit(failed ? 1 : 0);
