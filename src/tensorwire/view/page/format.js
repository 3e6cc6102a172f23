// Text for numbers, sizes and shapes, as on the command line: 1,234, 1.2 MB, [2, 3].

export function bytes(n) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) { n /= 1000; unit++; }
  return unit === 0 ? `${n} byte${n === 1 ? "" : "s"}` : `${n.toFixed(1)} ${units[unit]}`;
}

export function shape(dims) {
  return `[${dims.map((dim) => (dim === null ? "?" : dim)).join(", ")}]`;
}

// A short number for an axis or a cell. Text ("nan", integers beyond 2**53) is not changed.
export function number(x, digits = 5) {
  if (x === null || x === undefined) return "–";
  if (typeof x === "string") return x;
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e9) return x.toLocaleString("en-US").replace("-", "−");
  const text = size < 1e-3 || size >= 1e7 ? x.toExponential(Math.max(1, digits - 2)) : Number(x.toPrecision(digits)).toString();
  return text.replaceAll("-", "−");
}

export function percent(part, whole) {
  if (!whole) return "";
  const share = (part / whole) * 100;
  return share === 0 ? "0 %" : share < 0.01 ? "<0.01 %" : `${Number(share.toPrecision(3))} %`;
}
