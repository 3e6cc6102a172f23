// Parts that several pages share: statistics, strings, and previews of values.

import { histogram } from "./charts.js";
import { card, count, h } from "./dom.js";
import { bytes, number, percent } from "./format.js";

export function figures(pairs) {
  return h("dl", { class: "figures" }, pairs.filter(Boolean).map(([term, value, small, alarm]) => h("div", {}, h("dt", {}, term), h("dd", { class: alarm ? "alarm" : "" }, value, small ? h("small", {}, ` ${small}`) : null))));
}

export function statisticsCard(found, countAll, title = "Statistics") {
  const part = (n) => percent(n, found.counted);
  const pairs = [["min", number(found.min, 7)], ["max", number(found.max, 7)], ["mean", number(found.mean, 7)], ["std", number(found.std, 6)], ["zeros", count(found.zeros), part(found.zeros)], ["NaN", count(found.nan), found.nan ? part(found.nan) : "", found.nan > 0], ["inf", count(found.inf), found.inf ? part(found.inf) : "", found.inf > 0], ["elements", count(found.size)]];
  return card(title, null, found.exact ? null : sampleNote(found, countAll), figures(pairs));
}

function sampleNote(found, countAll) {
  const button = countAll && h("button", { onclick: () => { button.disabled = true; button.textContent = "Reading…"; countAll(); } }, "Use all elements");
  return h("div", { class: "note" }, h("span", {}, `From a sample of ${count(found.counted)} elements.`), button);
}

export function histogramCard(found, what, title = "Histogram") {
  return card(title, null, histogram(found, what));
}

// The text of a string, with the search term marked.
export function stringText(item, wanted = "") {
  const text = h("div", { class: `text ${item.binary ? "binary" : ""}` });
  const at = wanted && !item.binary ? item.text.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
  if (at >= 0) text.append(item.text.slice(0, at), h("mark", {}, item.text.slice(at, at + wanted.length)), item.text.slice(at + wanted.length));
  else text.append(item.text === "" && !item.size ? "(empty)" : item.text);
  if (item.cut) text.append(" …");
  return text;
}

export function image(address, alt) { return h("img", { class: "found", src: address, alt, loading: "lazy" }); }

// The preview of a feature or a row. `picture(i)` is the URL of string i as an image.
export function values(one, picture) {
  if (one.kind === "strings") {
    return h("div", { class: "rows" }, one.strings.map((item, i) => h("div", {}, item.image && picture ? image(picture(i), `${item.image}, ${bytes(item.size)}`) : stringText(item), item.binary || item.cut ? h("small", { class: "quiet" }, `${item.image ? `${item.image}, ` : ""}${bytes(item.size)}`) : null)), more(one, one.strings.length));
  }
  if (one.kind === "ragged") return h("div", { class: "rows" }, one.rows.map((row) => h("div", {}, "[", row.values ? row.values.join(", ") : values(row), "]")), one.shape[0] > one.rows.length ? h("span", { class: "quiet" }, `… ${count(one.shape[0])} rows`) : null);
  if (one.kind === "sparse") return h("div", { class: "rows" }, one.entries.map((entry) => h("div", {}, `[${entry.at.join(", ")}] ${entry.value}`)));
  return h("span", {}, one.values.join(", "), more(one, one.values.length));
}

function more(one, shown) {
  const total = one.shape.reduce((a, b) => a * (b ?? 1), 1);
  return total > shown ? h("span", { class: "quiet" }, ` … ${count(total)} in total`) : null;
}
