// One answer of the model: its text while it arrives, its figures, and its buttons.

import { copyButton, button, element } from "./page-elements.js";
import { markdown } from "./page-markdown.js";

const TITLES = {
  draft: "accepted draft",
  correction: "correction: the model's own token after a refused draft",
  bonus: "bonus: the model's own token after a draft was accepted whole",
  plain: "nothing was drafted",
};
const ENDS = { length: "cut off at the token limit" };

export const round = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits) : "–");

/** The figures of timings as text; `k` is the latest round's draft length. */
export function figures(timings, k) {
  return {
    speed: timings.predicted_ms > 0 ? round(timings.predicted_per_second, 1) : "–",
    acceptance: timings.draft_n > 0 ? `${round((100 * timings.draft_n_accepted) / timings.draft_n, 0)}%` : "–",
    pass: timings.rounds > 0 ? round(timings.predicted_n / timings.rounds, 2) : "–",
    k: k === undefined ? "–" : round(k, k % 1 ? 1 : 0),
  };
}

/** One run of a request: its text and figures so far. Plain data, so that it outlives a reload. */
export class Run {
  constructor(speculation) {
    this.speculation = speculation; // "auto" or "off"
    this.text = "";
    this.reasoning = "";
    this.pieces = []; // [{ text, source }]: the tokens, those of one source joined
    this.timings = undefined;
    this.drafters = undefined; // drafts and accepted drafts by drafter
    this.k = undefined;
    this.finish = undefined; // the API's reason, "stopped" or "failed"
  }

  /** A run that was stored. */
  static restored(stored) {
    return Object.assign(new Run(stored.speculation), stored);
  }

  /** Takes a chunk. */
  take(chunk) {
    const choice = chunk.choices[0];
    this.text += choice?.delta?.content ?? "";
    this.reasoning += choice?.delta?.reasoning_content ?? "";
    this.finish = choice?.finish_reason ?? this.finish;
    if (chunk.timings) {
      const before = this.timings ?? { draft_n: 0, rounds: 0 };
      const rounds = chunk.timings.rounds - before.rounds;
      if (rounds > 0) {
        this.k = (chunk.timings.draft_n - before.draft_n) / rounds;
      }
      this.timings = chunk.timings;
      this.drafters = chunk.timings.drafters ?? this.drafters;
    }
    for (const { text, source } of choice?.tokens ?? []) {
      const last = this.pieces.at(-1);
      if (last?.source === source) {
        last.text += text;
      } else if (text !== "") {
        this.pieces.push({ text, source });
      }
    }
  }

  /** The pieces of the text alone: tokens before it were reasoning. */
  get textPieces() {
    const all = this.pieces.map(({ text }) => text).join("");
    let left = all.lastIndexOf(this.text);
    if (left < 0) {
      return [];
    }
    const pieces = [];
    for (const { text, source } of this.pieces) {
      const cut = Math.min(left, text.length);
      left -= cut;
      pieces.push({ text: text.slice(cut), source });
    }
    return pieces;
  }

  /** Whether the model came to its end. */
  get whole() {
    return this.finish === "stop" || this.finish === "length";
  }
}

/** A part of the text that has one source. */
function token(text, source) {
  const made = element("span", `token ${source in TITLES ? source : "plain"}`, text);
  made.dataset.source = source;
  made.title = TITLES[source] ?? source;
  return made;
}

/** An answer on the page. */
export class Answer {
  constructor(actions) {
    this.actions = actions; // { compare, retry, say }
    this.node = element("article", "answer");
    this.node.append(element("h3", "who", "Model"));
    this.text = this.node.appendChild(element("div", "text"));
    this.text.setAttribute("aria-busy", "true");
    this.facts = this.node.appendChild(element("p", "facts"));
    this.row = this.node.appendChild(element("div", "actions"));
    this.due = false; // whether the text will be drawn before the next frame
  }

  /** Draws the text of a run before the next frame, however many tokens come until then. */
  show(run, formatted) {
    Object.assign(this, { run, formatted });
    if (!this.due) {
      this.due = true;
      requestAnimationFrame(() => this.draw());
    }
  }

  /** Draws the text of a run at once. */
  redraw(run, formatted) {
    Object.assign(this, { run, formatted });
    this.draw();
  }

  draw() {
    this.due = false;
    const { run } = this;
    if (run.reasoning !== "" && !this.reasoning) {
      this.reasoning = element("details", "reasoning");
      this.reasoning.append(element("summary", "", "Reasoning"), element("div"));
      this.text.before(this.reasoning);
    }
    if (this.reasoning) {
      this.reasoning.lastChild.textContent = run.reasoning;
    }
    this.text.classList.toggle("formatted", this.formatted);
    const pieces = run.textPieces;
    if (this.formatted) {
      this.text.replaceChildren(...markdown(run.text, pieces, token, this.actions.say));
    } else {
      const spans = pieces.filter(({ text }) => text !== "").map(({ text, source }) => token(text, source));
      this.text.replaceChildren(...(spans.length > 0 ? spans : [run.text]));
    }
  }

  /** Says how it ended, and offers what can be done now. */
  end(run, seed, formatted) {
    this.redraw(run, formatted);
    this.text.removeAttribute("aria-busy");
    const parts = [];
    if (run.timings) {
      const f = figures(run.timings, run.k);
      parts.push(`${run.timings.predicted_n} tokens`, `${f.speed} tok/s`, `${f.pass} tokens a pass`);
      if (f.acceptance !== "–") {
        parts.push(`${f.acceptance} of drafts accepted${drafters(run.drafters)}`);
      }
    }
    parts.push(`speculation ${run.speculation}`, `seed ${seed}`);
    const end = run.finish === "stopped" ? "stopped by you" : ENDS[run.finish];
    this.facts.textContent = (end ? [...parts, end] : parts).join(" · ");
    this.row.replaceChildren();
    if (run.text !== "") {
      this.row.append(copyButton(run.text, this.actions.say));
    }
    if (run.whole) {
      const other = run.speculation === "auto" ? "off" : "auto";
      this.row.append(button(`Compare with speculation ${other}`, "quiet", this.actions.compare));
    }
  }

  /** Shows an error, and offers to try again. */
  fail(message) {
    const alert = element("div", "failure");
    alert.setAttribute("role", "alert");
    alert.append(element("p", "", message));
    this.row.append(button("Try again", "quiet", this.actions.retry));
    this.row.before(alert);
  }

  /** Shows two runs of the same request side by side; `other` may still be under way. */
  compare(run, other) {
    if (!this.table) {
      this.table = element("table", "figures compare");
      this.table.append(element("caption", "", "The same message and seed, with and without speculation"));
      const head = this.table.createTHead().insertRow();
      for (const title of ["Speculation", "Tok/s", "Acceptance", "Tokens/pass"]) {
        const cell = element("th", "", title);
        cell.scope = "col";
        head.append(cell);
      }
      this.table.append(element("tbody"));
      this.verdict = element("p", "verdict");
      this.row.after(this.table, this.verdict);
    }
    const rows = [run, other].map((each) => {
      const row = element("tr");
      const name = element("th", "", each.speculation === "auto" ? "Auto" : "Off");
      name.scope = "row";
      const f = each.timings ? figures(each.timings, each.k) : { speed: "…", acceptance: "…", pass: "…" };
      row.append(name, ...[f.speed, f.acceptance, f.pass].map((figure) => element("td", "", figure)));
      return row;
    });
    this.table.tBodies[0].replaceChildren(...rows);
    this.verdict.textContent = other.finish === undefined ? "Running…" : verdict(run, other);
    return this.verdict.textContent;
  }
}

/** Which drafters drafted, in words. */
function drafters(counts = {}) {
  const names = Object.entries(counts).map(([name, { draft_n: n }]) => `${name} ${n}`);
  return names.length > 0 ? ` (${names.join(", ")})` : "";
}

/** The result of the comparison, after both runs have ended. */
function verdict(run, other) {
  if (!other.whole) {
    return "The comparison was not finished.";
  }
  const [auto, off] = run.speculation === "auto" ? [run, other] : [other, run];
  const { draft_n: drafted, predicted_n: tokens } = auto.timings;
  const factor = auto.timings.predicted_per_second / off.timings.predicted_per_second;
  let speed = "";
  if (drafted === 0) {
    speed = " Nothing was drafted: any difference in speed is chance.";
  } else if (factor > 0 && Number.isFinite(factor)) {
    speed = ` Over ${tokens} tokens: ${round(factor, 2)} times as fast with speculation.`;
  }
  return (run.text === other.text ? "Same text, character for character." : "The texts differ.") + speed;
}
