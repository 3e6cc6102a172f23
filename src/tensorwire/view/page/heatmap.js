// The heat map of a slice of a tensor: any two axes, any index along the others, zoomed down to single numbers.

import { getWindow } from "./api.js";
import { drawing, FONT, gestures, variable, zoomButtons } from "./charts.js";
import { color, css, INFINITE, MAPS, NAN, onColor } from "./colors.js";
import { count, h, labelled, replace, select } from "./dom.js";
import { number } from "./format.js";

const LEFT = 52, TOP = 20, RIGHT = 76, HEIGHT = 500;

export class Heatmap {
  // `params` names the tensor, or the two tensors to subtract; `complex` offers real and imaginary parts; `signed` centers the colours on zero.
  constructor(params, shape, { complex = false, signed = null, at = null } = {}) {
    this.params = params; this.shape = shape; this.signed = signed;
    const rank = shape.length;
    this.columns = rank - 1; this.rows = rank - 2; this.at = at ? at.slice() : shape.map(() => 0);
    this.how = "sample"; this.part = "abs"; this.scale = "all"; this.complex = complex;
    this.waiting = 0; this.found = null;
    this.canvas = drawing(HEIGHT, (context, width) => this.draw(context, width), { tabindex: "0", class: "map", "aria-label": "Heat map" });
    this.canvas.needs = (width) => Math.max(TOP + 226, Math.ceil(TOP + this.fit(width)[1] * (this.found ? this.found.r1 - this.found.r0 : 1) + 8));
    this.readout = h("div", { class: "readout" });
    this.failed = h("div", {});
    this.controls = h("div", { class: "controls" });
    this.sliders = h("div", { class: "controls" });
    this.element = h("div", {}, this.controls, this.sliders, this.failed, this.canvas, this.readout);
    gestures(this.canvas, {
      zoom: (factor, fx, fy) => this.zoom(factor, fx, fy), all: () => this.all(),
      pan: (dx, dy) => this.move(-(dx / this.place.width) * (this.c1 - this.c0), -(dy / this.place.height) * (this.r1 - this.r0)),
      step: (dx, dy) => this.move(dx * Math.max(1, (this.c1 - this.c0) / 4), dy * Math.max(1, (this.r1 - this.r0) / 4)),
    });
    this.canvas.addEventListener("pointermove", (event) => this.tell(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.say());
    this.reset();
  }

  get extent() { return [this.rows >= 0 ? this.shape[this.rows] : 1, this.columns >= 0 ? this.shape[this.columns] : 1]; }

  reset() { this.buildControls(); this.all(); }

  all() { [this.r0, this.c0, [this.r1, this.c1]] = [0, 0, this.extent]; this.load(); }

  buildControls() {
    const axes = this.shape.map((dim, axis) => [axis, `axis ${axis} (${count(dim)})`]);
    const pick = (mine, other) => select(mine === "rows" && this.shape.length === 1 ? [[-1, "–"]] : axes, this[mine], (value) => {
      if (Number(value) === this[other]) this[other] = this[mine];
      this[mine] = Number(value);
      this.reset();
    });
    const put = [zoomButtons((factor) => this.zoom(factor), () => this.all())];
    if (this.shape.length > 1) put.push(labelled("rows", pick("rows", "columns")), labelled("columns", pick("columns", "rows")));
    put.push(labelled("each cell", select([["sample", "one element"], ["mean", "mean"], ["max", "max"], ["min", "min"]], this.how, (value) => { this.how = value; this.load(); })));
    put.push(labelled("colours", select([["all", "min to max"], ["most", "1st to 99th percentile"]], this.scale, (value) => { this.scale = value; this.canvas.redraw(); })));
    if (this.complex) put.push(labelled("show", select([["abs", "magnitude"], ["real", "real part"], ["imag", "imaginary part"]], this.part, (value) => { this.part = value; this.load(); })));
    replace(this.controls, put);
    replace(this.sliders, this.shape.map((dim, axis) => {
      if (axis === this.rows || axis === this.columns || dim < 2) return null;
      const shown = h("output", {}, `${this.at[axis]} / ${dim - 1}`);
      const slider = h("input", { type: "range", min: "0", max: String(dim - 1), value: String(this.at[axis]), oninput: () => { this.at[axis] = Number(slider.value); shown.textContent = `${slider.value} / ${dim - 1}`; this.load(); } });
      return h("span", { class: "controls" }, labelled(`index along axis ${axis}`, slider), shown);
    }));
  }

  zoom(factor, fx = 0.5, fy = 0.5) {
    const [rows, columns] = this.extent;
    const fit = (low, high, all, at) => {
      const span = Math.min(all, Math.max(Math.min(all, 6), (high - low) * factor));
      const begin = Math.max(0, Math.min(all - span, low + (high - low - span) * at));
      return [Math.floor(begin), Math.min(all, Math.ceil(begin + span))];
    };
    [this.r0, this.r1] = fit(this.r0, this.r1, rows, fy);
    [this.c0, this.c1] = fit(this.c0, this.c1, columns, fx);
    this.load();
  }

  move(dx, dy) {
    const [rows, columns] = this.extent;
    this.rest = [(this.rest?.[0] || 0) + dx, (this.rest?.[1] || 0) + dy];
    const [x, y] = this.rest.map(Math.trunc);
    this.rest = [this.rest[0] - x, this.rest[1] - y];
    const shift = (low, high, all, by) => { const begin = Math.max(0, Math.min(all - (high - low), low + by)); return [begin, begin + high - low]; };
    [this.r0, this.r1] = shift(this.r0, this.r1, rows, y);
    [this.c0, this.c1] = shift(this.c0, this.c1, columns, x);
    this.load();
  }

  // One request at a time: while it is running, only the newest of the later ones is kept.
  async load() {
    this.again = true;
    if (this.loading) return;
    this.loading = true;
    while (this.again) {
      this.again = false;
      const { r0, r1, c0, c1, how, part, rows, columns } = this;
      const width = Math.min(400, Math.max(64, Math.round(((this.canvas.clientWidth || 800) - LEFT - RIGHT) / 2)));
      try {
        const found = await getWindow({ ...this.params, rows, columns, at: this.at.join(","), r0, r1, c0, c1, height: 256, width, how, part });
        this.failed.replaceChildren();
        this.found = found;
        this.order();
        this.canvas.redraw();
        this.say();
      } catch (error) { replace(this.failed, h("div", { class: "fault" }, error.message)); }
    }
    this.loading = false;
  }

  order() {
    const finite = this.found.values.filter(Number.isFinite).sort();
    const at = (share) => finite[Math.min(finite.length - 1, Math.floor(share * finite.length))] ?? 0;
    this.ends = { all: [at(0), at(1)], most: [at(0.01), at(0.99)] };
    this.odd = [this.found.values.some(Number.isNaN), this.found.values.some((x) => !Number.isFinite(x) && !Number.isNaN(x))];
  }

  // The range of the colours, and the map: the diverging one, centered on zero, if there are numbers on both sides.
  colours() {
    let [low, high] = this.ends[this.scale];
    if (this.signed ?? (low < 0 && high > 0)) { const far = Math.max(Math.abs(low), Math.abs(high)); return [-far, far, MAPS.around]; }
    return [low, high, MAPS.rising];
  }

  // Width and height of one element: square unless that would make it too small.
  fit(width) {
    if (!this.found) return [1, 1];
    const spans = [this.found.r1 - this.found.r0 || 1, this.found.c1 - this.found.c0 || 1];
    let [sy, sx] = [(HEIGHT - TOP - 8) / spans[0], (width - LEFT - RIGHT) / spans[1]];
    if (Math.max(sx, sy) / Math.min(sx, sy) < 4) sx = sy = Math.min(sx, sy);
    return [Math.min(sx, 92), Math.min(sy, 46)];
  }

  draw(context, width) {
    const found = this.found;
    context.font = FONT;
    if (!found || !found.values.length) {
      this.place = { x: LEFT, y: TOP, width: 1, height: 1 };
      context.fillStyle = variable("--soft");
      if (found) context.fillText("no elements", LEFT, TOP + 20);
      return;
    }
    const [rows, columns] = found.shape, spans = [found.r1 - found.r0, found.c1 - found.c0];
    const [sx, sy] = this.fit(width);
    const place = (this.place = { x: LEFT, y: TOP, width: sx * spans[1], height: sy * spans[0] });
    const [low, high, map] = this.colours();
    const image = new ImageData(columns, rows);
    found.values.forEach((value, i) => { const [r, g, b] = color(value, low, high, map); image.data.set([r, g, b, 255], i * 4); });
    const small = new OffscreenCanvas(columns, rows);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    const share = [rows * found.row_step / spans[0], columns * found.column_step / spans[1]];
    context.save();
    context.beginPath();
    context.rect(place.x, place.y, place.width, place.height);
    context.clip();
    context.drawImage(small, place.x, place.y, place.width * share[1], place.height * share[0]);
    context.restore();
    if (sx * found.column_step >= 44 && sy * found.row_step >= 15 && found.column_step === 1 && found.row_step === 1) this.numbers(context, place, rows, columns, [low, high, map]);
    context.fillStyle = variable("--soft");
    this.axis(context, found.c0, found.c1, place.width, (at, text, size) => context.fillText(text, place.x + at - Math.min(size / 2, at + 20), TOP - 6), 64);
    this.axis(context, found.r0, found.r1, place.height, (at, text, size) => context.fillText(text, LEFT - 7 - size, place.y + at + 4), 28);
    this.legend(context, place.x + place.width + 14, low, high, map);
  }

  numbers(context, place, rows, columns, scale) {
    const [wide, tall] = [place.width / columns, place.height / rows];
    this.found.values.forEach((value, i) => {
      const text = number(value, 4);
      context.fillStyle = onColor(color(value, ...scale));
      const size = context.measureText(text).width;
      if (size < wide - 3) context.fillText(text, place.x + (i % columns) * wide + (wide - size) / 2, place.y + Math.floor(i / columns) * tall + tall / 2 + 4);
    });
  }

  axis(context, low, high, length, write, apart) {
    const span = high - low, most = Math.max(1, Math.floor(length / apart));
    const power = 10 ** Math.floor(Math.log10(Math.max(1, span / most)));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= span / most);
    for (let at = Math.ceil(low / step) * step; at < high; at += step) {
      const text = count(at);
      write(((at - low + 0.5) / span) * length, text, context.measureText(text).width);
    }
  }

  legend(context, x, low, high, map) {
    const tall = 180;
    for (let i = 0; i < tall; i++) { context.fillStyle = css(map[Math.round((1 - i / (tall - 1)) * 255)]); context.fillRect(x, TOP + i, 12, 1.5); }
    context.fillStyle = variable("--soft");
    context.fillText(number(high, 3), x + 17, TOP + 9);
    if (high > low) { context.fillText(number(low / 2 + high / 2, 3), x + 17, TOP + tall / 2 + 4); context.fillText(number(low, 3), x + 17, TOP + tall); }
    [["NaN", NAN], ["±∞", INFINITE]].forEach(([text, shade], i) => {
      if (!this.odd[i]) return;
      context.fillStyle = css(shade);
      context.fillRect(x, TOP + tall + 14 + i * 18, 12, 12);
      context.fillStyle = variable("--soft");
      context.fillText(text, x + 17, TOP + tall + 24 + i * 18);
    });
  }

  tell(x, y) {
    const found = this.found, place = this.place;
    if (!found || !place) return;
    const row = Math.floor(((y - place.y) / place.height) * (found.r1 - found.r0) / found.row_step);
    const column = Math.floor(((x - place.x) / place.width) * (found.c1 - found.c0) / found.column_step);
    if (row < 0 || column < 0 || row >= found.shape[0] || column >= found.shape[1]) return this.say();
    const where = this.at.slice();
    if (this.rows >= 0) where[this.rows] = found.r0 + row * found.row_step;
    if (this.columns >= 0) where[this.columns] = found.c0 + column * found.column_step;
    const i = row * found.shape[1] + column;
    this.readout.textContent = `[${where.join(", ")}] = ${found.texts ? found.texts[i] : number(found.values[i], 9)}`;
  }

  say() {
    const found = this.found;
    if (!found) return;
    const [rows, columns] = found.extent;
    const how = { sample: "one element", mean: "the mean", max: "the max", min: "the min" }[found.how];
    const each = found.row_step > 1 || found.column_step > 1 ? `; each cell shows ${how} of ${count(found.row_step)} × ${count(found.column_step)}` : "";
    const text = `rows ${count(found.r0)} to ${count(found.r1 - 1)} of ${count(rows)}, columns ${count(found.c0)} to ${count(found.c1 - 1)} of ${count(columns)}${each}`;
    this.readout.textContent = text;
    this.canvas.setAttribute("aria-label", `Heat map: ${text}`);
  }
}
