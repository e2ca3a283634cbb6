// The event stream: what each event does to the store, and what happens when burnish goes away.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { replies, settled, streams, timers } from "./browser.mjs";

const { connect, disconnect } = await import("../../../parts/page/files/events.js");
const { state } = await import("../../../parts/page/files/store.js");

const row = (id, more = {}) => ({ id, caller: "anna", prompt: "Hello", ...more });
let stream;

beforeEach(() => {
  disconnect();
  state.answers.clear();
  state.underway.clear();
  Object.assign(state, { whoami: null, locked: false, connection: "connecting" });
  timers.length = 0;
  replies.clear();
  replies.set("/burnish/status", { counts: {} });
  connect();
  stream = streams.at(-1);
});

test("an answer grows piece by piece, and is replaced by its row when it has ended", () => {
  stream.send("began", row("c1", { model_asked: "m" }));
  stream.send("text", { answers: { c1: { add: "Good " }, c2: { add: "of an answer that the page never saw begin" } } });
  stream.send("text", { answers: { c1: { add: "morning", tools: ["search"] } } });
  assert.deepEqual(state.underway.get("c1"), row("c1", { model_asked: "m", text: "Good morning", tools: ["search"], thinks: undefined }));
  assert.equal(state.underway.size, 1);
  stream.send("answer", row("c1", { rating: "good" }));
  assert.equal(state.underway.size, 0);
  assert.equal(state.answers.get("c1").rating, "good");
});

test("the store keeps the 500 latest answers, and a row that changes counts as the latest", () => {
  for (let number = 0; number < 500; number++) stream.send("answer", row(`c${number}`));
  stream.send("answer", row("c0", { rating: "bad" }));
  stream.send("answer", row("new"));
  assert.equal(state.answers.size, 500);
  assert.deepEqual([state.answers.has("c0"), state.answers.has("c1"), state.answers.has("new")], [true, false, true]);
});

test("what is erased leaves the page, by its ID or with its user", () => {
  stream.send("answer", row("c1"));
  stream.send("answer", row("c2", { caller: "bert" }));
  stream.send("began", row("c3", { caller: "bert" }));
  stream.send("erased", { user: "bert" });
  assert.deepEqual([[...state.answers.keys()], state.underway.size], [["c1"], 0]);
  stream.send("erased", { ids: ["c1"] });
  assert.equal(state.answers.size, 0);
});

test("a stream that could not be resumed has every list loaded again", async () => {
  stream.send("began", row("c1"));
  const before = { lists: state.listsStale, versions: state.versionsChanged };
  stream.send("hello", { now: Date.now() / 1000, resumed: true });
  assert.equal(state.underway.size, 1);
  assert.equal(state.listsStale, before.lists);
  stream.send("hello", { now: Date.now() / 1000 + 60, resumed: false });
  await settled();
  assert.equal(state.underway.size, 0);
  assert.deepEqual([state.listsStale, state.versionsChanged], [before.lists + 1, before.versions + 1]);
  assert.ok(Math.abs(state.clockAhead - 60_000) < 1000);
});

test("the browser tries again by itself; a stream that ended for good is opened anew, with longer and longer pauses", async () => {
  stream.onopen();
  assert.equal(state.connection, "open");
  stream.fail({ forGood: false });
  assert.deepEqual([state.connection, timers.length], ["lost", 0]);
  const pauses = [];
  for (let time = 0; time < 6; time++) {
    streams.at(-1).fail({ forGood: true });
    const { run, delay } = timers.pop();
    pauses.push(delay);
    await run();
  }
  assert.deepEqual(pauses, [500, 1000, 2000, 4000, 8000, 8000]);
  streams.at(-1).onopen();
  streams.at(-1).fail({ forGood: true });
  assert.equal(timers.pop().delay, 500, "it worked meanwhile");
});

test("a page that must sign in opens no stream", async () => {
  replies.set("/burnish/status", 401);
  const opened = streams.length;
  stream.fail({ forGood: true });
  await timers.pop().run();
  assert.deepEqual([state.locked, streams.length], [true, opened]);
});

test("who may not read gets counts instead of events", async () => {
  disconnect();
  const opened = streams.length;
  Object.assign(state, { whoami: { may: ["watch"] } });
  connect();
  await settled();
  assert.deepEqual([state.connection, streams.length], ["open", opened]);
  replies.clear();
  await timers.pop().run();
  assert.equal(state.connection, "lost");
});
