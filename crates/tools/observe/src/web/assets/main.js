// The page: requests data, and draws the answers.

import { Details } from "./details.js";
import { by, say } from "./dom.js";
import { drawFlows } from "./flows.js";
import { visible } from "./format.js";
import { Rates } from "./rates.js";
import { forgetToken, json, linkedPort, setToken, showPort, takeToken } from "./server.js";
import { drawDrops, PortTable, Summary, WorkerList } from "./tables.js";
import { Topology } from "./topology.js";

// Milliseconds between two requests. The list of ports, which may be long, is requested less often.
const [STATS, PORTS, RINGS, FLOWS, AFTER_ERROR] = [500, 3000, 250, 2000, 2000];
const statsPause = (ports) => Math.max(STATS, 2 * ports);

const state = { rates: new Rates(), stats: undefined, list: [], selected: undefined, paused: false };
const summary = new Summary(by("summary"));
const topology = new Topology(by("topology"), select);
const table = new PortTable(by("ports"), by("filter"), select);
const workers = new WorkerList(by("workers"));
const details = new Details(by("details"));

function draw() {
  const { stats, rates, selected } = state;
  if (!stats) return;
  const counted = new Set(stats.ports.map((port) => port.name));
  const others = state.list.filter((port) => !counted.has(port.name));
  summary.update(rates);
  topology.update(stats, others, rates, selected);
  const infos = new Map(state.list.map((port) => [port.name, port.policies?.info]));
  table.update([...stats.ports, ...others].map((port) => ({ ...port, info: infos.get(port.name) })), rates, selected);
  workers.update(stats.workers, rates);
  drawDrops(by("drops"), stats.ports, rates, select);
  details.rates(rates);
}

function status(text, kind) {
  say(by("status"), text);
  by("status").className = kind;
  // Marks figures that are out of date.
  by("main").classList.toggle("stale", kind === "bad");
}

function select(name) {
  state.selected = name;
  showPort(name);
  const isCapturable = state.stats?.ports.some((port) => port.name === name) ?? false;
  details.open(name, unselect, isCapturable);
  draw();
  rings.soon();
  by("details").scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

function unselect() {
  state.selected = undefined;
  showPort(undefined);
  details.close();
  draw();
}

// Repeats a request, one at a time, while the page is visible.
function repeat(ask) {
  let [timer, isAsking, isDue] = [undefined, false, false];
  const round = async () => {
    [isAsking, isDue] = [true, false];
    let pause = 1000;
    if (!document.hidden && !state.paused && !by("main").hidden) {
      try {
        pause = await ask();
      } catch (error) {
        pause = failed(error);
      }
    }
    isAsking = false;
    timer = setTimeout(round, isDue ? 0 : pause);
  };
  const soon = () => {
    isDue = true;
    if (isAsking) return;
    clearTimeout(timer);
    timer = setTimeout(round, 0);
  };
  soon();
  return { soon };
}

function failed(error) {
  if (error.status === 401) login("This token is not the server's.");
  else if (!state.paused) status(error.status ? visible(error.message.replace(/^\d+ [^:]*: /, "")) : "netvale web does not answer", "bad");
  return AFTER_ERROR;
}

const counters = repeat(async () => {
  const stats = await json("/api/stats");
  state.stats = stats;
  say(by("version"), visible(stats.version));
  if (state.rates.take(stats)) draw();
  // The answer to a request that was sent before the pause.
  if (!state.paused) status("live", "good");
  return statsPause(stats.ports.length);
});

const names = repeat(async () => {
  state.list = await json("/api/ports");
  return PORTS;
});

const flows = repeat(async () => {
  drawFlows(by("gateways"), by("flows"), await json("/api/flows"));
  return FLOWS;
});

const rings = repeat(async () => {
  const name = state.selected;
  if (name === undefined) return PORTS;
  try {
    details.port(await json("/api/port", { name }), state.rates);
  } catch (error) {
    if (error.status !== 404 && error.status !== 429) throw error;
    if (state.selected === name) details.fail(error.message);
    return AFTER_ERROR;
  }
  return RINGS;
});

function login(why) {
  forgetToken();
  by("main").hidden = true;
  by("login").hidden = false;
  say(by("login-error"), why);
  status("token needed", "bad");
}

function enter() {
  by("login").hidden = true;
  by("main").hidden = false;
  for (const one of [counters, names, flows, rings]) one.soon();
  const linked = linkedPort();
  if (linked !== undefined && linked !== state.selected) select(linked);
}

// Escape closes a port; / focuses the ports' filter.
addEventListener("keydown", (event) => {
  const types = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "Escape" && state.selected !== undefined) unselect();
  if (event.key === "/" && !types) {
    event.preventDefault();
    by("filter").focus();
  }
});

by("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(by("token").value.trim());
  by("token").value = "";
  say(by("login-error"), "");
  enter();
});

by("pause").addEventListener("click", () => {
  state.paused = !state.paused;
  by("pause").setAttribute("aria-pressed", String(state.paused));
  say(by("pause"), state.paused ? "Resume" : "Pause");
  document.body.classList.toggle("paused", state.paused);
  if (state.paused) status("paused", "");
  else enter();
});

addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) for (const one of [counters, names, flows, rings]) one.soon();
});
addEventListener("hashchange", () => {
  if (takeToken()) enter();
});
if (takeToken()) enter();
else login("");
