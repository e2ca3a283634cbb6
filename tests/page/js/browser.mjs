// The parts of a browser that the store and the event stream use, in node.
export const frames = [];
export const timers = [];
export const streams = [];
export const replies = new Map(); // path → the content that burnish answers with; a number is an error's status

class Stream extends EventTarget {
  static CLOSED = 2;
  readyState = 1;

  constructor(path) {
    super();
    this.path = path;
    streams.push(this);
  }

  close() {
    this.readyState = Stream.CLOSED;
  }

  send(name, content) {
    this.dispatchEvent(Object.assign(new Event(name), { data: JSON.stringify(content) }));
  }

  fail({ forGood }) {
    this.readyState = forGood ? Stream.CLOSED : 0;
    this.onerror();
  }
}

async function reply(path) {
  const content = replies.get(path);
  if (content === undefined) throw new TypeError("fetch failed");
  return typeof content === "number" ? Response.json({ error: { message: "no" } }, { status: content }) : Response.json(content);
}

Object.assign(globalThis, {
  document: { hidden: false },
  requestAnimationFrame: (draw) => frames.push(draw),
  setTimeout: (run, delay) => timers.push({ run, delay }),
  clearTimeout: () => {},
  addEventListener: () => {},
  EventSource: Stream,
  fetch: reply,
  localStorage: { getItem: () => null, setItem: () => {}, removeItem: () => {} },
});

export function frame() {
  for (const draw of frames.splice(0)) draw();
}

// Until everything is done that only waits for promises.
export const settled = () => new Promise((done) => setImmediate(done));
