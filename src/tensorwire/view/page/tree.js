// The tree of files and folders on the left. An open tensor file shows its tensors.

import { get } from "./api.js";
import { count, countOf, h, replace } from "./dom.js";
import { bytes, shape } from "./format.js";

const SIGNS = { folder: "▸", tensors: "▦", records: "☰", checkpoint: "◈", model: "◉" };
const SAID = { folder: "folder", tensors: "tensor file", records: "record file", checkpoint: "checkpoint", model: "SavedModel" };
const KINDS = { dense: "▪", strings: "“", sparse: "⁘", ragged: "≣", broken: "!" };
// Loaded lists of tensors, by file id.
const files = new Map();
const open = new Set();
export const nodes = new Map();
let roots = [], left = 0, place, finder;

export async function start(element, input) {
  place = element; finder = input;
  finder.addEventListener("input", () => show());
  place.addEventListener("keydown", walk);
  await refresh();
}

export async function refresh() {
  const found = await get("tree");
  roots = found.roots; left = found.left_out;
  const learn = (node, way) => { nodes.set(node.id, { ...node, way }); node.children.forEach((child) => learn(child, [...way, node.name])); };
  nodes.clear();
  roots.forEach((node) => { learn(node, []); open.add(node.id); });
  if (roots.length === 1 && roots[0].kind === "folder") roots[0].children.filter((node) => node.kind === "folder").slice(0, 3).forEach((node) => open.add(node.id));
  show();
  return found;
}

export async function tensors(id) {
  if (!files.has(id)) files.set(id, await get("file", { id }));
  return files.get(id);
}

// Opens the folders above the item that is shown on the right, and marks it.
export async function reveal(id, n) {
  const node = nodes.get(id);
  if (!node) return;
  const openWay = (list) => list.some((one) => { if (one.id === id) return true; if (!openWay(one.children)) return false; open.add(one.id); return true; });
  openWay(roots);
  if (n !== undefined) { open.add(id); await tensors(id).catch(() => null); }
  show(id, n);
  place.querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
}

let chosen = [null, undefined];
function show(id = chosen[0], n = chosen[1]) {
  chosen = [id, n];
  const wanted = finder.value.trim().toLowerCase();
  const focused = document.activeElement?.dataset?.key;
  const list = roots.map((node) => branch(node, wanted)).filter(Boolean);
  replace(place, h("ul", { role: "tree", "aria-label": "Files" }, list), list.length ? null : h("p", { class: "quiet" }, "No matches."), left ? h("p", { class: "quiet" }, `${countOf(left, "more file")} not listed; open a smaller folder.`) : null);
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function branch(node, wanted) {
  const inside = node.children.map((child) => branch(child, wanted)).filter(Boolean);
  const known = files.get(node.id);
  const leaves = known && (wanted || open.has(node.id)) ? known.tensors.filter((tensor) => !wanted || tensor.name.toLowerCase().includes(wanted)) : [];
  if (wanted && !inside.length && !leaves.length && !node.name.toLowerCase().includes(wanted)) return null;
  const holds = node.children.length > 0 || node.kind === "tensors" || node.kind === "checkpoint";
  const isOpen = wanted ? inside.length + leaves.length > 0 : open.has(node.id);
  const go = async () => {
    if (node.kind === "folder") { toggle(node.id); return; }
    location.hash = `#${node.id}`;
    if (holds && !open.has(node.id)) { open.add(node.id); if (node.kind !== "model") await tensors(node.id).catch(() => null); show(); }
  };
  const button = h("button", { class: "leaf", "data-key": node.id, title: `${node.name} (${SAID[node.kind]}, ${bytes(node.size)})`, "aria-current": chosen[0] === node.id && chosen[1] === undefined ? "true" : null, onclick: go },
    h("span", { class: "sign", "aria-hidden": "true" }, node.kind === "folder" && isOpen ? "▾" : SIGNS[node.kind]), h("span", { class: "name" }, node.name), h("span", { class: "about" }, bytes(node.size)));
  const shown = isOpen ? h("ul", { role: "group" }, inside, leaves.map((tensor) => leaf(node.id, tensor)), known && known.total > known.tensors.length && isOpen ? h("li", { class: "quiet" }, h("a", { href: `#${node.id}` }, `all ${count(known.total)} tensors`)) : null) : null;
  return h("li", { role: "treeitem", "aria-expanded": holds ? String(isOpen) : null }, button, shown);
}

function leaf(id, tensor) {
  const current = chosen[0] === id && chosen[1] === tensor.n;
  return h("li", { role: "treeitem" }, h("button", { class: `leaf tensor is-${tensor.kind}`, "data-key": `${id}/${tensor.n}`, title: `${tensor.name} (${tensor.kind})`, "aria-current": current ? "true" : null, onclick: () => { location.hash = `#${id}/${tensor.n}`; } },
    h("span", { class: "sign", "aria-hidden": "true" }, KINDS[tensor.kind] || "·"), h("span", { class: "name" }, tensor.name), h("span", { class: "about" }, tensor.shape ? shape(tensor.shape) : "")));
}

async function toggle(id, wish) {
  const to = wish ?? !open.has(id);
  to ? open.add(id) : open.delete(id);
  const node = nodes.get(id);
  if (to && node && (node.kind === "tensors" || node.kind === "checkpoint")) await tensors(id).catch(() => null);
  show();
}

function walk(event) {
  const all = [...place.querySelectorAll(".leaf")], at = all.indexOf(document.activeElement);
  if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = document.activeElement.dataset.key;
  if (event.key === "ArrowDown") all[at + 1]?.focus();
  else if (event.key === "ArrowUp") all[at - 1]?.focus();
  else if (event.key === "Home") all[0].focus();
  else if (event.key === "End") all[all.length - 1].focus();
  else if (event.key === "ArrowRight") toggle(key, true);
  else if (event.key === "ArrowLeft") toggle(key.split("/")[0], false);
  else return;
  event.preventDefault();
  event.stopPropagation();
}
