// The conversation of this tab. It outlives a reload, and is gone when the tab is closed.

const NAME = "selfspec-conversation";

/** The fields whose values are kept, by id. */
export const FIELDS = ["temperature", "max-tokens", "seed", "system"];

export const store = {
  /** What was stored; undefined if there is nothing, or nothing that can be read. */
  get() {
    try {
      return JSON.parse(sessionStorage.getItem(NAME)) ?? undefined;
    } catch {
      return undefined;
    }
  },

  /** Stores a value. A conversation that is too long for the browser is not kept. */
  put(value) {
    try {
      sessionStorage.setItem(NAME, JSON.stringify(value));
    } catch {
      sessionStorage.removeItem(NAME);
    }
  },
};
