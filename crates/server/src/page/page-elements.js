// Small elements that the page's parts share.

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
export function copyButton(text, say) {
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
