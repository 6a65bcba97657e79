// Requests to the page's own server, and messages for its errors.

const KEY = "selfspec-api-key";

/** The API key, kept until the tab is closed. */
export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Why an answer is missing or incomplete; `status` is that of HTTP, or 0 without a response. */
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The name of the served model. */
export async function modelName() {
  const response = await request("v1/models", {});
  const models = await response.json();
  return models.data?.[0]?.id ?? "";
}

/** The chunks of a streamed chat answer. Ends without an error only if the answer is complete. */
export async function* chat(body, signal) {
  const response = await request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      ...body,
      stream: true,
      stream_options: { include_usage: true },
      return_tokens: true,
      timings_per_token: true,
    }),
    signal,
  });
  for await (const data of events(response, signal)) {
    if (data === "[DONE]") {
      return;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) {
      throw new Failure(500, `The server gave up on this answer: ${chunk.error.message}`);
    }
    yield chunk;
  }
  throw new Failure(0, "The answer ended early: the server closed the connection.");
}

async function request(path, options) {
  const headers = { ...options.headers };
  if (key.get()) {
    headers.Authorization = `Bearer ${key.get()}`;
  }
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    throw options.signal?.aborted ? error : new Failure(0, "The server cannot be reached. Is it still running?");
  }
  if (!response.ok) {
    throw new Failure(response.status, await words(response));
  }
  return response;
}

/** The message of an error response. */
async function words(response) {
  let said = "";
  try {
    said = (await response.json()).error.message;
  } catch {
    said = response.statusText || `status ${response.status}`;
  }
  const seconds = Number(response.headers.get("Retry-After"));
  const again = seconds > 0 ? ` Try again in ${seconds} ${seconds === 1 ? "second" : "seconds"}.` : "";
  switch (response.status) {
    case 400: return `The server refused this request: ${said}`;
    case 401: return "The server asks for a valid API key.";
    case 413: return `The conversation is too long for this server: ${said}`;
    case 429: return `The server is busy: ${said}.${again}`;
    case 503: return `The server takes no more messages: ${said}.`;
    default: return `The server answered with an error (${response.status}): ${said}`;
  }
}

/** The data of server-sent events. */
async function* events(response, signal) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let held = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      throw signal.aborted ? error : new Failure(0, "The connection was lost; the answer is incomplete.");
    }
    if (part.done) {
      return;
    }
    held += decoder.decode(part.value, { stream: true });
    const lines = held.split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) {
        yield line.slice(5).trim();
      }
    }
  }
}
