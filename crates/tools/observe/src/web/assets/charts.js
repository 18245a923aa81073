// Small charts of past readings.

import { put, svg } from "./dom.js";
import { KEPT } from "./rates.js";

const [WIDTH, HEIGHT] = [240, 48];

// Makes a chart with one line for each class of the style sheet. `update` takes readings, oldest first.
export function chart(classes, label) {
  const lines = classes.map((name) => ({ area: svg("path", { class: `area ${name}` }), line: svg("path", { class: `line ${name}` }) }));
  const shape = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    lines.map(({ area }) => area), lines.map(({ line }) => line));
  const update = (readings, least = 0) => {
    const most = Math.max(least, 1e-9, ...readings.flat());
    const x = (index) => (WIDTH * (KEPT - readings.length + index)) / (KEPT - 1);
    const y = (value) => HEIGHT - 1.5 - (value / most) * (HEIGHT - 4);
    lines.forEach(({ area, line }, which) => {
      const points = readings.map((values, index) => `${x(index).toFixed(1)} ${y(values[which]).toFixed(1)}`);
      const path = points.length > 1 ? `M${points.join("L")}` : "";
      put(line, "d", path);
      put(area, "d", path && `${path}V${HEIGHT}H${x(0).toFixed(1)}Z`);
    });
    return most;
  };
  return { shape, update };
}
