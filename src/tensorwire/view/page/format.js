// Numbers and sizes as people read them.

export function bytes(n) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) { n /= 1000; unit++; }
  return `${unit === 0 ? n : n >= 100 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

export function shape(dims) {
  return dims.length ? dims.map((dim) => (dim === null ? "?" : dim)).join(" × ") : "scalar";
}

// Short: what fits an axis or a cell. Texts ("nan", integers past 2**53) stay as they are.
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
