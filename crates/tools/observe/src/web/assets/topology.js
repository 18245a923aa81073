// Draws switches as bars, with their ports along them. Dots move along the lines as frames do: the more frames, the
// faster.

import { el, pressable, say, svg, swap } from "./dom.js";
import { isGuest, kind, plural, short, si, visible } from "./format.js";

// Maximum number of drawn ports of a switch; the table has all.
const MOST = 64;
const [BOX, WIRE, BAR, GAP, LEFT] = [46, 26, 24, 18, 12];

// The average width of a character is about 7 of its 9 pixels.
const cut = (text, width) => (text.length * 7 > width ? `${text.slice(0, Math.max(2, Math.floor(width / 7) - 1))}…` : text);

function box(port, width, select) {
  const name = svg("text", { y: 18, class: "name" }, cut(short(port), width - 22));
  const figures = svg("text", { y: 36, class: "figures" });
  // A text with wider characters than average is clipped at the next box.
  const texts = svg("svg", { x: 10, width: width - 22, height: BOX }, name, figures);
  const mark = svg("circle", { cx: width - 10, cy: 10, r: 4, class: "mark" });
  const title = svg("title");
  const shape = svg("g", { class: "port", role: "button", "data-port": port.name },
    title, svg("rect", { width, height: BOX, rx: 7 }), texts, mark);
  pressable(shape, () => select(port.name));
  return { shape, figures, mark, title, port };
}

function wire(x, from, to) {
  const line = (dx, name) => svg("line", { x1: x + dx, x2: x + dx, y1: from, y2: to, class: `wire ${name}` });
  return { in: line(-5, "in"), out: line(5, "out") };
}

// More frames make dots faster (from 2.4 s to 0.13 s between two dots) and lines thicker.
function flow(line, pps) {
  line.classList.toggle("moves", pps >= 1);
  const decades = Math.min(7, Math.log10(Math.max(1, pps)));
  line.style.animationDuration = `${(2.4 / 2 ** (decades * 0.6)).toFixed(2)}s`;
  line.style.strokeWidth = pps >= 1 ? (2 + decades * 0.5).toFixed(1) : "";
}

export class Topology {
  #place;
  #select;
  #drawn = "";
  #boxes = [];
  #bars = new Map();

  constructor(place, select) {
    this.#place = place;
    this.#select = select;
  }

  update(stats, others, rates, selected) {
    const width = Math.max(240, Math.floor(this.#place.clientWidth));
    const drawn = JSON.stringify([width, stats.switches.map((one) => one.name), stats.ports.map((port) => [port.name, port.kind, port.switch]),
      others.map((port) => [port.name, port.kind])]);
    if (drawn !== this.#drawn) {
      this.#drawn = drawn;
      this.#build(stats, others, width);
    }
    for (const one of stats.switches) this.#say(one);
    const states = new Map([...stats.ports, ...others].map((port) => [port.name, port]));
    for (const known of this.#boxes) this.#tell(known, states.get(known.port.name) ?? known.port, rates.ports.get(known.port.name), selected);
  }

  #say(one) {
    const bar = this.#bars.get(one.name);
    if (bar) say(bar, `${visible(one.name)} · ${plural(one.ports, "port")} · ${plural(one.addresses, "address", "addresses")}`);
  }

  #tell(known, port, rate, selected) {
    known.shape.classList.toggle("selected", port.name === selected);
    known.shape.classList.toggle("idle", port.state === "idle");
    const drops = rate ? rate.drops : 0;
    known.mark.classList.toggle("drops", drops > 0);
    say(known.figures, rate ? `▲ ${si(rate.in.pps)}  ▼ ${si(rate.out.pps)}` : kind(port));
    say(known.title, `${visible(port.name)}: ${kind(port)}, ${visible(port.state)}` + (drops > 0 ? `, ${si(drops)} drops/s` : ""));
    if (known.wire && rate) {
      flow(known.wire.in, rate.in.pps);
      flow(known.wire.out, rate.out.pps);
    }
  }

  #build(stats, others, width) {
    this.#boxes = [];
    this.#bars = new Map();
    const drawings = stats.switches.map((one) => this.#switch(one, stats.ports.filter((port) => port.switch === one.name), width));
    const beside = [...stats.ports.filter((port) => !port.switch), ...others];
    if (beside.length > 0) drawings.push(el("h3", {}, "Without a switch"), this.#rest(beside.slice(0, MOST), width));
    if (drawings.length === 0) drawings.push(el("p", { class: "dim" }, "There are no ports that you may see. Make one with: netvale attach vale0 tap:nv0"));
    swap(this.#place, drawings);
  }

  // Draws a switch as rows of a bar with ports above and below; the bars are joined on the left.
  #switch(one, ports, width) {
    const shown = ports.slice(0, MOST);
    const room = Math.max(2, Math.floor((width - LEFT) / 138));
    const step = (width - LEFT) / room;
    // A bar is as long as its ports and its name need.
    const columns = Math.min(room, Math.max(2, Math.ceil(shown.length / 2)));
    width = Math.round(LEFT + columns * step);
    const [shelf, parts] = [BOX + WIRE + BAR + WIRE + BOX + GAP, []];
    const label = svg("text", { x: LEFT + 12, class: "bar-label" });
    this.#bars.set(one.name, label);
    const shelves = Math.max(1, Math.ceil(shown.length / (2 * columns)));
    // Below the last bar there is no room if it has no ports there; without any ports, there is none above either.
    const offset = shown.length === 0 ? 4 : 2;
    let [bottom, first] = [0, 0];
    for (let at = 0; at < shelves; at += 1) {
      const here = shown.slice(at * 2 * columns, (at + 1) * 2 * columns);
      const above = here.slice(0, shelves === 1 ? Math.min(columns, Math.ceil(here.length / 2)) : columns);
      const y = offset + at * shelf + (shown.length === 0 ? 0 : BOX + WIRE);
      if (at === 0) first = y;
      here.forEach((port, index) => {
        const isAbove = index < above.length;
        const x = LEFT + 4 + (isAbove ? index : index - above.length) * step;
        parts.push(...this.#port(port, x, y, step - 10, isAbove));
      });
      parts.push(svg("rect", { x: LEFT, y, width: width - LEFT - 2, height: BAR, rx: 6, class: "bar" }));
      bottom = y + BAR + (here.length > above.length ? WIRE + BOX : 0) + 4;
    }
    const joint = shelves > 1 ? svg("path", { d: `M${LEFT + 8} ${first + BAR / 2}H4V${first + (shelves - 1) * shelf + BAR / 2}H${LEFT + 8}`, class: "joint" }) : null;
    label.setAttribute("y", first + 17);
    if (ports.length > MOST) {
      bottom += 18;
      parts.push(svg("text", { x: LEFT + 4, y: bottom - 4, class: "figures" }, `and ${plural(ports.length - MOST, "port")} more, in the table`));
    }
    return svg("svg", { class: "switch", viewBox: `0 0 ${width} ${bottom}`, width, height: bottom, role: "group", "aria-label": visible(one.name) }, joint, parts, label);
  }

  #port(port, x, y, width, isAbove) {
    const made = box(port, width, this.#select);
    const top = isAbove ? y - WIRE - BOX : y + BAR + WIRE;
    made.shape.setAttribute("transform", `translate(${x} ${top})`);
    if (isGuest(port)) made.shape.classList.add("guest");
    // The line runs from the port to the switch: its dots move from the first end to the second.
    const middle = x + width / 2;
    made.wire = isAbove ? wire(middle, y - WIRE, y) : wire(middle, y + BAR + WIRE, y + BAR);
    this.#boxes.push(made);
    return [made.wire.in, made.wire.out, made.shape];
  }

  #rest(ports, width) {
    const columns = Math.max(2, Math.floor(width / 138));
    const step = width / columns;
    const shapes = ports.map((port, index) => {
      const made = box(port, step - 10, this.#select);
      made.shape.setAttribute("transform", `translate(${2 + (index % columns) * step} ${2 + Math.floor(index / columns) * (BOX + 10)})`);
      this.#boxes.push(made);
      return made.shape;
    });
    const height = Math.ceil(ports.length / columns) * (BOX + 10);
    return svg("svg", { class: "switch", viewBox: `0 0 ${width} ${height}`, width, height }, shapes);
  }
}
