// SavedModels: signatures, and a form that builds a request and checks it by the rules of TensorFlow Serving.

import { get, post, stale } from "./api.js";
import { card, chip, fault, h, replace, select, labelled } from "./dom.js";
import { bytes } from "./format.js";

export async function signatures(main, id, mark) {
  const found = await get("model", { id });
  if (stale(mark)) return;
  if (!found.signatures.length) main.append(h("p", { class: "quiet" }, "This SavedModel has no signatures."));
  for (const one of found.signatures) main.append(signature(id, found, one));
}

function table(title, parts) {
  const dims = (part) => (part.shape === null ? "any rank" : `[${part.shape.map((dim) => (dim === null ? "?" : dim)).join(", ")}]`);
  return h("div", { class: "scroll" }, h("h3", {}, title), h("table", {}, h("tbody", {}, Object.entries(parts).map(([name, part]) => h("tr", {}, h("td", { class: "name" }, name), h("td", {}, part.dtype), h("td", { class: "mono nowrap" }, dims(part)))))));
}

function signature(id, found, one) {
  const fields = {};
  const inputs = Object.keys(one.inputs).map((name) => {
    const field = h("textarea", { rows: "2", spellcheck: "false", id: `${id}-${one.name}-${name}` }, one.start[name]);
    fields[name] = field;
    const part = one.inputs[name];
    return [h("label", { for: field.id }, name, h("small", {}, `${part.dtype} ${part.shape ? `[${part.shape.map((dim) => dim ?? "?").join(", ")}]` : ""}`)), field];
  });
  const url = h("input", { value: found.url, spellcheck: "false", size: "28" }), name = h("input", { value: found.model, spellcheck: "false" });
  let layout = "auto";
  const result = h("div", { "aria-live": "polite" });
  const build = async () => {
    replace(result, h("p", { class: "quiet" }, "Building…"));
    const texts = Object.fromEntries(Object.entries(fields).map(([key, field]) => [key, field.value]).filter(([, text]) => text.trim() !== ""));
    try { replace(result, answer(await post("request", { id }, { signature: one.name, inputs: texts, url: url.value, model: name.value, layout }))); } catch (error) { replace(result, fault(error)); }
  };
  const groups = one.groups.length ? h("p", { class: "quiet" }, one.groups.map((group) => `${group.name} is a ${group.kind} tensor: ${Object.values(group.parts).join(", ")}. `)) : null;
  return card(null, null, h("header", {}, h("h2", { class: "mono" }, one.name), chip(one.method)), h("div", { class: "two" }, table("Inputs", one.inputs), table("Outputs", one.outputs)), groups,
    h("h3", {}, "Request"), h("div", { class: "form" }, inputs),
    h("div", { class: "controls" }, labelled("server", url), labelled("model", name), one.method === "predict" ? labelled("layout", select([["auto", "auto"], ["rows", "rows"], ["columns", "columns"]], layout, (value) => { layout = value; })) : null, h("button", { class: "main build", onclick: build }, "Build request")), result);
}

function copyable(title, text) {
  const button = h("button", { onclick: async () => { try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select the text to copy"; } } }, "Copy");
  return card(title, button, h("pre", { class: "code", tabindex: "0" }, text));
}

function answer(found) {
  return [found.fault ? h("div", { class: "fault" }, `TensorFlow Serving would answer ${found.fault}`) : h("p", { class: "fine" }, `TensorFlow Serving would accept this body (${bytes(found.size)}).`),
    copyable("Body", found.body), found.curl ? copyable("curl", found.curl) : h("p", { class: "quiet" }, `A body of ${bytes(found.size)} does not fit on a command line.`), found.explained ? card("How the inputs are sent", null, h("pre", { class: "code" }, found.explained)) : null];
}
