// Routing: the URL hash is the state (#n3 a file, #n3/5 its sixth tensor, #n3/5/compare/n4/0 a comparison), so that links and "back" work.

import { get, renew, stale } from "./api.js";
import { redrawAll } from "./charts.js";
import { compare } from "./compare.js";
import { album, overview, valuesTable } from "./dense.js";
import { card, chip, count, countOf, fault, h, noPager, replace, turn } from "./dom.js";
import { bytes, shape } from "./format.js";
import { signatures } from "./model.js";
import { ragged, sparse, strings } from "./others.js";
import { integrity, pages, schema } from "./records.js";
import { nodes, refresh, reveal, start } from "./tree.js";

const main = document.getElementById("main"), finder = document.getElementById("find"), keys = document.getElementById("keys"), menu = document.getElementById("menu");
const SAID = { folder: "folder", tensors: "tensor file", records: "record file", checkpoint: "checkpoint", model: "SavedModel" };

function title(name, way, chips, kind) {
  document.title = `${name} – tensorwire view`;
  return h("div", { class: "title" }, h("div", { class: "way" }, way), h("h1", {}, name), h("div", { class: "chips" }, chip(kind, "kind"), chips.filter(Boolean)));
}

function tabs(base, list, current) {
  return h("nav", { class: "tabs", "aria-label": "Views" }, list.filter(Boolean).map(([key, text]) => h("a", { href: `#${base}${key ? `/${key}` : ""}`, "aria-current": key === current ? "page" : null }, text)));
}

async function route() {
  const mark = renew();
  const [id, second, ...rest] = location.hash.slice(1).split("/").map(decodeURIComponent);
  if (id === "main") return;
  document.body.classList.remove("open");
  menu.setAttribute("aria-expanded", "false");
  noPager();
  const node = nodes.get(id);
  if (!node) { welcome(); return; }
  const isTensor = second !== undefined && /^\d+$/.test(second);
  reveal(id, isTensor ? Number(second) : undefined);
  const page = h("div", {});
  replace(main, page);
  main.scrollTop = 0;
  try {
    if (isTensor) await tensor(page, node, Number(second), rest, mark);
    else if (node.kind === "records") await recordFile(page, node, second || "records", rest, mark);
    else if (node.kind === "model") { page.append(title(node.name, node.way.join(" / "), [], "SavedModel")); await signatures(page, id, mark); }
    else if (node.kind === "folder") welcome();
    else await tensorFile(page, node, second || "", mark);
  } catch (error) { if (!stale(mark)) { if (!page.children.length) page.append(title(node.name, node.way.join(" / "), [], SAID[node.kind])); page.append(fault(error)); } }
}

// Any matrix could be drawn in grey; the tab Images appears only if the shape or dtype suggests images.
function isAlbum(about) {
  return about.pictures.some((one) => one.layout !== "hw") || (about.pictures.length > 0 && (about.shape.length > 2 || about.dtype === "uint8"));
}

async function tensor(page, node, n, [view = "", ...rest], mark) {
  const about = await get("tensor", { id: node.id, n });
  if (stale(mark)) return;
  const way = [...node.way, node.name].join(" / ");
  if (about.kind === "broken") { page.append(title(about.name, way, [], "broken"), h("div", { class: "fault" }, about.error)); return; }
  const chips = [chip(about.dtype), chip(shape(about.shape)), chip(bytes(about.nbytes)), about.quantized && chip(`quantized: ${about.quantized}`), about.compression && chip(about.compression)];
  page.append(title(about.name, h("a", { href: `#${node.id}` }, way), chips, about.kind));
  const dense = about.kind === "dense", base = `${node.id}/${n}`;
  page.append(tabs(base, [["", "Overview"], dense && about.shape.length > 0 && ["values", "Values"], isAlbum(about) && ["images", "Images"], ["compare", "Compare"]], view));
  const said = Object.entries(about.metadata || {});
  const params = { id: node.id, n };
  if (view === "values") await valuesTable(page, params, about);
  else if (view === "images" && about.pictures.length) album(page, params, about);
  else if (view === "compare") await compare(page, node.id, n, rest.length === 2 ? [rest[0], Number(rest[1])] : null, mark);
  else await { dense: overview, strings, ragged, sparse }[about.kind](page, params, about, mark);
  if (said.length && view === "" && !stale(mark)) page.append(metadataCard(said));
}

function metadataCard(said) {
  return card("Metadata", null, h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, said.map(([key, text]) => h("tr", {}, h("td", { class: "name" }, key), h("td", {}, text)))))));
}

async function tensorFile(page, node, view, mark) {
  const head = (chips) => title(node.name, node.way.join(" / "), chips, SAID[node.kind]);
  const found = await get("file", { id: node.id });
  if (stale(mark)) return;
  const chips = [chip(found.format), chip(bytes(found.size)), chip(countOf(found.total, "tensor")), found.compression && chip(found.compression), chip(found.checksums ? "checksums" : "no checksums")];
  page.append(head(chips), tabs(node.id, [["", "Tensors"], ["integrity", "Integrity"]], view));
  if (view === "integrity") { integrity(page, node, mark); return; }
  const said = Object.entries(found.metadata);
  const body = h("div", {}), note = h("span", { class: "quiet" });
  const row = (one) => h("tr", {}, h("td", { class: "name" }, h("a", { href: `#${node.id}/${one.n}` }, one.name)), one.kind === "broken" ? h("td", { colSpan: 4 }, one.error) : [h("td", {}, one.kind), h("td", {}, one.dtype), h("td", { class: "nowrap" }, shape(one.shape)), h("td", { class: "num" }, bytes(one.nbytes))]);
  const list = (answer) => {
    note.textContent = answer.found > answer.tensors.length ? `first ${count(answer.tensors.length)} of ${count(answer.found)}` : "";
    replace(body, h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "name"), h("th", {}, "kind"), h("th", {}, "dtype"), h("th", {}, "shape"), h("th", { class: "num" }, "size"))), h("tbody", {}, answer.tensors.map(row)))));
  };
  const field = h("input", { type: "search", id: "search", placeholder: "Find a tensor  ( / )", "aria-label": "Find a tensor", oninput: async () => { const text = field.value; const answer = await get("file", { id: node.id, filter: text }); if (text === field.value && !stale(mark)) list(answer); } });
  page.append(card("Tensors", h("div", { class: "controls" }, note, found.total > 8 ? field : null), body), said.length ? metadataCard(said) : "");
  list(found);
}

async function recordFile(page, node, view, rest, mark) {
  page.append(title(node.name, node.way.join(" / "), [chip(bytes(node.size))], "record file"), tabs(node.id, [["records", "Records"], ["schema", "Schema"], ["integrity", "Integrity"]], view));
  if (view === "schema") await schema(page, node.id, mark);
  else if (view === "integrity") integrity(page, node, mark);
  else await pages(page, node.id, mark, Number(rest[0]) || 0);
}

function welcome() {
  document.title = "tensorwire view";
  const all = [...nodes.values()].filter((node) => node.kind !== "folder");
  replace(main, h("div", { class: "welcome" }, h("h1", {}, countOf(all.length, "file")), h("p", { class: "quiet" }, "All data stays on this machine, and no file is changed. Large files open at once, because only the parts that are shown are read."),
    card(null, null, h("table", {}, h("tbody", {}, all.slice(0, 200).map((node) => h("tr", {}, h("td", { class: "name" }, h("a", { href: `#${node.id}` }, [...node.way.slice(1), node.name].join("/"))), h("td", {}, SAID[node.kind]), h("td", { class: "num" }, bytes(node.size))))))), h("p", { class: "quiet" }, "Press ", h("kbd", {}, "?"), " for keyboard shortcuts.")));
}

// Light or dark: the setting of the system, until the user chooses.
function theme(choice) {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = choice || system;
  redrawAll();
}
function stored() { try { return localStorage.getItem("theme"); } catch { return null; } }
function switchTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", next); } catch { /* Without storage the choice lasts until the page is closed. */ }
  theme(next);
}

document.getElementById("theme").addEventListener("click", switchTheme);
document.getElementById("help").addEventListener("click", () => keys.showModal());
menu.addEventListener("click", () => { const is = document.body.classList.toggle("open"); menu.setAttribute("aria-expanded", String(is)); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (!stored()) theme(null); });
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (typing) {
    if (event.key !== "Escape") return;
    if (event.target.type === "search") { event.preventDefault(); event.target.value = ""; event.target.dispatchEvent(new Event("input")); }
    event.target.blur();
    return;
  }
  if (event.key === "/") { const field = document.getElementById("search"); if (!field) document.body.classList.add("open"); (field || finder).focus(); }
  else if (event.key === "?") keys.showModal();
  else if (event.key === "t") switchTheme();
  else if (event.key === "ArrowRight") { if (!turn(true)) return; }
  else if (event.key === "ArrowLeft") { if (!turn(false)) return; }
  else if (event.key === "r") { refresh().then(route); }
  else return;
  event.preventDefault();
});

theme(stored());
// The token is in a cookie now, so it is removed from the URL.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
start(document.getElementById("tree"), finder).then(() => {
  const all = [...nodes.values()].filter((node) => node.kind !== "folder");
  if (!location.hash && all.length === 1) history.replaceState(null, "", `#${all[0].id}`);
  route();
  addEventListener("hashchange", route);
}).catch((error) => replace(main, fault(error)));
