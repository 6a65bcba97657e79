// One answer of the model: its tokens while they arrive, its figures, and its buttons.

const TITLES = {
  draft: "accepted draft",
  correction: "correction: the model's own token after a refused draft",
  bonus: "bonus: the model's own token after a draft was accepted whole",
  plain: "nothing was drafted",
};
const ENDS = { length: "cut off at the token limit" };

/** A new element; strings become text nodes. */
export function element(name, classes = "", text = "") {
  const made = document.createElement(name);
  made.className = classes;
  made.textContent = text;
  return made;
}

/** A button that does not submit a form. */
export function button(text, classes, pressed) {
  const made = element("button", classes, text);
  made.type = "button";
  made.addEventListener("click", pressed);
  return made;
}

/** A button that copies a text, and confirms it. */
function copyButton(text, say) {
  const made = button("Copy", "quiet", async () => {
    made.textContent = (await copy(text)) ? "Copied" : "Could not copy";
    say(made.textContent);
    setTimeout(() => {
      made.textContent = "Copy";
    }, 2000);
  });
  return made;
}

/** Copies a text; false if the browser refuses. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without a secure connection there is only the old way.
    const area = element("textarea", "unseen");
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

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

/** One run of a request: its text and figures so far. */
export class Run {
  constructor(speculation) {
    this.speculation = speculation; // "auto" or "off"
    this.text = "";
    this.timings = undefined;
    this.k = undefined;
    this.finish = undefined; // the API's reason, "stopped" or "failed"
  }

  /** Takes a chunk; gives its tokens. */
  take(chunk) {
    const choice = chunk.choices[0];
    this.text += choice?.delta?.content ?? "";
    this.finish = choice?.finish_reason ?? this.finish;
    if (chunk.timings) {
      const before = this.timings ?? { draft_n: 0, rounds: 0 };
      const rounds = chunk.timings.rounds - before.rounds;
      if (rounds > 0) {
        this.k = (chunk.timings.draft_n - before.draft_n) / rounds;
      }
      this.timings = chunk.timings;
    }
    return choice?.tokens ?? [];
  }

  /** Whether the model came to its end. */
  get whole() {
    return this.finish === "stop" || this.finish === "length";
  }
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
    this.last = undefined; // the span that grows while the source stays the same
  }

  /** Shows tokens, as text and never as markup. */
  add(tokens) {
    for (const { text, source } of tokens) {
      if (text === "") {
        continue;
      }
      if (this.last?.dataset.source !== source) {
        this.last = element("span", `token ${source in TITLES ? source : "plain"}`);
        this.last.dataset.source = source;
        this.last.title = TITLES[source] ?? source;
        this.text.append(this.last);
      }
      this.last.append(text);
    }
  }

  /** Says how it ended, and offers what can be done now. */
  end(run, seed) {
    this.text.removeAttribute("aria-busy");
    const parts = [];
    if (run.timings) {
      const f = figures(run.timings, run.k);
      parts.push(`${run.timings.predicted_n} tokens`, `${f.speed} tok/s`, `${f.pass} tokens a pass`);
      if (f.acceptance !== "–") {
        parts.push(`${f.acceptance} of drafts accepted`);
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
