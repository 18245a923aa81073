// Tables of ports, workers and drops, and the figures at the top.

import { el, pressable, put, say, swap } from "./dom.js";
import { chart } from "./charts.js";
import { count, kind, percent, plural, si, visible } from "./format.js";

const TILES = [
  ["in", "into switches", "pps", ["in"]],
  ["out", "out of switches", "pps", ["out"]],
  ["bits", "into switches", "bit/s", ["in"]],
  ["drops", "dropped", "frames/s", ["drop"]],
  ["busy", "busiest worker", "", ["busy"]],
];

export class Summary {
  constructor(place) {
    this.tiles = TILES.map(([key, what, unit, classes]) => {
      const drawn = chart(classes, `${what}, lately`);
      const value = el("strong");
      place.append(el("div", { class: "tile", "data-tile": key }, el("span", { class: "what" }, what), el("span", { class: "value" }, value, " ", el("small", {}, unit)), drawn.shape));
      return { key, value, drawn };
    });
  }

  update(rates) {
    for (const { key, value, drawn } of this.tiles) {
      say(value, key === "busy" ? percent(rates.total[key]) : si(rates.total[key]));
      value.parentElement.classList.toggle("bad", key === "drops" && rates.total[key] > 0);
      drawn.update(rates.history(`total ${key}`), key === "busy" ? 1 : 1);
    }
  }
}

// A column: head, class, sort key, and text.
const COLUMNS = [
  ["Port", "text", (row) => row.name, (row) => visible(row.info ? `${row.name} (${row.info})` : row.name)],
  ["Kind", "text some", (row) => row.kind, (row) => kind(row)],
  ["State", "text some", (row) => row.state, (row) => visible(row.state)],
  ["In pps", "", (row) => row.rate?.in.pps ?? 0, (row) => (row.rate ? si(row.rate.in.pps) : "–")],
  ["In bit/s", "some", (row) => row.rate?.in.bps ?? 0, (row) => (row.rate ? si(row.rate.in.bps) : "–")],
  ["Out pps", "", (row) => row.rate?.out.pps ?? 0, (row) => (row.rate ? si(row.rate.out.pps) : "–")],
  ["Out bit/s", "some", (row) => row.rate?.out.bps ?? 0, (row) => (row.rate ? si(row.rate.out.bps) : "–")],
  ["Drops/s", "", (row) => row.rate?.drops ?? 0, (row) => (row.rate ? si(row.rate.drops) : "–")],
  ["Batch", "some", (row) => row.rate?.in.batch ?? 0, (row) => (row.rate?.in.batch ? row.rate.in.batch.toFixed(1) : "–")],
];
const TITLES = { Batch: "Frames that the switch takes at a time" };

export class PortTable {
  #body = el("tbody");
  #rows = new Map();
  #heads;
  #select;

  constructor(place, filter, select) {
    this.#select = select;
    this.sort = { column: 0, down: false };
    this.filter = "";
    filter.addEventListener("input", () => {
      this.filter = filter.value.trim().toLowerCase();
      this.redraw?.();
    });
    this.#heads = COLUMNS.map(([head, style], column) => {
      const button = el("button", { type: "button", title: TITLES[head], onclick: () => this.#by(column) }, head);
      return el("th", { class: style, scope: "col" }, button);
    });
    this.more = el("p", { class: "dim", hidden: true });
    place.append(el("div", { class: "scroll" }, el("table", { class: "ports" }, el("thead", {}, el("tr", {}, this.#heads)), this.#body)), this.more);
  }

  #by(column) {
    const isText = COLUMNS[column][1].startsWith("text");
    this.sort = { column, down: this.sort.column === column ? !this.sort.down : !isText };
    this.redraw?.();
  }

  update(ports, rates, selected) {
    this.redraw = () => this.update(ports, rates, selected);
    const rows = ports.map((port) => ({ ...port, rate: rates.ports.get(port.name) }));
    const has = (row) => [row.name, row.info, kind(row), row.state].some((text) => String(text).toLowerCase().includes(this.filter));
    const key = COLUMNS[this.sort.column][2];
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      const by = typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return (this.sort.down ? -by : by) || a.name.localeCompare(b.name, "en", { numeric: true });
    };
    const found = rows.filter(has).sort(order);
    // At most a thousand rows are shown, which can be drawn twice a second.
    const shown = found.slice(0, 1000).map((row) => this.#row(row, selected));
    if (shown.length !== this.#body.children.length || shown.some((row, at) => this.#body.children[at] !== row)) swap(this.#body, shown);
    say(this.more, found.length > shown.length ? `and ${count(found.length - shown.length)} more: filter by name` : found.length === 0 ? "none" : "");
    this.more.hidden = this.more.textContent === "";
    const names = new Set(ports.map((port) => port.name));
    for (const name of this.#rows.keys()) if (!names.has(name)) this.#rows.delete(name);
    this.#heads.forEach((head, column) => put(head, "aria-sort", column === this.sort.column ? (this.sort.down ? "descending" : "ascending") : "none"));
  }

  #row(row, selected) {
    let known = this.#rows.get(row.name);
    if (!known) {
      const cells = COLUMNS.map(([, style], at) => el(at === 0 ? "th" : "td", { class: style, scope: at === 0 ? "row" : undefined }));
      const line = el("tr", { "data-port": row.name }, cells);
      pressable(line, () => this.#select(row.name));
      known = { line, cells };
      this.#rows.set(row.name, known);
    }
    COLUMNS.forEach(([, , , text], at) => say(known.cells[at], text(row)));
    known.line.classList.toggle("selected", row.name === selected);
    known.line.classList.toggle("idle", !row.rate || row.rate.in.pps + row.rate.out.pps === 0);
    known.cells[7].classList.toggle("bad", (row.rate?.drops ?? 0) > 0);
    return known.line;
  }
}

const PARTS = ["busy", "lost", "polled", "waited", "slept"];

export class WorkerList {
  #rows = [];

  constructor(place) {
    this.place = place;
  }

  update(workers, rates) {
    if (this.#rows.length !== workers.length) {
      this.#rows = workers.map(() => {
        const [name, value, notes] = [el("span"), el("span"), el("span", { class: "dim" })];
        const parts = PARTS.map((part) => el("i", { class: part }));
        const row = el("div", { class: "worker" }, el("div", {}, name, " ", notes, value), el("div", { class: "load" }, parts));
        return { row, name, value, notes, parts };
      });
      swap(this.place, this.#rows.map(({ row }) => row));
    }
    workers.forEach((worker, at) => {
      const [row, share] = [this.#rows[at], rates.workers[at]];
      if (!share) return;
      say(row.name, `worker ${worker.index}`);
      const where = worker.cpu === undefined ? "" : `CPU ${worker.cpu}, `;
      say(row.notes, where + plural(worker.ingresses, "queue") + (worker.stalls > 0 ? `, held up ${plural(worker.stalls, "time")}` : ""));
      say(row.value, percent(share.all));
      PARTS.forEach((part, which) => {
        row.parts[which].style.width = `${(100 * share[part]).toFixed(2)}%`;
        put(row.parts[which], "title", `${part}: ${percent(share[part])}`);
      });
    });
  }
}

// Drop reasons over all ports, those in progress first, each with the port that has most of the drops.
export function drawDrops(place, ports, rates, select) {
  const reasons = new Map();
  for (const port of ports) {
    for (const { reason, direction, frames, rate } of rates.ports.get(port.name)?.reasons ?? []) {
      const known = reasons.get(`${direction} ${reason}`) ?? { reason, direction, frames: 0, rate: 0, most: undefined };
      known.frames += frames;
      known.rate += rate;
      const weight = rate * 1e6 + frames;
      if (!known.most || weight > known.most.weight) known.most = { name: port.name, weight };
      reasons.set(`${direction} ${reason}`, known);
    }
  }
  const rows = [...reasons.values()].sort((a, b) => b.rate - a.rate || b.frames - a.frames);
  if (rows.length === 0) return swap(place, el("p", { class: "dim" }, "No frame was dropped."));
  const row = ({ reason, direction, frames, rate, most }) =>
    el("tr", { "data-reason": reason }, el("th", { class: "text", scope: "row" }, visible(reason), " ", el("small", { class: "dim" }, direction)),
      el("td", { class: rate > 0 ? "bad" : "dim" }, si(rate)), el("td", { title: count(frames) }, si(frames)),
      el("td", { class: "text" }, el("button", { type: "button", class: "link", onclick: () => select(most.name) }, visible(most.name))));
  const head = ["Reason", "Per s", "All", "Most at"].map((text, at) => el("th", { scope: "col", class: at % 3 === 0 ? "text" : "" }, text));
  swap(place, el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows.map(row)))));
}
