// Rates from two readings of the counters, by the daemon's clock, and their history.

// Number of readings that charts show.
export const KEPT = 120;

const sum = (rings, field) => rings.reduce((all, ring) => all + ring[field], 0);
const total = (drops) => Object.values(drops ?? {}).reduce((all, frames) => all + frames, 0);

function counters(port) {
  return {
    in: { frames: sum(port.in, "frames"), bytes: sum(port.in, "bytes"), batches: sum(port.in, "batches") },
    out: { frames: sum(port.out, "frames"), bytes: sum(port.out, "bytes"), batches: sum(port.out, "batches") },
    drops: total(port.in_drops) + total(port.out_drops),
  };
}

// A counter that fell belongs to a new port of the same name, which began at zero.
const passed = (now, before) => (now >= before ? now - before : now);

function way(now, before, seconds) {
  const frames = passed(now.frames, before.frames);
  const batches = passed(now.batches, before.batches);
  return { pps: frames / seconds, bps: (8 * passed(now.bytes, before.bytes)) / seconds, batch: batches > 0 ? frames / batches : undefined };
}

function dropsOf(port, before, seconds) {
  const found = [];
  for (const [direction, field] of [["in", "in_drops"], ["out", "out_drops"]]) {
    for (const [reason, frames] of Object.entries(port[field] ?? {})) {
      const rate = passed(frames, before?.[field]?.[reason] ?? 0) / seconds;
      found.push({ reason, direction, frames, rate });
    }
  }
  return found;
}

// Returns the frames that arrived while there was no receiver; they are not drops.
function idleOf(port, before, seconds) {
  const frames = port.idle ?? 0;
  return { frames, rate: passed(frames, before?.idle ?? 0) / seconds };
}

function shares(worker, before, seconds) {
  const share = (field) => Math.min(1, passed(worker[field] ?? 0, before?.[field] ?? 0) / (seconds * 1e9));
  const lost = share("preempted_ns");
  return {
    busy: Math.max(0, share("busy_ns") - lost), lost, polled: share("polled_ns"), waited: share("waited_ns"),
    slept: Math.max(0, share("slept_ns") - share("waited_ns")), all: share("busy_ns"),
  };
}

// Returns the latency of frames timed between two readings; empty buckets are omitted.
function timed(now, before) {
  const known = new Map(before.parts.map((part) => [part.up_to_ns, part.frames]));
  const parts = now.parts.map(({ up_to_ns, frames }) => ({ up_to_ns, frames: passed(frames, known.get(up_to_ns) ?? 0) })).filter(({ frames }) => frames > 0);
  return { parts, frames: sum(parts, "frames"), sum_ns: passed(now.sum_ns, before.sum_ns) };
}

const NONE = { parts: [], sum_ns: 0 };

export class Rates {
  #last;
  #history = new Map();
  #latencies = new Map();

  constructor() {
    this.ports = new Map();
    this.workers = [];
    this.total = { in: 0, out: 0, bits: 0, drops: 0, busy: 0 };
  }

  // Adds a reading. Returns whether there are rates, which need two readings.
  take(stats) {
    const last = this.#last;
    const seconds = last ? (stats.now_ns - last.now_ns) / 1e9 : 0;
    if (last && seconds === 0) return this.ports.size > 0;
    this.#last = stats;
    // A clock that went back belongs to a restarted host or another one.
    if (!last || seconds < 0) return false;
    const before = new Map(last.ports.map((port) => [port.name, port]));
    this.ports = new Map(stats.ports.map((port) => [port.name, this.#port(port, before.get(port.name), seconds)]));
    this.workers = stats.workers.map((worker) => shares(worker, last.workers.find((known) => known.index === worker.index), seconds));
    this.#latencies = new Map(stats.ports.filter((port) => port.latency).map((port) => [port.name, this.#lately(port, before.has(port.name))]));
    this.#sum();
    return true;
  }

  #port(port, before, seconds) {
    const now = counters(port);
    const then = before ? counters(before) : { in: { frames: 0, bytes: 0, batches: 0 }, out: { frames: 0, bytes: 0, batches: 0 }, drops: 0 };
    const rings = (field) => port[field].map((ring, index) => way(ring, before?.[field]?.[index] ?? { frames: 0, bytes: 0, batches: 0 }, seconds));
    return {
      in: way(now.in, then.in, seconds), out: way(now.out, then.out, seconds), drops: passed(now.drops, then.drops) / seconds,
      reasons: dropsOf(port, before, seconds), idle: idleOf(port, before, seconds), rings: { in: rings("in"), out: rings("out") },
    };
  }

  #sum() {
    const all = { in: 0, out: 0, bits: 0, drops: 0, busy: Math.max(0, ...this.workers.map((worker) => worker.all)) };
    for (const [name, port] of this.ports) {
      all.in += port.in.pps;
      all.out += port.out.pps;
      all.bits += port.in.bps;
      all.drops += port.drops;
      this.#note(`port ${name}`, [port.in.pps, port.out.pps]);
    }
    this.total = all;
    for (const [name, value] of Object.entries(all)) this.#note(`total ${name}`, [value]);
    for (const key of this.#history.keys()) {
      if (key.startsWith("port ") && !this.ports.has(key.slice(5))) this.#history.delete(key);
    }
  }

  // Updates the recent latency of a port. The base is zero if the port was known before it had timed frames, or if its
  // counters restarted.
  #lately(port, isKnown) {
    const kept = this.#latencies.get(port.name) ?? (isKnown ? [NONE] : []);
    const isAnew = kept.length > 0 && sum(port.latency.parts, "frames") < sum(kept.at(-1).parts, "frames");
    return [...(isAnew ? [NONE] : kept), port.latency].slice(-KEPT);
  }

  // Returns the recent latency of frames that a port sent; undefined if no frame was ever timed.
  latency(name) {
    const kept = this.#latencies.get(name);
    return kept && timed(kept.at(-1), kept[0]);
  }

  #note(key, values) {
    const kept = this.#history.get(key) ?? [];
    kept.push(values);
    if (kept.length > KEPT) kept.shift();
    this.#history.set(key, kept);
  }

  // Returns the readings of a port or of a sum, oldest first.
  history(key) {
    return this.#history.get(key) ?? [];
  }
}
