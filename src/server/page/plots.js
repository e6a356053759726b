// SPDX-License-Identifier: Apache-2.0
// --- Plots. ---

const kWindow = 24;  // tokens that a point is the mean of
let drawing = false;
function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; draw(); });
}

function draw() {
  const points = shown?.points ?? [];
  const speed = [], length = [];
  const step = Math.max(1, Math.floor(points.length / 300));
  for (let i = 4; i < points.length; i += step) {
    const now = points[i], then = points[Math.max(0, i - kWindow)];
    if (now.ms > then.ms) speed.push([now.tokens, 1000 * (now.tokens - then.tokens) / (now.ms - then.ms)]);
    if (now.passes > then.passes) length.push([now.tokens, (now.tokens - then.tokens) / (now.passes - then.passes)]);
  }
  plot($("speed"), speed, plainSpeed, $("speed-now"));
  plot($("length"), length, 1, $("length-now"));
}

function plot(svg, series, reference, label) {
  const width = 320, height = 112, bottom = 96;
  svg.replaceChildren();
  const add = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    svg.append(made);
  };
  const most = Math.max(1, ...series.map(point => point[1]), reference ?? 0) * 1.2;
  const last = Math.max(1, ...series.map(point => point[0]));
  const x = n => width * n / last, y = value => bottom - (bottom - 4) * value / most;
  add("line", {class: "axis", x1: 0, x2: width, y1: bottom, y2: bottom});
  if (reference !== null) add("line", {class: "reference", x1: 0, x2: width, y1: y(reference), y2: y(reference)});
  if (series.length) {
    add("path", {d: series.map((point, i) => (i ? "L" : "M") + x(point[0]).toFixed(1) + " " + y(point[1]).toFixed(1)).join("")});
    add("text", {x: 0, y: height - 3}, "0");
    const top = Math.max(...series.map(point => point[1]));
    add("text", {x: 0, y: Math.max(10, y(top) - 4)}, rate(top));
    add("text", {x: width, y: height - 3, "text-anchor": "end"}, number(last) + " tokens");
    label.textContent = rate(series[series.length - 1][1]);
  } else {
    label.textContent = "";
  }
}

