// Requests to the server, each with the token, which is stored for this tab only.

const KEY = "netvale-token";
const PATIENCE = 8000;

export class Refused extends Error {
  constructor(status, text) {
    super(text.trim());
    this.status = status;
  }
}

// The token is in the address after the #, which browsers send to no server. It is removed from the address, so that
// bookmarks do not contain it.
export function takeToken() {
  const token = fields().get("token");
  if (token) {
    sessionStorage.setItem(KEY, token);
    showPort(linkedPort());
  }
  return sessionStorage.getItem(KEY) !== null;
}

const fields = () => new URLSearchParams(location.hash.slice(1));

// The port named in the page's address, and the address of a port, which can be shared.
export const linkedPort = () => fields().get("port") ?? undefined;
export function showPort(name) {
  const hash = name === undefined ? "" : `#${new URLSearchParams({ port: name })}`;
  history.replaceState(null, "", location.pathname + hash);
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const forgetToken = () => sessionStorage.removeItem(KEY);

function ask(path, parameters, signal) {
  const query = new URLSearchParams(parameters).toString().replaceAll("+", "%20");
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  return fetch(query ? `${path}?${query}` : path, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
}

export async function json(path, parameters = {}) {
  const answer = await ask(path, parameters, AbortSignal.timeout(PATIENCE));
  if (!answer.ok) throw new Refused(answer.status, await answer.text());
  return answer.json();
}

// Downloads a body and returns it; `heard` is called with the number of bytes so far.
export async function download(path, parameters, signal, heard) {
  const answer = await ask(path, parameters, signal);
  if (!answer.ok) throw new Refused(answer.status, await answer.text());
  const [parts, reader] = [[], answer.body.getReader()];
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts, { type: answer.headers.get("Content-Type") });
    parts.push(value);
    bytes += value.length;
    heard(bytes);
  }
}
