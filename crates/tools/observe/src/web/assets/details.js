// The details of one port.

import { CaptureForm } from "./capture.js";
import { chart } from "./charts.js";
import { el, say, swap } from "./dom.js";
import { count, kind, memory, si, visible } from "./format.js";
import { drawLatency } from "./histogram.js";
import { ringLegend, Rings } from "./rings.js";

function about(port) {
  const facts = [kind(port), visible(port.state)];
  if (port.owner) facts.push(`made by uid ${port.owner.uid} pid ${port.owner.pid}`);
  if (port.region) facts.push(`region ${port.region.id}: ${memory(port.region.bytes)}${port.region.huge ? " in huge pages" : ""}, ${count(port.region.bufs)} buffers`);
  if (port.vnet_hdr > 0) facts.push(`virtio-net header of ${port.vnet_hdr} bytes`);
  if (port.lossless) facts.push("lossless");
  return facts.join(" · ");
}

function policies(port) {
  const named = Object.entries(port.policies ?? {}).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return named.length > 0 ? `policies: ${visible(named.join(", "))}` : "";
}

export class Details {
  #place;
  #known;

  constructor(place) {
    this.#place = place;
  }

  open(name, close, isCapturable) {
    const drawn = chart(["in", "out"], "frames per second, recently");
    const parts = { about: el("p", { class: "about" }), policies: el("p", { class: "about" }), most: el("span", { class: "dim" }), in: el("strong"), out: el("strong"), notes: el("ul", { class: "notes" }), drops: el("div"), latency: el("div"), rules: el("div"), rings: el("div", { class: "rings" }) };
    const shown = new Rings(parts.rings);
    swap(this.#place,
      el("div", { class: "title" }, el("h2", {}, visible(name)), el("button", { type: "button", onclick: close, "aria-label": "Close" }, "Close")),
      parts.about, parts.policies, parts.notes,
      el("div", { class: "halves" },
        el("div", {}, el("h3", {}, "Frames per second"), el("p", { class: "now" }, el("span", { class: "in-text" }, "in "), parts.in, el("span", { class: "out-text" }, " out "), parts.out, " ", parts.most), drawn.shape, parts.drops, parts.latency, parts.rules),
        isCapturable ? new CaptureForm(name).form : null),
      el("h3", {}, "Rings"), ringLegend(), parts.rings);
    this.#place.hidden = false;
    this.#known = { name, drawn, parts, rings: shown };
  }

  close() {
    this.#place.hidden = true;
    this.#known = undefined;
    swap(this.#place);
  }

  // The counters of all ports are read less often than the rings of this port.
  rates(rates) {
    if (!this.#known) return;
    const { name, drawn, parts } = this.#known;
    const rate = rates.ports.get(name);
    say(parts.in, rate ? si(rate.in.pps) : "–");
    say(parts.out, rate ? si(rate.out.pps) : "–");
    const most = drawn.update(rates.history(`port ${name}`), 1);
    say(parts.most, `(chart up to ${si(most)})`);
    this.#drops(rate?.reasons ?? [], rate?.idle);
    drawLatency(parts.latency, rates.latency(name));
  }

  #drops(reasons, idle) {
    const row = ({ reason, direction, frames, rate }) =>
      el("tr", { "data-reason": reason }, el("th", { class: "text", scope: "row" }, visible(reason), " ", el("small", { class: "dim" }, direction)), el("td", { class: rate > 0 ? "bad" : "dim" }, `${si(rate)}/s`), el("td", {}, count(frames)));
    const drops = reasons.length > 0 ? [el("h3", {}, "Drops"), el("table", {}, el("tbody", {}, reasons.map(row)))] : [];
    const apart = idle?.frames > 0 ? [el("p", { class: "dim idle" }, `${count(idle.frames)} frames arrived while there was no receiver (${si(idle.rate)}/s): these are not drops`)] : [];
    swap(this.#known.parts.drops, [...drops, ...apart]);
  }

  port(port, rates) {
    if (!this.#known || port.name !== this.#known.name) return;
    const { parts, rings } = this.#known;
    say(parts.about, about(port));
    say(parts.policies, policies(port));
    const notes = (port.notes ?? []).map(visible);
    if (notes.join("\n") !== [...parts.notes.children].map((note) => note.textContent).join("\n")) swap(parts.notes, notes.map((note) => el("li", {}, note)));
    this.#rules(port.rules ?? []);
    rings.update(port.rings ?? [], rates.ports.get(port.name));
  }

  #rules(rules) {
    const row = (rule) => el("tr", {}, el("th", { class: "text", scope: "row" }, visible(rule.expression)), el("td", { class: "text" }, `${rule.dir} ${rule.drops ? "drop" : "pass"}`), el("td", {}, count(rule.frames)));
    swap(this.#known.parts.rules, rules.length > 0 ? [el("h3", {}, "Filters"), el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, rules.map(row))))] : []);
  }

  // The port no longer exists, or its details cannot be read.
  fail(text) {
    if (this.#known) say(this.#known.parts.about, visible(text));
  }
}
