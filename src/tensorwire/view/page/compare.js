// The comparison of two tensors: statistics of the difference, and where it is.

import { get, stale } from "./api.js";
import { card, count, fault, h, replace } from "./dom.js";
import { number, percent, shape } from "./format.js";
import { Heatmap } from "./heatmap.js";
import { figures, histogramCard } from "./parts.js";
import { lineChart } from "./charts.js";
import { nodes, tensors } from "./tree.js";

export async function compare(main, id, n, other, mark) {
  const body = h("div", {});
  main.append(await chooser(id, n, other), body);
  if (!other) { body.append(h("p", { class: "quiet" }, "Choose a tensor from this or another file.")); return; }
  const params = { id, n, id2: other[0], n2: other[1] };
  const load = async (exact) => {
    try {
      const found = await get("compare", { ...params, exact: exact ? 1 : 0 });
      if (!stale(mark)) replace(body, shown(found, params, () => load(true)));
    } catch (error) { if (!stale(mark)) replace(body, fault(error)); }
  };
  await load(false);
}

// The list of all files, and of the tensors in the selected one. A tensor of the same name is selected at first.
async function chooser(id, n, other) {
  const mine = (await tensors(id)).tensors.find((tensor) => tensor.n === n);
  const fileList = [...nodes.values()].filter((node) => node.kind === "tensors" || node.kind === "checkpoint");
  const second = h("select", { id: "with-tensor", "aria-label": "Tensor to compare with" });
  const first = h("select", { id: "with-file", "aria-label": "File to compare with", onchange: () => fill(first.value) }, fileList.map((node) => h("option", { value: node.id, selected: node.id === (other ? other[0] : id) }, [...node.way.slice(1), node.name].join("/"))));
  const failed = h("span", {});
  const button = h("button", { class: "main", onclick: () => { if (second.value !== "") location.hash = `#${id}/${n}/compare/${first.value}/${second.value}`; } }, "Compare");
  const fill = async (file) => {
    // The list still shows the tensors of the previous file.
    second.disabled = button.disabled = true;
    try {
      const list = (await tensors(file)).tensors;
      // Another file was selected in the meantime.
      if (first.value !== file) return;
      const like = other && other[0] === file ? other[1] : list.find((tensor) => tensor.name === mine?.name && !(file === id && tensor.n === n))?.n;
      replace(second, h("option", { value: "" }, "choose…"), list.map((tensor) => h("option", { value: String(tensor.n), selected: tensor.n === like }, `${tensor.name}  ${tensor.shape ? shape(tensor.shape) : ""}`)));
      replace(failed);
    } catch (error) { if (first.value !== file) return; replace(second); replace(failed, fault(error)); }
    second.disabled = button.disabled = false;
  };
  await fill(first.value);
  return card("Compare with", null, h("div", { class: "controls" }, first, second, button), failed);
}

function shown(found, params, all) {
  const parts = [], one = found.statistics, sum = found.summary;
  if (found.note) parts.push(h("div", { class: "note" }, found.note));
  if (sum) parts.push(sum.exact ? h("p", { class: "fine" }, "Bit-exact: all values are equal.") : sum.problems.length ? h("div", { class: "note" }, `Different: ${sum.problems.join(", ")}.`) : h("p", { class: "fine" }, "Equal."));
  if (!one) {
    const pairs = [["kinds", `${found.a.kind}, ${found.b.kind}`], ["dtypes", `${found.a.dtype}, ${found.b.dtype}`], ["shapes", `${shape(found.a.shape)}, ${shape(found.b.shape)}`], sum && sum.elements !== null && ["compared", count(sum.elements)], sum && sum.unequal !== null && ["unequal", count(sum.unequal)], sum && sum.max_abs !== null && ["max abs difference", number(sum.max_abs)]];
    return [...parts, card("Differences", null, figures(pairs))];
  }
  const button = h("button", { onclick: () => { button.disabled = true; button.textContent = "Comparing…"; all(); } }, "Compare all elements");
  const pairs = [["unequal", count(one.unequal), percent(one.unequal, one.counted), one.unequal > 0], ["max abs difference", number(one.max_abs, 6)], ["mean difference", number(one.mean, 6)], ["RMS difference", number(one.rms, 6)], sum && ["max rel difference", number(sum.max_rel, 6)], ["NaN or inf in one", count(one.nan + one.inf), "", one.nan + one.inf > 0], ["compared", count(one.counted)], found.a.dtype !== found.b.dtype && ["dtypes", `${found.a.dtype}, ${found.b.dtype}`, "", true]];
  const side = [card("Differences", null, one.exact ? null : h("div", { class: "note" }, `From a sample of ${count(one.counted)} elements.`, button), figures(pairs)), histogramCard(one, "elements", "Histogram of the difference")];
  const dims = found.a.shape;
  if (dims.includes(0) || !dims.length) return [...parts, h("div", { class: "two" }, side)];
  if (dims.length > 1) return [...parts, h("div", { class: "beside" }, card("Heat map of the difference: first minus second", null, new Heatmap(params, dims, { signed: true, at: found.largest }).element), h("div", {}, side))];
  return [...parts, card("Difference: first minus second", null, lineChart(dims[0], (start, stop, points) => get("line", { ...params, start, stop, points }))), h("div", { class: "two" }, side)];
}
