// Charts on a canvas: histograms and line plots. Colours come from the style sheet; a chart is redrawn when its size or the theme changes.

import { count, h } from "./dom.js";
import { number } from "./format.js";

const drawings = new Set();
const resized = new ResizeObserver((entries) => { for (const entry of entries) entry.target.redraw?.(); });
export function redrawAll() {
  for (const one of drawings) one.isConnected ? one.redraw() : drawings.delete(one);
}

export function variable(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// A canvas that calls draw(context, width, height) in CSS pixels.
export function drawing(height, draw, props = {}) {
  const canvas = h("canvas", { role: "img", ...props });
  const fixed = height;
  canvas.style.height = `${fixed}px`;
  canvas.redraw = () => {
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    // A heat map may need less height than the maximum.
    const height = canvas.needs ? canvas.needs(width) : fixed;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  };
  drawings.add(canvas);
  resized.observe(canvas);
  return canvas;
}

export const FONT = '11px "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace';

export function ticks(low, high, most = 5) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

export function histogram({ edges, counts }, what = "elements", height = 190) {
  if (!counts.length) return h("p", { class: "quiet" }, "No finite values.");
  const ends = edges.map(Number), top = Math.max(...counts);
  let logarithmic = top > 200 * (counts.filter((n) => n).sort((a, b) => a - b)[Math.floor(counts.filter((n) => n).length / 2)] || 1);
  const readout = h("div", { class: "readout" });
  const left = 8, bottom = 20;
  const canvas = drawing(height, (context, width) => {
    const tall = height - bottom - 6, wide = (width - 2 * left) / counts.length;
    const scale = (n) => (n === 0 ? 0 : logarithmic ? Math.log(1 + n) / Math.log(1 + top) : n / top) * tall;
    context.fillStyle = variable("--bar");
    counts.forEach((n, i) => { const tallness = n ? Math.max(1.5, scale(n)) : 0; context.fillRect(left + i * wide + 0.5, tall + 4 - tallness, Math.max(1, wide - 1), tallness); });
    context.fillStyle = variable("--line");
    context.fillRect(left, tall + 4, width - 2 * left, 1);
    context.fillStyle = variable("--soft");
    context.font = FONT;
    const [low, high] = [ends[0], ends[ends.length - 1]];
    for (const at of ticks(low, high, Math.max(3, Math.min(7, width / 75)))) {
      const x = left + ((at / 2 - low / 2) / (high / 2 - low / 2 || 1)) * (width - 2 * left);
      const text = number(at, 4);
      const size = context.measureText(text).width;
      context.fillText(text, Math.min(Math.max(0, x - size / 2), width - size), height - 4);
    }
  }, { "aria-label": `Histogram of ${count(counts.reduce((a, b) => a + b, 0))} ${what} from ${number(ends[0])} to ${number(ends[ends.length - 1])}` });
  canvas.addEventListener("pointermove", (event) => {
    const i = Math.floor(((event.offsetX - left) / (canvas.clientWidth - 2 * left)) * counts.length);
    readout.textContent = counts[i] === undefined ? "" : `${number(ends[i])} to ${number(ends[i + 1])}: ${count(counts[i])} ${what}`;
  });
  canvas.addEventListener("pointerleave", () => { readout.textContent = ""; });
  const box = h("input", { type: "checkbox", checked: logarithmic, onchange: () => { logarithmic = box.checked; canvas.redraw(); } });
  return h("div", {}, canvas, h("div", { class: "controls" }, h("label", {}, box, "log scale"), readout));
}

// A vector as min and max of each segment; ask(start, stop, points) returns {start, stop, step, low, high, complete}.
export function lineChart(total, ask) {
  let view = [0, total], found = null, waiting = 0;
  const height = 300, left = 64, bottom = 22;
  const readout = h("div", { class: "readout", "aria-live": "off" });
  const failed = h("div", {});
  const canvas = drawing(height, (context, width) => {
    if (!found) return;
    const low = Math.min(...found.low.filter((x) => x !== null)), high = Math.max(...found.high.filter((x) => x !== null));
    context.font = FONT;
    if (low > high) { context.fillStyle = variable("--soft"); context.fillText("no finite values", left + 10, height / 2); return; }
    const room = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 1;
    const [bottomEnd, topEnd] = [low - room, high + room];
    const x = (at) => left + ((at - view[0]) / Math.max(1, view[1] - view[0])) * (width - left - 8);
    const y = (value) => 8 + (1 - (value - bottomEnd) / (topEnd - bottomEnd)) * (height - bottom - 8);
    for (const at of ticks(bottomEnd, topEnd)) {
      context.fillStyle = variable("--grid");
      context.fillRect(left, y(at), width - left - 8, 1);
      context.fillStyle = variable("--soft");
      const text = number(at, 4);
      context.fillText(text, left - 8 - context.measureText(text).width, y(at) + 4);
    }
    for (const at of ticks(view[0], view[1], Math.max(2, width / 110))) {
      const text = count(Math.round(at));
      const size = context.measureText(text).width;
      context.fillText(text, Math.min(x(at) - size / 2, width - size), height - 5);
    }
    context.fillStyle = context.strokeStyle = variable("--accent");
    context.lineWidth = 1.4;
    context.lineJoin = "round";
    context.beginPath();
    let drawn = false;
    found.low.forEach((low_, i) => {
      if (low_ === null) { drawn = false; return; }
      const at = x(found.start + (i + (found.step > 1 ? 0.5 : 0)) * found.step);
      drawn ? context.lineTo(at, y(low_)) : context.moveTo(at, y(low_));
      if (found.high[i] !== low_) context.lineTo(at, y(found.high[i]));
      drawn = true;
    });
    context.stroke();
    if (found.low.length <= 80) found.low.forEach((value, i) => { if (value !== null) { context.beginPath(); context.arc(x(found.start + i * found.step), y(value), 2.4, 0, 7); context.fill(); } });
  }, { tabindex: "0", class: "map" });
  async function load() {
    const mark = ++waiting;
    try {
      const got = await ask(Math.floor(view[0]), Math.ceil(view[1]), Math.max(64, Math.min(2048, canvas.clientWidth || 800)));
      if (mark !== waiting) return;
      found = got;
      failed.replaceChildren();
      canvas.setAttribute("aria-label", `Line plot of elements ${count(got.start)} to ${count(got.stop)} of ${count(total)}`);
      readout.textContent = `elements ${count(got.start)} to ${count(got.stop - 1)}${got.step > 1 ? `; each point shows min to max of ${count(got.step)} elements` : ""}${got.complete ? "" : " (sampled)"}`;
      canvas.redraw();
    } catch (error) { failed.replaceChildren(h("div", { class: "fault" }, error.message)); }
  }
  function zoom(factor, at = 0.5) {
    const span = Math.min(total, Math.max(8, (view[1] - view[0]) * factor)), middle = view[0] + (view[1] - view[0]) * at;
    shiftTo(middle - span * at, span);
  }
  function shiftTo(start, span = view[1] - view[0]) { const begin = Math.max(0, Math.min(total - span, start)); view = [begin, begin + span]; load(); }
  gestures(canvas, { zoom: (factor, fx) => zoom(factor, fx), pan: (dx) => shiftTo(view[0] - (dx / (canvas.clientWidth - left)) * (view[1] - view[0])), all: () => { view = [0, total]; load(); }, step: (dx) => shiftTo(view[0] + dx * (view[1] - view[0]) * 0.25) });
  canvas.addEventListener("pointermove", (event) => {
    if (!found) return;
    const i = Math.floor(((event.offsetX - left) / (canvas.clientWidth - left - 8)) * (view[1] - view[0]) / found.step);
    if (found.low[i] !== undefined && found.low[i] !== null) readout.textContent = found.step === 1 ? `[${found.start + i}] = ${found.low[i]}` : `[${found.start + i * found.step} …] ${number(found.low[i])} to ${number(found.high[i])}`;
  });
  load();
  return h("div", {}, failed, canvas, h("div", { class: "controls" }, zoomButtons(zoom, () => { view = [0, total]; load(); }), readout));
}

export function zoomButtons(zoom, all) {
  return h("span", { class: "group" },
    h("button", { "aria-label": "Zoom in", title: "Zoom in (+)", onclick: () => zoom(0.5) }, "+"),
    h("button", { "aria-label": "Zoom out", title: "Zoom out (−)", onclick: () => zoom(2) }, "−"),
    h("button", { "aria-label": "Reset zoom", title: "Reset zoom (0)", onclick: all }, "all"));
}

// Drag to pan; double click, or the wheel if the canvas has the focus, to zoom; the same with keys.
export function gestures(canvas, { zoom, pan, all, step }) {
  let last = null;
  canvas.addEventListener("pointerdown", (event) => { canvas.focus({ preventScroll: true }); last = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!last || !(event.buttons & 1)) return;
    const moved = [event.clientX - last[0], event.clientY - last[1]];
    if (Math.abs(moved[0]) + Math.abs(moved[1]) < 3) return;
    last = [event.clientX, event.clientY];
    pan(...moved);
  });
  canvas.addEventListener("pointerup", () => { last = null; });
  const where = (event) => [event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight];
  canvas.addEventListener("dblclick", (event) => zoom(0.5, ...where(event)));
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, ...where(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) step(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0") all();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
