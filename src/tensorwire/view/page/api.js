// Requests to the server. Responses for a view that is no longer shown are dropped.

let generation = 0;
export function renew() { return ++generation; }
export function stale(mark) { return mark !== generation; }

// The JSON or binary response; an error in it is thrown.
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
  try { return await fetch(url, options); } catch { throw new Error("The server does not respond. Was tensorwire view stopped?"); }
}

export async function get(name, params = {}) {
  return answer(await ask(address(name, params)));
}

export async function post(name, params, body) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return answer(await ask(address(name, params), options));
}

// A response of a line of JSON, then float64 values by rows.
export async function getWindow(params) {
  const data = await (await answer(await ask(address("window", params)))).arrayBuffer();
  const whole = new Uint8Array(data);
  const end = whole.indexOf(10);
  const about = JSON.parse(new TextDecoder().decode(whole.subarray(0, end)));
  return { ...about, values: new Float64Array(data.slice(end + 1)) };
}
