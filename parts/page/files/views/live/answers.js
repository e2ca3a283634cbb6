// The answers that the list holds: a part of the log, newest first. It grows at its end while somebody scrolls, and at its
// start while answers arrive. Rows are slim, because a log may have 100,000 answers of any length.
import { get } from "../../api.js";
import { line, replyText } from "../../parts/text.js";
import { state, update } from "../../store.js";
import { fits, NONE } from "./filters.js";

const PAGE = 50;
const MOST = 1500; // rows; what is beyond them is loaded again when somebody scrolls there

const newestFirst = (one, other) => (one.id < other.id ? 1 : one.id > other.id ? -1 : 0);

function slim(row) {
  const calls = row.reply?.tool_calls ?? [];
  const names = calls.slice(0, 3).map((each) => each.function?.name);
  return {
    id: row.id,
    at: row.created_at,
    prompt: line(row.prompt),
    text: line(replyText(row.reply)) || (names.length ? line(`Calls ${names.join(", ")}`) : ""),
    calls: calls.length > 0,
    rating: row.rating,
    rated: row.rated,
    reward: row.reward,
    unsent: row.best_of != null && row.best_of !== row.id,
    commented: row.feedback.some((each) => each.comment && each.undone_at == null),
    version: row.adapter_version,
    model: row.model_served || row.model_asked,
    agent: row.agent ?? null,
    caller: row.caller,
    choices: row.choice_count,
    failed: row.outcome === "cut" || row.outcome === "failed" || row.status >= 400,
    error: line(row.error),
    usable: row.usable,
    turn: turnOf(row),
  };
}

// Requests with one value are steps of one turn of an agent.
function turnOf(row) {
  return `${row.session ?? row.conversation_id ?? row.id}\n${row.prompt}`.slice(0, 300);
}

// Whether nothing was said of an answer that can be rated.
export const isOpen = ({ rating, commented, arriving, usable }) => rating == null && !commented && !arriving && usable;

class Answers {
  rows = [];
  filters = NONE;
  agents = new Set();
  more = false; // older ones can be loaded
  cut = false; // newer ones were dropped
  loaded = false;
  /** @type {any} */
  error = null;
  /** @type {object | null} */
  #loading = null;
  #taken = new Map(); // id → the row of the store that was taken in last

  // Returns whether the list is that of these filters now.
  async load(filters = this.filters) {
    this.filters = filters;
    this.told();
    const page = await this.#page({});
    if (!page) return false;
    this.rows = [];
    this.cut = false;
    this.loaded = true;
    this.#add(page);
    this.#taken.clear(); // what came while the page was loaded
    this.sync();
    return true;
  }

  async loadMore() {
    if (!this.more || this.#loading) return;
    const page = await this.#page({ before: this.rows.at(-1)?.id });
    if (!page) return;
    this.#add(page);
    if (this.rows.length > MOST) {
      this.rows = this.rows.slice(-MOST);
      this.cut = true;
    }
  }

  // Takes in what the store was told since the last time. `atTop`: the newest rows are on the screen.
  sync(atTop = false) {
    if (!this.loaded) return;
    const oldest = this.more ? this.rows.at(-1)?.id : "";
    const newest = this.cut ? this.rows[0]?.id : null;
    let moved = false;
    for (const [id, row] of state.answers) {
      if (this.#taken.get(id) === row || id < oldest || (newest && id > newest)) continue;
      this.#taken.set(id, row);
      const known = slim(row);
      if (known.agent) this.agents.add(known.agent);
      const said = () => `${row.prompt}\n${replyText(row.reply)}`;
      moved = this.#put(known, fits(this.filters, known, said)) || moved;
    }
    for (const id of this.#taken.keys()) if (!state.answers.has(id)) this.#taken.delete(id);
    if (moved) this.rows.sort(newestFirst);
    if (atTop && this.rows.length > MOST) {
      this.rows.length = MOST;
      this.more = true;
    }
  }

  // Shows a rating or a comment before burnish has stored it. A rating is also for the other steps of a turn.
  mark(id, change) {
    const { turn } = "rating" in change ? (this.find(id) ?? {}) : {};
    this.rows = this.rows.map((row) => (row.id === id || (turn && row.turn === turn && row.calls) ? { ...row, ...change } : row));
    this.told();
  }

  // Has the view drawn again.
  told() {
    update(({ liveChanged }) => ({ liveChanged: liveChanged + 1 }));
  }

  find(id) {
    return this.rows.find((row) => row.id === id);
  }

  // Answers under way and stored ones, newest first; an agent's earlier steps are part of the row of its latest one.
  items() {
    const underway = this.cut
      ? []
      : [...state.underway.values()].map(arriving).filter(({ row, text }) => fits(this.filters, row, () => `${row.prompt}\n${text}`));
    const rows = [...underway.map(({ row }) => row), ...this.rows].sort(newestFirst);
    const items = [];
    const turns = new Map();
    for (const row of rows) {
      const latest = turns.get(row.turn);
      if (latest && row.calls) latest.steps.push(row.id);
      else {
        const item = { ...row, steps: [] };
        items.push(item);
        turns.set(row.turn, item);
      }
    }
    return items;
  }

  // Returns the ID of the answer to rate after this one: an older one, else a newer one. Null: something is said of all.
  async nextUnrated(from) {
    const open = this.items().filter((each) => isOpen(each) && each.id !== from && !each.steps.includes(from));
    const near = open.find(({ id }) => id < from) ?? open.at(-1);
    if (near || !this.more) return near?.id ?? null;
    const { data } = await get("/burnish/completions", { ...this.filters, rating: "unrated", before: this.rows.at(-1)?.id, limit: PAGE });
    return data.map(slim).find(isOpen)?.id ?? null;
  }

  async #page(more) {
    const mine = {};
    this.#loading = mine;
    try {
      const page = await get("/burnish/completions", { ...this.filters, ...more, limit: PAGE });
      if (this.#loading !== mine) return null; // other filters were chosen meanwhile
      this.error = null;
      return page;
    } catch (error) {
      if (this.#loading === mine) this.error = error;
      return null;
    } finally {
      if (this.#loading === mine) this.#loading = null;
      this.told();
    }
  }

  #add({ data, has_more }) {
    const known = new Set(this.rows.map(({ id }) => id));
    const added = data.filter(({ id }) => !known.has(id)).map(slim);
    for (const { agent } of added) if (agent) this.agents.add(agent);
    this.rows = [...this.rows, ...added].sort(newestFirst);
    this.more = has_more;
  }

  // Returns whether the rows have to be sorted again.
  #put(row, fit) {
    const at = this.rows.findIndex(({ id }) => id === row.id);
    if (at >= 0) {
      if (fit) this.rows[at] = row;
      else this.rows.splice(at, 1);
      return false;
    }
    if (fit) this.rows.push(row);
    return fit;
  }
}

function arriving(answer) {
  const row = {
    id: answer.id,
    at: answer.created_at,
    prompt: line(answer.prompt),
    text: line(answer.text.slice(-200)) || (answer.tools.length ? line(`Calls ${answer.tools.slice(-3).join(", ")}`) : ""),
    calls: false,
    rating: null,
    version: answer.version,
    model: answer.model_asked,
    agent: answer.agent ?? null,
    caller: answer.caller,
    failed: false,
    arriving: true,
    turn: answer.session ? turnOf(answer) : answer.id,
  };
  return { row, text: answer.text };
}

export const answers = new Answers();
