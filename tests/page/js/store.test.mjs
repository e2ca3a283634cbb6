// Changes of the store reach the views once a frame.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { frame, frames, timers } from "./browser.mjs";

const { state, update } = await import("../../../parts/page/files/store.js");

beforeEach(() => {
  frames.length = 0;
  timers.length = 0;
  document.hidden = false;
});

test("changes within one frame are told together", () => {
  update({ locked: true });
  update({ connection: "open" });
  assert.deepEqual([state.locked, state.connection, frames.length], [true, "open", 1]);
  frame();
  update({ locked: false });
  assert.equal(frames.length, 1);
  frame();
});

test("a change may depend on the state before", () => {
  const before = state.listsStale;
  update(({ listsStale }) => ({ listsStale: listsStale + 1 }));
  update(({ listsStale }) => ({ listsStale: listsStale + 1 }));
  assert.equal(state.listsStale, before + 2);
  frame();
});

test("a hidden tab, which draws no frames, is told by a timer", () => {
  document.hidden = true;
  update({ locked: true });
  assert.deepEqual([frames.length, timers.length], [0, 1]);
  timers[0].run();
  document.hidden = false;
  update({ locked: false });
  assert.equal(frames.length, 1, "it waits for the next frame again");
  frame();
});
