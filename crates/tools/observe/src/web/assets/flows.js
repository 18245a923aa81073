// The open flows of gateways: a table for each gateway.

import { el, swap } from "./dom.js";
import { count, memory, plural, visible } from "./format.js";

// The most rows of a gateway, as on the server.
const MOST = 200;

// A column: head, class, and text.
const COLUMNS = [
  ["Protocol", "text", (flow) => visible(flow.transport ?? "")],
  ["Guest", "text", (flow) => visible(flow.guest ?? "")],
  ["", "text", (flow) => (flow.direction === "in" ? "←" : "→")],
  ["Remote", "text", (flow) => visible(flow.remote ?? "")],
  ["Name", "text", (flow) => visible(flow.name ?? "–")],
  ["Sent", "", (flow) => memory(Number(flow.sent) || 0)],
  ["Received", "", (flow) => memory(Number(flow.received) || 0)],
  ["Age s", "", (flow) => count(Math.floor(Number(flow.seconds) || 0))],
];

export function drawFlows(card, place, gateways) {
  card.hidden = gateways.length === 0;
  swap(place, gateways.map(drawn));
}

// What cannot be drawn keeps no other gateway from being shown.
function drawn(one) {
  try {
    return gateway(one);
  } catch {
    return el("p", { class: "bad" }, `The flows of ${visible(one?.port ?? "a gateway")} cannot be shown.`);
  }
}

function gateway({ port, flows, more }) {
  const name = el("h3", {}, visible(port));
  if (!Array.isArray(flows)) return el("div", { "data-gateway": port }, name, el("p", { class: "bad" }, "The gateway does not answer."));
  if (flows.length === 0) return el("div", { "data-gateway": port }, name, el("p", { class: "dim" }, "No flow is open."));
  const head = COLUMNS.map(([text, style]) => el("th", { scope: "col", class: style }, text));
  const rows = flows.slice(0, MOST).map((flow) => el("tr", {}, COLUMNS.map(([, style, text]) => el("td", { class: style }, text(flow)))));
  const others = more > 0 ? el("p", { class: "dim" }, `and ${plural(more, "other flow")}`) : undefined;
  const table = el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
  return el("div", { "data-gateway": port }, name, el("div", { class: "scroll" }, table), others);
}
