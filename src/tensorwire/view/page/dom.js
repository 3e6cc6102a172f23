// DOM elements, built without parsing HTML, so that text from files can never become markup.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

export function put(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  return put(element, children);
}

export function fault(error) {
  return h("div", { class: "fault", role: "alert" }, error.message || String(error));
}

export function card(title, controls, ...body) {
  return h("section", { class: "card" }, title || controls ? h("header", {}, title && h("h2", {}, title), h("span", { class: "grow" }), controls) : null, body);
}

export function chip(text, kind = "") {
  return h("span", { class: `chip ${kind}` }, text);
}

let serial = 0;
export function labelled(text, control) {
  control.id = control.id || `c${++serial}`;
  return h("label", { for: control.id }, text, control);
}

export function select(options, value, changed) {
  const made = h("select", { onchange: () => changed(made.value) }, options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return made;
}

// Buttons for pages of `size` items out of `total` (null: not known yet). The arrow keys turn the pages of the newest pager.
let current = null;
export function pager({ start, size, total, what, go }) {
  const last = total === null ? null : Math.max(0, Math.floor((total - 1) / size) * size);
  const to = (at) => go(Math.max(0, last === null ? at : Math.min(at, last)));
  const number = h("input", { type: "number", min: "0", value: String(start), "aria-label": `Go to ${what}`, onchange: () => go(Math.max(0, Math.min(Number(number.value) || 0, total === null ? Infinity : Math.max(0, total - 1)))) });
  const button = (label, text, at, off) => h("button", { "aria-label": label, title: label, disabled: off, onclick: () => to(at) }, text);
  const atEnd = total !== null && start + size >= total;
  current = { previous: () => start > 0 && to(start - size), next: () => !atEnd && to(start + size) };
  const end = total === null ? start + size : Math.min(total, start + size);
  return h("div", { class: "pager" },
    h("span", { class: "group" }, button("First page", "«", 0, start === 0), button("Previous page", "←", start - size, start === 0), button("Next page", "→", start + size, atEnd), last === null ? null : button("Last page", "»", last, atEnd)),
    h("span", { class: "quiet" }, total === 0 ? `no ${what}s` : `${what}s ${count(start)} to ${count(end - 1)}${total === null ? "" : ` of ${count(total)}`}`),
    h("label", {}, h("span", { class: "quiet" }, "go to "), number));
}
export function turn(forward) {
  if (!current) return false;
  forward ? current.next() : current.previous();
  return true;
}
export function noPager() { current = null; }

export function count(n) { return Number(n).toLocaleString("en-US"); }
export function countOf(n, noun) { return `${count(n)} ${noun}${Number(n) === 1 ? "" : "s"}`; }
