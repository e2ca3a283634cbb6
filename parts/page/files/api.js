// Requests to burnish's own routes.
import { credentials, keep, signed } from "./session.js";
import { update } from "./store.js";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.name = "ApiError";
    this.status = status; // 0: burnish didn't answer
    this.code = code;
  }
}

// Members of `params` that are null, undefined or "" are left out.
export function get(path, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(given).toString();
  return ask(query ? `${path}?${query}` : path, { method: "GET", headers: signed() });
}

/**
 * With headers of its own a request goes out without the sign-in.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {RequestInit} [options] those of fetch
 */
export function send(method, path, body, { headers = signed(), ...options } = {}) {
  const content = body === undefined ? {} : { body: JSON.stringify(body) };
  return ask(path, { method, headers: { "content-type": "application/json", ...headers }, ...content, ...options });
}

async function ask(path, options) {
  const response = await answered(path, options);
  return response.json().catch(() => null);
}

// Returns the response if it isn't an error. `options` are those of fetch; an aborted request throws AbortError.
export async function answered(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: credentials(), ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "burnish doesn't answer. Is it still running?");
  }
  if (response.ok) return response;
  const content = await response.json().catch(() => null);
  const error = content?.error ?? {};
  if (response.status === 401) refused(error.code);
  throw new ApiError(response.status, error.code ?? "unknown", error.message ?? `burnish answered with status ${response.status}`);
}

function refused(code) {
  if (code === "wrong_key") return; // the login says so
  if (code === "signed_out") {
    keep(null);
    update({ signedOut: true });
  }
  update({ locked: true });
}
