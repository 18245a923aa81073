// Draws latency as a histogram, with a bar for each bucket.

import { el, swap } from "./dom.js";
import { count, percent } from "./format.js";

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

function time(ns) {
  const [size, unit] = UNITS.find(([size]) => ns >= size) ?? UNITS.at(-1);
  return `${Number((ns / size).toPrecision(3))} ${unit}`;
}

// Returns the smallest bound that at least this share of the frames does not exceed.
function within(parts, frames, share) {
  let seen = 0;
  const part = parts.find((one) => (seen += one.frames) >= share * frames);
  return part?.up_to_ns ? `${percent(share)} within ${time(part.up_to_ns)}` : `fewer than ${percent(share)} within 1 s`;
}

function summary({ frames, sum_ns, parts }) {
  const shares = [0.5, 0.99].map((share) => within(parts, frames, share));
  return `${count(frames)} frames timed recently: ${shares.join(", ")}; ${time(sum_ns / frames)} on average`;
}

function row({ up_to_ns, frames }, all) {
  const bar = el("i", { class: "share" });
  bar.style.width = `${(100 * frames) / all}%`;
  const label = up_to_ns ? `≤ ${time(up_to_ns)}` : "> 1 s";
  return el("tr", { "data-up-to": up_to_ns ?? "" }, el("th", { scope: "row" }, label), el("td", { class: "shares" }, bar), el("td", {}, percent(frames / all)));
}

// Draws the latency of recently timed frames; nothing if no frame was ever timed.
export function drawLatency(place, latency) {
  if (!latency) return swap(place);
  const title = el("h3", {}, "How long frames take");
  if (latency.frames === 0) return swap(place, title, el("p", { class: "dim" }, "No frame was timed recently."));
  swap(place, title, el("p", { class: "about" }, summary(latency)),
    el("table", { class: "histogram" }, el("tbody", {}, latency.parts.map((part) => row(part, latency.frames)))));
}
