// The conversation: the user's messages, the requests to the server, and their answers.

import { Answer, Run, figures } from "./page-answer.js";
import { Failure, chat, key, modelName } from "./page-client.js";
import { element } from "./page-elements.js";
import { FIELDS, store } from "./page-store.js";

const $ = (id) => document.getElementById(id);
const [input, turnsNode, composer] = ["input", "turns", "composer"].map($);

let turns = []; // { user, run, answer, body, seed }
let running; // the AbortController of the run under way
let totals = nothing(); // what the runs of this conversation took, by speculation

function nothing() {
  return { auto: { tokens: 0, steps: 0, ms: 0 }, off: { tokens: 0, steps: 0, ms: 0 } };
}

// -- Asking

/** The messages so far; turns without an answer are left out. */
function messages(system, user) {
  const said = turns.filter((turn) => turn.run.text !== "");
  return [
    ...(system ? [{ role: "system", content: system }] : []),
    ...said.flatMap((turn) => [
      { role: "user", content: turn.user },
      { role: "assistant", content: turn.run.text },
    ]),
    { role: "user", content: user },
  ];
}

/** The settings of a request; undefined if one is out of range, which the browser reports. */
function settings() {
  const fields = [$("temperature"), $("max-tokens"), $("seed")];
  const wrong = fields.find((field) => !field.checkValidity());
  if (wrong) {
    showPanel(true);
    wrong.reportValidity();
    return undefined;
  }
  const [temperature, most, seed] = fields.map((field) => (field.value === "" ? undefined : Number(field.value)));
  return { temperature, max_tokens: most, seed: seed ?? crypto.getRandomValues(new Uint32Array(1))[0] };
}

function send() {
  const user = input.value;
  const chosen = settings();
  if (running || user.trim() === "" || !chosen) {
    return;
  }
  const speculation = composer.elements.speculation.value;
  const body = { ...chosen, messages: messages($("system").value.trim(), user), speculation };
  input.value = "";
  fit();
  showQuestion(user);
  answer({ user, body });
}

function showQuestion(user) {
  $("welcome").hidden = true;
  const node = element("article", "question");
  node.append(element("h3", "who", "You"), element("div", "text", user));
  turnsNode.append(node);
}

/** Gives a turn its place on the page. */
function showAnswer(turn) {
  turn.answer = new Answer({
    compare: () => compare(turn),
    retry: () => retry(turn),
    say,
  });
  turns.push(turn);
  turnsNode.append(turn.answer.node);
}

/** Requests the answer of a turn. */
async function answer(turn) {
  turn.run = new Run(turn.body.speculation);
  showAnswer(turn);
  follow(true);
  const failure = await go(turn.run, turn.body, () => {
    turn.answer.show(turn.run, formatted());
    gauges(turn.run);
  });
  if (!turns.includes(turn)) {
    return; // a new conversation has begun
  }
  turn.answer.end(turn.run, turn.body.seed, formatted());
  keep();
  if (failure) {
    turn.answer.fail(failure.message);
    askForKey(failure);
  } else {
    say(`Answer: ${turn.run.text}`);
  }
  follow(false);
}

function retry(turn) {
  if (running) {
    return;
  }
  turns = turns.filter((other) => other !== turn);
  turn.answer.node.remove();
  input.focus();
  answer({ user: turn.user, body: turn.body });
}

/** Runs the turn's request again, with speculation switched. */
async function compare(turn) {
  if (running) {
    return;
  }
  const other = new Run(turn.run.speculation === "auto" ? "off" : "auto");
  const show = () => turn.answer.compare(turn.run, other);
  show();
  const failure = await go(other, { ...turn.body, speculation: other.speculation }, show);
  const verdict = show();
  if (failure) {
    turn.answer.verdict.textContent = failure.message;
    askForKey(failure);
  }
  say(failure ? failure.message : verdict);
}

/** Reads an answer to its end, calling `seen` for its tokens; returns the error, if any. */
async function go(run, body, seen) {
  const controller = new AbortController();
  const conversation = totals;
  begin(controller);
  let failure;
  try {
    for await (const chunk of chat(body, controller.signal)) {
      run.take(chunk);
      seen();
      follow(false);
    }
  } catch (error) {
    run.finish = controller.signal.aborted ? "stopped" : "failed";
    failure = controller.signal.aborted ? undefined : error instanceof Failure ? error : new Failure(0, `${error}`);
  }
  count(run, conversation);
  end(controller);
  return failure;
}

// -- Running requests

function begin(controller) {
  running = controller;
  $("stop").hidden = false;
  $("send").hidden = true;
}

function end(controller) {
  if (running !== controller) {
    return;
  }
  running = undefined;
  const focused = document.activeElement === $("stop");
  $("stop").hidden = true;
  $("send").hidden = false;
  if (focused) {
    input.focus();
  }
}

function stop() {
  running?.abort();
}

function startAnew() {
  stop();
  turns = [];
  turnsNode.replaceChildren();
  $("welcome").hidden = false;
  totals = nothing();
  showTotals();
  gauges(new Run("auto"));
  keep();
  say("New conversation");
  input.focus();
}

// -- Over a reload

/** Stores the conversation and the settings for this tab. */
function keep() {
  store.put({
    turns: turns.filter((turn) => turn.run.finish).map(({ user, body, run }) => ({ user, body, run })),
    fields: Object.fromEntries(FIELDS.map((id) => [id, $(id).value])),
    totals,
  });
}

/** Shows what was stored. */
function restore() {
  const stored = store.get();
  for (const [id, value] of Object.entries(stored?.fields ?? {})) {
    $(id).value = value;
  }
  for (const { user, body, run } of stored?.turns ?? []) {
    showQuestion(user);
    const turn = { user, body, run: Run.restored(run) };
    showAnswer(turn);
    turn.answer.end(turn.run, body.seed, formatted());
  }
  totals = stored?.totals ?? totals;
  showTotals();
  follow(true);
}

/** Whether answers are shown as Markdown, and not as they were written. */
function formatted() {
  return $("formatted").checked;
}

// -- Figures

function gauges(run) {
  const none = { speed: "–", acceptance: "–", pass: "–", k: "–" };
  const now = run.timings ? figures(run.timings, run.k) : none;
  for (const name of Object.keys(now)) {
    $(`gauge-${name}`).textContent = now[name];
  }
}

/** Adds a run to the figures of its conversation; the prompt's time is that of the first token. */
function count(run, conversation) {
  if (run.timings) {
    const total = conversation[run.speculation];
    total.tokens += run.timings.predicted_n;
    total.steps += run.timings.predicted_n - 1;
    total.ms += run.timings.predicted_ms;
    showTotals();
  }
}

function showTotals() {
  for (const kind of ["auto", "off"]) {
    const { tokens, steps, ms } = totals[kind];
    $(`total-${kind}-tokens`).textContent = tokens;
    $(`total-${kind}-speed`).textContent = ms > 0 ? ((1000 * steps) / ms).toFixed(1) : "–";
  }
}

// -- The page around it

/** Announces a text to screen readers. */
function say(text) {
  $("status").textContent = text;
}

/** Scrolls to the end of the conversation, unless the user has scrolled away. */
let atEnd = true;
function follow(always) {
  if (always || atEnd) {
    window.scrollTo(0, document.documentElement.scrollHeight);
  }
}

/** Makes the message field as high as its text. */
function fit() {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, window.innerHeight / 3)}px`;
}

function showPanel(shown) {
  $("panel").classList.toggle("shown", shown);
  $("panel-toggle").setAttribute("aria-expanded", String(shown));
}

function askForKey(failure) {
  if (failure.status === 401) {
    key.forget();
    $("forget-key").hidden = true;
    $("key-form").hidden = false;
    $("key").focus();
  }
}

async function greet() {
  try {
    $("model").textContent = await modelName();
    $("forget-key").hidden = !key.get();
  } catch (failure) {
    askForKey(failure);
    if (failure.status !== 401) {
      $("model").textContent = failure.message;
    }
  }
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set($("key").value);
  $("key").value = "";
  $("key-form").hidden = true;
  input.focus();
  greet();
});
$("forget-key").addEventListener("click", () => {
  key.forget();
  greet();
});
composer.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
input.addEventListener("input", fit);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    stop();
  }
});
document.addEventListener("scroll", () => {
  const page = document.documentElement;
  atEnd = page.scrollHeight - window.innerHeight - window.scrollY < 80;
});
$("stop").addEventListener("click", stop);
$("new").addEventListener("click", startAnew);
$("formatted").addEventListener("change", () => {
  for (const turn of turns) {
    turn.answer.redraw(turn.run, formatted());
  }
});
for (const id of FIELDS) {
  $(id).addEventListener("change", keep);
}
$("marks").addEventListener("change", (event) => {
  document.body.classList.toggle("unmarked", !event.target.checked);
});
$("panel-toggle").addEventListener("click", () => {
  const shown = !$("panel").classList.contains("shown");
  showPanel(shown);
  if (shown) {
    $("panel").focus();
  }
});

restore();
greet();
input.focus();
