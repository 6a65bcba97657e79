// Markdown as elements of the page. The parser only reads; every element is made here, from text.
// Nothing that a model writes becomes markup: HTML stays text, images become links.

import { lexer } from "./marked.js";
import { copyButton, element } from "./page-elements.js";

/**
 * The parts of an answer's text by where their tokens came from.
 *
 * `pieces`: [{ text, source }], in order; joined, they are the text.
 */
class Sources {
  constructor(pieces) {
    this.ends = []; // [end of a piece in the text, its source]
    this.index = 0; // of the piece that was used last
    let end = 0;
    for (const { text, source } of pieces) {
      end += text.length;
      this.ends.push([end, source]);
    }
  }

  /** The part of the text from `start` to `end`, as spans. Parts are asked for in order. */
  spans(text, start, end, span) {
    let at = start;
    const made = [];
    while (at < end && this.index < this.ends.length) {
      const [until, source] = this.ends[this.index];
      if (until > at) {
        made.push(span(text.slice(at, Math.min(until, end)), source));
        at = Math.min(until, end);
      }
      if (until <= end) {
        this.index += 1;
      }
    }
    return at < end ? [...made, text.slice(at, end)] : made;
  }
}

/** Renders one text. */
class Renderer {
  constructor(text, pieces, span, say) {
    this.text = text;
    this.sources = new Sources(pieces);
    this.span = span;
    this.say = say;
    this.at = 0; // how far the text has been rendered
  }

  /** Text of a token, with the sources of its tokens where it stands in the answer as it is. */
  leaf(written) {
    const parts = [];
    // An indented or quoted paragraph has its lines apart in the answer.
    for (const line of written.split(/(?<=\n)/u)) {
      const start = this.text.indexOf(line, this.at);
      if (start < 0) {
        parts.push(line);
        continue;
      }
      this.at = start + line.length;
      parts.push(...this.sources.spans(this.text, start, this.at, this.span));
    }
    return parts;
  }

  blocks(tokens) {
    return tokens.flatMap((token) => this.block(token));
  }

  block(token) {
    switch (token.type) {
      case "space":
      case "def":
        return [];
      case "heading":
        // The page has headings of its own above: h1 to h3.
        return [filled(`h${Math.min(6, token.depth + 3)}`, this.inlines(token.tokens))];
      case "paragraph":
        return [filled("p", this.inlines(token.tokens))];
      case "code":
        return [this.code(token)];
      case "blockquote":
        return [filled("blockquote", this.blocks(token.tokens))];
      case "list":
        return [this.list(token)];
      case "table":
        return [this.table(token)];
      case "hr":
        return [element("hr")];
      case "text":
        return token.tokens ? this.inlines(token.tokens) : this.leaf(token.text);
      default:
        return [filled("p", this.leaf(token.raw))]; // HTML among them
    }
  }

  code(token) {
    const block = element("div", "code");
    const bar = block.appendChild(element("div", "code-bar"));
    bar.append(element("span", "", (token.lang ?? "").split(/\s/u)[0]), copyButton(token.text, this.say));
    const pre = block.appendChild(element("pre"));
    pre.tabIndex = 0; // long lines are scrolled with the keyboard too
    pre.append(filled("code", this.leaf(token.text)));
    return block;
  }

  list(token) {
    const list = element(token.ordered ? "ol" : "ul");
    if (token.ordered && token.start !== 1) {
      list.start = token.start;
    }
    for (const item of token.items) {
      const box = item.task ? [item.checked ? "☑ " : "☐ "] : [];
      const inner = item.tokens.filter((each) => each.type !== "checkbox");
      list.append(filled("li", [...box, ...this.blocks(inner)]));
    }
    return list;
  }

  table(token) {
    const table = element("table");
    const row = (cells, name) =>
      filled("tr", cells.map((cell, i) => {
        const made = filled(name, this.inlines(cell.tokens));
        if (token.align[i]) {
          made.classList.add(`align-${token.align[i]}`);
        }
        return made;
      }));
    table.append(filled("thead", [row(token.header, "th")]), filled("tbody", token.rows.map((cells) => row(cells, "td"))));
    return filled("div", [table], "wide-table");
  }

  inlines(tokens = []) {
    return tokens.flatMap((token) => this.inline(token));
  }

  inline(token) {
    switch (token.type) {
      case "text":
        return token.tokens ? this.inlines(token.tokens) : this.leaf(token.raw);
      case "escape":
        return this.leaf(token.text);
      case "strong":
        return [filled("strong", this.inlines(token.tokens))];
      case "em":
        return [filled("em", this.inlines(token.tokens))];
      case "del":
        return [filled("del", this.inlines(token.tokens))];
      case "codespan":
        return [filled("code", this.leaf(token.text))];
      case "br":
        return [element("br")];
      case "link":
        return link(token.href, this.inlines(token.tokens));
      case "image":
        return link(token.href, this.leaf(token.text || token.href));
      default:
        return this.leaf(token.raw);
    }
  }
}

/** A link that leaves the page alone; only its text if the address is not of the web or mail. */
function link(address, content) {
  const known = /^(?:https?:|mailto:)/iu.test(address);
  if (!known) {
    return content;
  }
  const made = filled("a", content);
  made.href = address;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  made.title = address;
  return [made];
}

function filled(name, content, classes = "") {
  const made = element(name, classes);
  made.append(...content);
  return made;
}

/**
 * The elements of a Markdown text.
 *
 * `pieces`: the text in parts by source; `span(text, source)` makes the element of such a part.
 */
export function markdown(text, pieces, span, say) {
  const renderer = new Renderer(text, pieces, span, say);
  return renderer.blocks(lexer(text));
}
