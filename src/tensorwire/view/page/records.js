// Record files: pages of records, the schema, and integrity.

import { address, get, stale } from "./api.js";
import { card, chip, count, countOf, fault, h, pager, replace } from "./dom.js";
import { bytes, number, percent, shape } from "./format.js";
import { figures, stringText, values } from "./parts.js";

const PAGE = 10;

export async function pages(main, id, mark, start = 0) {
  const note = h("div", {}), body = h("div", {}), foot = h("div", { class: "card" });
  main.append(note, foot, body);
  const go = async (from) => {
    body.classList.add("busy");
    try {
      const found = await get("records", { id, start: from, count: PAGE });
      if (stale(mark)) return;
      history.replaceState(null, "", `#${id}/records/${found.start}`);
      replace(note, found.damage ? h("div", { class: "note" }, h("span", {}, `This file is damaged; only its good records are numbered. ${found.damage}`), h("a", { href: `#${id}/integrity` }, "Integrity")) : found.counting ? h("div", { class: "note" }, "Counting records… The first 10,000 are available in the meantime.") : null);
      replace(body, found.records.map((record) => one(id, record)), found.records.length ? null : h("p", { class: "quiet" }, "No records."));
      replace(foot, pager({ start: found.start, size: PAGE, total: found.total, what: "record", go }));
      if (found.counting) setTimeout(() => { if (!stale(mark)) go(found.start); }, 1500);
    } catch (error) { replace(body, fault(error)); }
    body.classList.remove("busy");
  };
  await go(start);
}

function one(id, record) {
  const head = h("header", {}, h("h2", {}, `Record ${count(record.at)}`), chip(record.kind), chip(bytes(record.size)));
  if (record.raw) return h("section", { class: "card" }, head, stringText(record.raw));
  return h("section", { class: "card" }, head, h("dl", { class: "record" }, record.features.map((feature, i) => [
    h("dt", {}, feature.name, h("small", {}, `${feature.kind === "dense" || feature.kind === "strings" ? "" : `${feature.kind} `}${feature.dtype} [${feature.shape.map((dim) => dim ?? "?").join(", ")}]`)),
    h("dd", {}, values(feature, (at) => address("record_image", { id, record: record.at, feature: i, at }))),
  ])));
}

export async function schema(main, id, mark) {
  const found = await get("schema", { id });
  if (stale(mark)) return;
  const range = (seen) => (seen.range ? `${number(Number(seen.range[0]))} to ${number(Number(seen.range[1]))}` : seen.sizes ? `${bytes(seen.sizes[0])} to ${bytes(seen.sizes[1])}` : "–");
  const row = (feature) => {
    const present = feature.seen.present ?? 0;
    const bar = h("i", {});
    bar.style.width = `${found.records ? (100 * present) / found.records : 0}%`;
    return h("tr", {}, h("td", { class: "name" }, feature.name, feature.list ? h("small", { class: "quiet" }, " list") : null), h("td", {}, feature.kind), h("td", { class: "nowrap" }, feature.shape === undefined || feature.shape === null || !feature.shape.length ? "[]" : shape(feature.shape)),
      h("td", { class: "nowrap" }, h("span", { class: "reach", "aria-hidden": "true" }, bar), percent(present, found.records)), h("td", { class: "num" }, feature.seen.lengths ? feature.seen.lengths.map(count).join(" to ") : "–"), h("td", { class: "num" }, range(feature.seen)), h("td", { class: "num" }, feature.seen.nan ? count(feature.seen.nan) : "–"));
  };
  main.append(card(countOf(found.features.length, "feature"), h("span", { class: "quiet" }, found.complete ? `from all ${countOf(found.records, "record")}` : `from a sample of ${countOf(found.records, "record")}`),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "feature"), h("th", {}, "kind"), h("th", {}, "shape"), h("th", {}, "present"), h("th", { class: "num" }, "length"), h("th", { class: "num" }, "min to max, or size"), h("th", { class: "num" }, "NaN"))), h("tbody", {}, found.features.map(row))))));
}

// The integrity check of record and tensor files. Small files are checked at once, larger ones when the button is pressed.
export function integrity(main, node, mark) {
  const body = h("div", {});
  const button = h("button", { class: "main", onclick: () => check() }, "Verify file");
  main.append(card("Integrity", button, body));
  const check = async () => {
    button.disabled = true;
    replace(body, h("p", { class: "quiet" }, `Reading ${bytes(node.size)}…`));
    try {
      const found = await get("verify", { id: node.id });
      if (stale(mark)) return;
      replace(body, report(found));
    } catch (error) { replace(body, fault(error)); }
    button.disabled = false;
  };
  if (node.size <= 64e6) check();
  else replace(body, h("p", { class: "quiet" }, `Verifying reads all ${bytes(node.size)}.`));
}

function report(found) {
  const lost = (found.gaps || []).reduce((sum, gap) => sum + gap.length, 0);
  const pairs = [["status", found.ok ? "OK" : "DAMAGED", "", !found.ok], found.records !== undefined && ["good records", count(found.records)], found.tensors !== undefined && ["tensors read", count(found.tensors)], ["bytes read", count(found.nbytes)], ["checksums", found.checksums ? "verified" : "none", found.checksums ? "" : "only the structure was checked"], found.gaps && ["damaged regions", count(found.gap_count), "", found.gap_count > 0], found.gaps && ["bytes lost", count(lost), "", lost > 0]];
  const strip = found.gaps && h("div", { class: "strip", role: "img", "aria-label": countOf(found.gap_count, "damaged region") }, found.gaps.map((gap) => { const part = h("i", { title: `${gap.offset}: ${gap.why}` }); part.style.left = `${(100 * gap.offset) / Math.max(1, found.size)}%`; part.style.width = `${(100 * gap.length) / Math.max(1, found.size)}%`; return part; }));
  const table = found.gaps && found.gaps.length ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { class: "num" }, "offset"), h("th", { class: "num" }, "bytes"), h("th", {}, "problem"))), h("tbody", {}, found.gaps.map((gap) => h("tr", {}, h("td", { class: "num" }, count(gap.offset)), h("td", { class: "num" }, count(gap.length)), h("td", {}, gap.why)))))) : found.problems.map((problem) => h("div", { class: "fault" }, problem));
  return [figures(pairs), strip, table, found.gaps?.length ? h("p", { class: "quiet" }, "To copy the good records to a new file, run: tensorwire repair FILE TARGET") : null];
}
