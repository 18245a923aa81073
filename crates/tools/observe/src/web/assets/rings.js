// Draws a port's rings as circles: slot 0 is at the top, and indices grow clockwise.

import { el, put, say, svg, swap } from "./dom.js";
import { count, si } from "./format.js";

const RADIUS = 74;
const TAU = 2 * Math.PI;
// Maximum number of slots with a mark each; more could not be distinguished.
const MOST_MARKS = 128;

function point(turn, radius) {
  return `${(radius * Math.sin(turn * TAU)).toFixed(2)} ${(-radius * Math.cos(turn * TAU)).toFixed(2)}`;
}

// An arc from one index to another, clockwise; none if they are equal, because no one ever owns a whole ring.
function arc(from, to, slots) {
  const length = (to - from + slots) % slots;
  if (length === 0) return "";
  const [a, b] = [from / slots, (from + length) / slots];
  return `M${point(a, RADIUS)}A${RADIUS} ${RADIUS} 0 ${length / slots > 0.5 ? 1 : 0} 1 ${point(b, RADIUS)}`;
}

// Head is inside the ring, tail outside, cur on it, so that all are visible at the same slot.
const HANDS = [
  ["head", "M0 -64L-6 -51H6Z"],
  ["cur", "M0 -79.5L5.5 -74L0 -68.5L-5.5 -74Z"],
  ["tail", "M0 -84L-6 -97H6Z"],
];

// A hand always moves clockwise, also past the top.
class Hand {
  #turns = 0;
  #at;

  constructor(name, shape) {
    this.shape = svg("g", { class: `hand ${name}` }, svg("path", { d: shape }));
  }

  to(index, slots) {
    const at = index / slots;
    if (this.#at !== undefined && at < this.#at) this.#turns += 1;
    this.#at = at;
    this.shape.style.transform = `rotate(${(360 * (this.#turns + at)).toFixed(2)}deg)`;
  }
}

function marks(slots) {
  const number = slots <= MOST_MARKS ? slots : 64;
  let path = "";
  for (let at = 0; at < number; at += 1) path += `M${point(at / number, RADIUS - 8)}L${point(at / number, RADIUS + 8)}`;
  return svg("path", { d: path, class: "marks" });
}

function drawing(ring) {
  const [own, given, waiting] = ["own", "given", "waiting"].map((name) => svg("path", { class: `arc ${name}` }));
  const hands = HANDS.map(([name, shape]) => [name, new Hand(name, shape)]);
  const [name, number, about] = ["ring-name", "ring-number", "ring-about"].map((style, at) => svg("text", { class: style, y: [-16, 8, 27][at] }));
  const label = `${ring.dir} ring ${ring.index}`;
  const shape = svg("svg", { viewBox: "-100 -100 200 200", role: "img", "aria-label": label },
    svg("circle", { r: RADIUS, class: "track" }), own, given, waiting, marks(ring.slots), hands.map(([, hand]) => hand.shape), name, number, about);
  const indices = el("dl", { class: "indices" });
  const values = ["head", "cur", "tail", "hwcur", "hwtail"].map((field) => {
    const value = el("dd", { "data-index": field });
    indices.append(el("dt", { class: field }, field), value);
    return [field, value];
  });
  const passed = el("figcaption");
  return { figure: el("figure", { class: "ring", "data-ring": `${ring.dir} ${ring.index}` }, shape, indices, passed), own, given, waiting, hands, name, number, about, values, passed };
}

// A queue of a device without netmap rings has only counters.
function queue(ring) {
  const passed = el("figcaption");
  return { figure: el("figure", { class: "ring queue", "data-ring": `${ring.dir} ${ring.index}` }, el("strong", {}, `${ring.dir} ${ring.index}`), el("p", { class: "dim" }, "a queue of the device, not a netmap ring"), passed), passed };
}

export class Rings {
  #drawn = "";
  #known = [];

  constructor(place) {
    this.place = place;
  }

  update(rings, rate) {
    const drawn = JSON.stringify(rings.map((ring) => [ring.dir, ring.index, ring.slots]));
    if (drawn !== this.#drawn) {
      this.#drawn = drawn;
      this.#known = rings.map((ring) => (ring.slots > 0 ? drawing(ring) : queue(ring)));
      swap(this.place, this.#known.map(({ figure }) => figure));
    }
    rings.forEach((ring, at) => this.#tell(this.#known[at], ring, rate?.rings[ring.dir]?.[ring.index]));
  }

  #tell(known, ring, rate) {
    const speed = rate ? `${si(rate.pps)} pps` + (rate.batch ? `, ${rate.batch.toFixed(1)} a batch` : "") : "";
    const worker = ring.worker === undefined ? "" : `worker ${ring.worker}`;
    say(known.passed, [speed, worker, `${count(ring.frames)} frames`].filter(Boolean).join(" · "));
    if (ring.slots === 0) return;
    const { slots, head, tail, hwcur, hwtail } = ring;
    put(known.own, "d", arc(head, tail, slots));
    put(known.given, "d", arc(tail, hwtail, slots));
    put(known.waiting, "d", arc(hwcur, head, slots));
    known.hands.forEach(([name, hand]) => hand.to(ring[name], slots));
    known.values.forEach(([field, value]) => say(value, String(ring[field])));
    // Slots that the program may read or fill.
    const owned = (hwtail - head + slots) % slots;
    say(known.name, `${ring.dir} ${ring.index}`);
    say(known.number, count(owned));
    say(known.about, ring.dir === "in" ? `free of ${count(slots)}` : `to read of ${count(slots)}`);
  }
}

export const ringLegend = () =>
  el("div", { class: "legend" },
    [["own", "the program's: head to tail"], ["given", "available to it: tail to hwtail"], ["waiting", "released, not yet taken: hwcur to head"]].map(([name, text]) => el("span", {}, el("i", { class: `key arc-${name}` }), text)),
    [["head", "head"], ["cur", "cur"], ["tail", "tail"]].map(([name, text]) => el("span", {}, el("i", { class: `key hand-${name}` }), text)));
