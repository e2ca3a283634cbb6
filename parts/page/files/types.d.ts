// What burnish sends to the page, as far as the page reads it, and what the page keeps. Other members are `any`.

export interface Whoami {
  may: string[];
  keys: string;
  key: string | null;
  caller: string;
  signed_in_until: number | null;
  [member: string]: any;
}

/** As GET /burnish/status. */
export interface Status {
  live: { version: number | null; name: string | null; served_by: any[]; resident: any[]; [member: string]: any };
  engine: { trouble: string | null; obstacle: string | null; [member: string]: any };
  log: { healthy: boolean; trouble: string | null; waiting: number; size_bytes: number; free_bytes: number; [member: string]: any };
  counts: Record<string, any>;
  learner: any;
  rollouts: { ready: Record<string, number>; [member: string]: any };
  [member: string]: any;
}

/** A row of GET /burnish/completions. */
export interface Row {
  id: string;
  caller: string;
  prompt: string;
  reply: any;
  feedback: any[];
  [member: string]: any;
}

/** An answer that is still being written. */
export interface Underway {
  id: string;
  caller: string;
  text: string;
  tools: string[];
  [member: string]: any;
}

export interface Action {
  label: string;
  run: () => unknown;
  keys?: string;
}

export interface Toast {
  id: number;
  text: string;
  tone: string;
  action?: Action | null | false;
  close: () => void;
}

export interface State {
  /** "lost" while the page tries again. */
  connection: "connecting" | "open" | "lost";
  /** burnish wants a key, so the login is shown. */
  locked: boolean;
  /** There was a sign-in, and it has ended. */
  signedOut: boolean;
  whoami: Whoami | null;
  status: Status | null;
  /** Milliseconds by which burnish's clock is ahead of the browser's. */
  clockAhead: number;
  /** By ID; rows are replaced, never changed. */
  answers: Map<string, Row>;
  underway: Map<string, Underway>;
  /** Counts changes of the two maps above. */
  answersChanged: number;
  /** Counts changes of the list of Live. */
  liveChanged: number;
  /** Counts moments after which lists must be loaded again. */
  listsStale: number;
  /** By ID, as GET /burnish/runs/{id}. */
  runs: Map<string, any>;
  /** Counts changes of the list of versions. */
  versionsChanged: number;
  toasts: Toast[];
  /** The conversation of the view Chat, which sets it. */
  chat?: any;
}
