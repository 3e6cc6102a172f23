// String, ragged and sparse tensors.

import { address, get, stale } from "./api.js";
import { drawing, FONT, variable } from "./charts.js";
import { color, MAPS } from "./colors.js";
import { card, count, countOf, fault, h, labelled, pager, replace, select } from "./dom.js";
import { number, percent } from "./format.js";
import { figures, histogramCard, image, statisticsCard, stringText, values } from "./parts.js";

export async function strings(main, params, about, mark) {
  const PAGE = 100;
  const body = h("div", { class: "strings" }), foot = h("div", {}), note = h("span", { class: "quiet" });
  const field = h("input", { type: "search", id: "search", placeholder: "Search all strings  ( / )", "aria-label": "Search all strings", autocomplete: "off", spellcheck: "false" });
  let timer = 0, wish = 0, last = "";
  const look = () => { if (field.value === last) return; last = field.value; last ? search(0) : page(0); };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 200); });
  main.append(card(null, h("div", { class: "controls" }, field, note), body, foot));
  const row = (item) => h("div", { class: "string" }, h("span", { class: "at" }, count(item.at)),
    item.image ? h("div", {}, image(address("string_image", { ...params, at: item.at }), `string ${item.at}, ${item.image}`)) : stringText(item, field.value), h("span", { class: "size" }, countOf(item.size, "byte")));
  const page = async (start) => {
    const mine = ++wish;
    try {
      const found = await get("strings", { ...params, start, count: PAGE });
      if (mine !== wish || stale(mark)) return;
      note.textContent = "";
      replace(body, found.items.map(row));
      replace(foot, pager({ start: found.start, size: PAGE, total: found.total, what: "string", go: page }));
    } catch (error) { replace(body, fault(error)); }
  };
  const search = async (start, before = []) => {
    const mine = ++wish;
    try {
      const found = await get("search", { ...params, text: field.value, start });
      if (mine !== wish || stale(mark)) return;
      const all = [...before, ...found.items];
      note.textContent = `${count(all.length)} match${all.length === 1 ? "" : "es"}${found.next === null ? "" : ` in the first ${count(found.next)} strings`}`;
      replace(body, all.map(row));
      replace(foot, found.next === null ? null : h("button", { onclick: () => search(found.next, all) }, "Continue search"));
    } catch (error) { replace(body, fault(error)); }
  };
  await page(0);
}

export async function ragged(main, params, about, mark) {
  const top = h("div", {}), body = h("div", {}), foot = h("div", {});
  main.append(top, card("Rows", null, body, foot));
  const page = async (start) => {
    try {
      const found = await get("ragged", { ...params, start, count: 20 });
      if (stale(mark)) return;
      const length = (row) => row.shape[0];
      replace(body, h("table", {}, h("thead", {}, h("tr", {}, h("th", { class: "num" }, "row"), h("th", { class: "num" }, "length"), h("th", {}, "values"))),
        h("tbody", {}, found.rows.map((row) => h("tr", {}, h("td", { class: "num" }, count(row.at)), h("td", { class: "num" }, count(length(row))), h("td", { class: "mono" }, values(row)))))));
      replace(foot, pager({ start: found.start, size: 20, total: found.total, what: "row", go: page }));
    } catch (error) { replace(body, fault(error)); }
  };
  const lengths = async () => {
    try {
      const found = await get("lengths", params);
      if (stale(mark)) return;
      const each = found.lengths;
      const pairs = [["rows", count(found.rows)], ["min length", number(each.min)], ["max length", number(each.max)], ["mean length", number(each.mean)], ["empty rows", count(each.zeros), percent(each.zeros, each.counted)], found.values && ["min value", number(found.values.min)], found.values && ["max value", number(found.values.max)], found.values && ["NaN", count(found.values.nan), "", found.values.nan > 0]];
      replace(top, h("div", { class: "two" }, card("Rows and values", null, each.exact ? null : h("div", { class: "note" }, `From a sample of ${count(each.counted)} rows.`), figures(pairs)), histogramCard(each, "rows", "Row lengths")));
    } catch (error) { replace(top, fault(error)); }
  };
  await Promise.all([page(0), lengths()]);
}

export async function sparse(main, params, about, mark) {
  const top = h("div", {}), map = h("div", {}), body = h("div", {}), foot = h("div", {});
  main.append(top, map, card("Elements", null, body, foot));
  const state = { rows: undefined, columns: undefined };
  const load = async (start, all) => {
    try {
      const found = await get("sparse", { ...params, ...state, start, count: 20 });
      if (stale(mark)) return;
      if (all) {
        const pairs = [["nnz", count(found.nnz)], ["density", percent(found.nnz, found.nnz / (found.density || 1))], ["order", found.sorted ? "sorted" : "not sorted"], ["duplicates", found.duplicates ? "yes" : "none", "", found.duplicates], found.values && ["min", number(found.values.min)], found.values && ["max", number(found.values.max)], found.values && ["mean", number(found.values.mean)], found.values && ["NaN", count(found.values.nan), "", found.values.nan > 0]];
        replace(top, h("div", { class: "two" }, card("Statistics", null, figures(pairs)), found.values ? histogramCard(found.values, "elements", "Histogram of the elements") : null));
        replace(map, pattern(found, state, () => load(0, true)));
      }
      replace(body, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "index"), h("th", { class: "num" }, "value"))), h("tbody", {}, found.entries.map((entry) => h("tr", {}, h("td", { class: "mono" }, `[${entry.at.join(", ")}]`), h("td", { class: "num mono" }, entry.value))))));
      replace(foot, pager({ start, size: 20, total: found.nnz, what: "element", go: (at) => load(at, false) }));
    } catch (error) { replace(all ? top : body, fault(error)); }
  };
  await load(0, true);
}

function pattern(found, state, again) {
  const [rows, columns] = found.counts.shape, top = Math.max(1, ...found.counts.values);
  const readout = h("div", { class: "readout" }, `${count(found.extent[0])} × ${count(found.extent[1])}; each cell is a block of ${count(found.steps[0])} × ${count(found.steps[1])}, darker with more elements`);
  let place = { width: 1, height: 1 };
  const canvas = drawing(380, (context, width) => {
    const side = Math.min((width - 70) / columns, 350 / rows, 18);
    const [wide, tall] = Math.max(rows / columns, columns / rows) > 6 ? [(width - 70) / columns, Math.min(350 / rows, 18)] : [side, side];
    place = { width: wide * columns, height: tall * rows };
    const dark = document.documentElement.dataset.theme === "dark";
    context.fillStyle = variable("--hover");
    context.fillRect(58, 20, place.width, place.height);
    found.counts.values.forEach((n, i) => {
      if (!n) return;
      const share = 0.25 + 0.75 * Math.log(1 + n) / Math.log(1 + top);
      context.fillStyle = `rgb(${color(dark ? share : 1 - share, -0.1, 1.1, MAPS.rising).join(" ")})`;
      context.fillRect(58 + (i % columns) * wide, 20 + Math.floor(i / columns) * tall, Math.max(1, wide - (wide > 5 ? 0.7 : 0)), Math.max(1, tall - (tall > 5 ? 0.7 : 0)));
    });
    context.fillStyle = variable("--soft");
    context.font = FONT;
    context.fillText("0", 58, 14);
    const end = count(found.extent[1] - 1);
    context.fillText(end, Math.max(70, 58 + place.width - context.measureText(end).width), 14);
    context.fillText("0", 44, 30);
    const low = count(found.extent[0] - 1);
    context.fillText(low, Math.max(0, 52 - context.measureText(low).width), 20 + place.height);
  }, { "aria-label": `Sparsity pattern of ${count(found.nnz)} elements` });
  canvas.addEventListener("pointermove", (event) => {
    const column = Math.floor(((event.offsetX - 58) / place.width) * columns), row = Math.floor(((event.offsetY - 20) / place.height) * rows);
    if (row < 0 || column < 0 || row >= rows || column >= columns) return;
    readout.textContent = `rows ${count(row * found.steps[0])} …, columns ${count(column * found.steps[1])} …: ${count(found.counts.values[row * columns + column])} elements`;
  });
  const axes = Array.from({ length: found.rank }, (_, axis) => [axis, `axis ${axis} (${count(found.shape[axis])})`]);
  const pick = (name, other) => labelled(name, select(axes, found[name], (value) => { state[name] = value; state[other] = Number(value) === found[other] ? found[name] : found[other]; again(); }));
  return card("Sparsity pattern", found.rank > 2 ? h("div", { class: "controls" }, pick("rows", "columns"), pick("columns", "rows")) : null, canvas, readout);
}
