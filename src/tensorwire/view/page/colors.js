// Perceptually uniform colour maps, computed in Oklab: lightness rises evenly, so that they also work in greyscale and for colour-blind people.

// The colour in sRGB; chroma is reduced until the colour is in gamut.
function rgb(lightness, chroma, hue) {
  let found = linear(lightness, chroma, hue);
  while (chroma > 0.001 && found.some((x) => x < -0.0005 || x > 1.0005)) found = linear(lightness, (chroma *= 0.97), hue);
  return found.map((x) => Math.round(255 * Math.min(1, Math.max(0, x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055))));
}

function linear(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue), b = chroma * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
}

const turn = Math.PI / 180;

// The sequential map: dark violet-blue, teal, light yellow.
const rising = Array.from({ length: 256 }, (_, i) => {
  const t = i / 255;
  return rgb(0.24 + 0.69 * t, 0.092 + 0.045 * (2 * t - 1) ** 2, (292 - 190 * t) * turn);
});

// The diverging map: blue for negative, red for positive, nearly white around zero.
const around = Array.from({ length: 256 }, (_, i) => {
  const t = (i / 255) * 2 - 1, size = Math.abs(t);
  return rgb(0.965 - 0.52 * size ** 1.1, 0.165 * Math.sin(Math.min(1, size * 1.15) * Math.PI * 0.5) , (t < 0 ? 250 : 29) * turn);
});

export const MAPS = { rising, around };
export const NAN = [233, 30, 160];
export const INFINITE = [255, 140, 0];

export function css(color) { return `rgb(${color.join(" ")})`; }

// The colour of a value between low and high.
export function color(value, low, high, map) {
  if (Number.isNaN(value)) return NAN;
  if (!Number.isFinite(value)) return INFINITE;
  const place = high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
  return map[Math.max(0, Math.min(255, Math.round(place * 255)))];
}

// Black or white, whichever is readable on the colour.
export function onColor([r, g, b]) { return r * 0.299 + g * 0.587 + b * 0.114 > 140 ? "#10161c" : "#ffffff"; }
