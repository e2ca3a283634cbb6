// The address after `#` says what is shown: #/live, #/live/<completion id>, #/versions/3.
import { useEffect, useState } from "./lib.js";

// Returns {view, rest}: the first part of the address, and a list of the others.
export function read() {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  return { view, rest };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

export function address(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

// `replace`: the way back leads past this address, e.g. while moving through a list.
export function go(parts, { replace = false } = {}) {
  const target = address(...[].concat(parts));
  if (replace) {
    history.replaceState(null, "", target);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = target;
  }
}

export function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
