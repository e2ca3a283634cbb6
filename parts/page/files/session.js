// The page's sign-in. A cookie, which scripts can't read, goes along by itself. It counts only with the proof, which is
// kept here: servers on other ports of this host get the cookie, but not what this origin stores.
const NAME = "burnish.proof";

let unstored = null; // the browser refuses to store anything

function proof() {
  try {
    return localStorage.getItem(NAME) ?? unstored;
  } catch {
    return unstored;
  }
}

export function keep(given) {
  unstored = given;
  try {
    if (given) localStorage.setItem(NAME, given);
    else localStorage.removeItem(NAME);
  } catch {
    // It holds until the page is closed.
  }
}

/**
 * Headers for every request to burnish.
 * @returns {Record<string, string>}
 */
export function signed() {
  const given = proof();
  return given ? { "x-burnish-page": given } : {};
}

// Cookies of other servers on this host must not reach whatever answers a request, so none goes along without a sign-in.
export function credentials() {
  return proof() ? "same-origin" : "omit";
}

// The address for an EventSource, which can't send headers.
export function withProof(path) {
  const given = proof();
  return given ? `${path}?proof=${encodeURIComponent(given)}` : path;
}

// Calls `run` when another tab signs in or out.
export function onOtherTab(run) {
  addEventListener("storage", ({ key }) => (key === NAME || key === null) && run());
}
