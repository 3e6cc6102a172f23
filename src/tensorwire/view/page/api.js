// Questions to the server. What is asked for a view that is no longer shown is dropped.

let generation = 0;
export function renew() { return ++generation; }
export function stale(mark) { return mark !== generation; }

// The answer, or the error that stands in its place.
async function answer(response) {
  const isJson = (response.headers.get("content-type") || "").startsWith("application/json");
  if (!isJson) { if (response.ok) return response; throw new Error((await response.text()).trim() || `${response.status} ${response.statusText}`); }
  const found = await response.json();
  if (found.error !== undefined) throw new Error(found.error);
  return found;
}

export function address(name, params) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) if (value !== null && value !== undefined) words.set(key, value);
  return `/api/${name}?${words}`;
}

async function ask(url, options) {
  try { return await fetch(url, options); } catch { throw new Error("the server does not answer: has tensorwire view been stopped?"); }
}

export async function get(name, params = {}) {
  return answer(await ask(address(name, params)));
}

export async function post(name, params, body) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return answer(await ask(address(name, params), options));
}

// A line of JSON, then float64 row by row.
export async function getWindow(params) {
  const data = await (await answer(await ask(address("window", params)))).arrayBuffer();
  const whole = new Uint8Array(data);
  const end = whole.indexOf(10);
  const about = JSON.parse(new TextDecoder().decode(whole.subarray(0, end)));
  return { ...about, values: new Float64Array(data.slice(end + 1)) };
}
