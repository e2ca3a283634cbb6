// The views, in the order of the navigation. The file of one is loaded when it is opened for the first time.
import { useEffect, useState } from "./lib.js";

// `path` is the first part of the address, and names the file and the icon.
export const VIEWS = [
  { path: "live", title: "Live", key: "L", needs: "read" },
  { path: "chat", title: "Chat", key: "C", needs: "ask" },
  { path: "duel", title: "Duel", key: "D", needs: "read" },
  { path: "learning", title: "Learning", key: "T", needs: "read" },
  { path: "versions", title: "Versions", key: "V", needs: "read" },
  { path: "raters", title: "Raters", key: "R", needs: "read" },
  { path: "instructions", title: "Instructions", key: "I", needs: "read" },
  { path: "health", title: "Health", key: "H" },
];
export const LOGIN = { path: "login", title: "Sign in" };

const loaded = new Map();

// Returns {View, missing}: a component once it is there, or that burnish didn't send it.
export function useView(path) {
  const [missing, setMissing] = useState(false);
  const [, redraw] = useState(null);
  useEffect(() => {
    if (loaded.has(path)) return;
    import(`./views/${path}.js`).then(
      ({ View }) => {
        loaded.set(path, View);
        redraw(path);
      },
      () => setMissing(true),
    );
  }, [path]);
  return { View: loaded.get(path), missing };
}
