// Dense tensors: statistics, histogram, heat map or line plot, values, images.

import { address, get, getWindow, stale } from "./api.js";
import { lineChart } from "./charts.js";
import { card, fault, h, labelled, pager, replace, select } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { histogramCard, statisticsCard } from "./parts.js";

export async function overview(main, params, about, mark) {
  const shape = about.shape;
  const empty = shape.includes(0), map = shape.length > 1 && !empty;
  const top = h("div", { class: map ? "" : "two" });
  if (map) main.append(h("div", { class: "beside" }, card("Heat map", null, new Heatmap(params, shape, { complex: about.complex }).element), top));
  else main.append(shape.length && !empty ? card("Line plot", null, lineChart(shape[0], (start, stop, points) => get("line", { ...params, start, stop, points }))) : "", top);
  const load = async (exact) => {
    try {
      const found = await get("statistics", { ...params, exact: exact ? 1 : 0 });
      if (!stale(mark)) replace(top, statisticsCard(found, () => load(true), about.complex ? "Statistics of the magnitude" : "Statistics"), histogramCard(found, "elements"));
    } catch (error) { if (!stale(mark)) replace(top, fault(error)); }
  };
  await load(false);
}

export function valuesTable(main, params, about) {
  const shape = about.shape, rank = shape.length;
  const state = { rows: rank - 2, columns: rank - 1, at: shape.map(() => 0), r0: 0, c0: 0 };
  const HIGH = rank === 1 ? 1 : 20, WIDE = rank === 1 ? 40 : 10;
  const body = h("div", {}), head = h("div", { class: "controls" }), foot = h("div", {});
  main.append(card(null, null, head, body, foot));
  const draw = async () => {
    const extent = [state.rows >= 0 ? shape[state.rows] : 1, state.columns >= 0 ? shape[state.columns] : 1];
    replace(head, rank < 3 ? null : shape.map((dim, axis) => axis === state.rows || axis === state.columns || dim < 2 ? null : labelled(`index along axis ${axis}`, h("input", { type: "number", min: "0", max: String(dim - 1), value: String(state.at[axis]), onchange: (event) => { state.at[axis] = Math.max(0, Math.min(dim - 1, Number(event.target.value) || 0)); draw(); } }))),
      rank > 1 && extent[1] > WIDE ? labelled("first column", h("input", { type: "number", min: "0", max: String(extent[1] - 1), value: String(state.c0), onchange: (event) => { state.c0 = Math.max(0, Math.min(extent[1] - 1, Number(event.target.value) || 0)); draw(); } })) : null);
    try {
      const found = await getWindow({ ...params, rows: state.rows, columns: state.columns, at: state.at.join(","), r0: state.r0, r1: state.r0 + HIGH, c0: state.c0, c1: state.c0 + WIDE, height: 64, width: 64 });
      const [rows, columns] = found.shape;
      const cell = (i) => h("td", {}, found.texts[i]);
      if (rank === 1) {
        replace(body, h("div", { class: "scroll" }, h("table", { class: "values" }, h("tbody", {}, Array.from({ length: Math.ceil(columns / 5) }, (_, r) => h("tr", {}, h("th", { scope: "row" }, found.c0 + r * 5), Array.from({ length: Math.min(5, columns - r * 5) }, (_, c) => cell(r * 5 + c))))))));
        replace(foot, pager({ start: state.c0, size: WIDE, total: extent[1], what: "element", go: (at) => { state.c0 = at; draw(); } }));
        return;
      }
      replace(body, h("div", { class: "scroll" }, h("table", { class: "values" }, h("thead", {}, h("tr", {}, h("th", {}), Array.from({ length: columns }, (_, c) => h("th", { scope: "col" }, found.c0 + c)))),
        h("tbody", {}, Array.from({ length: rows }, (_, r) => h("tr", {}, h("th", { scope: "row" }, found.r0 + r), Array.from({ length: columns }, (_, c) => cell(r * columns + c))))))));
      replace(foot, pager({ start: state.r0, size: HIGH, total: extent[0], what: "row", go: (at) => { state.r0 = at; draw(); } }));
    } catch (error) { replace(body, fault(error)); }
  };
  return draw();
}

export function album(main, params, about) {
  const state = { layout: about.pictures[0].layout, start: 0 };
  const PAGE = 48;
  const body = h("div", {}), foot = h("div", {});
  const names = { hwc: "height × width × channels", chw: "channels × height × width", hw: "height × width" };
  main.append(card(null, labelled("layout", select(about.pictures.map((one) => [one.layout, names[one.layout]]), state.layout, (value) => { state.layout = value; state.start = 0; draw(); })), body, foot));
  const draw = () => {
    const total = about.pictures.find((one) => one.layout === state.layout).count;
    const numbers = Array.from({ length: Math.max(0, Math.min(PAGE, total - state.start)) }, (_, i) => state.start + i);
    replace(body, h("div", { class: `album ${total === 1 ? "one" : ""}` }, numbers.map((number) => h("figure", {}, h("img", { src: address("image", { ...params, layout: state.layout, number }), alt: `image ${number}`, loading: "lazy" }), h("figcaption", {}, number)))));
    replace(foot, total > PAGE ? pager({ start: state.start, size: PAGE, total, what: "image", go: (at) => { state.start = at; draw(); } }) : null);
  };
  draw();
}
