// SPDX-License-Identifier: Apache-2.0
// --- The server. ---

function headers() {
  const key = $("key").value.trim();
  return {"Content-Type": "application/json", ...(key ? {Authorization: "Bearer " + key} : {})};
}

async function failure(response) {
  let message = response.status + " " + response.statusText;
  try { message = (await response.json()).error.message; } catch { /* no JSON: the status says it */ }
  return new Error(message);
}

async function get(path) {
  const response = await fetch(base + path, {headers: headers()});
  if (!response.ok) throw await failure(response);
  return response;
}

async function countTokens(text) {
  const response = await fetch(base + "/tokenize",
    {method: "POST", headers: headers(), body: JSON.stringify({content: text, parse_special: false})});
  if (!response.ok) throw await failure(response);
  return (await response.json()).tokens.length;
}

// The events of a chat; `body` without what every request of this page has.
async function* chat(body, signal) {
  const response = await fetch(base + "/v1/chat/completions", {
    method: "POST", headers: headers(), signal, body: JSON.stringify({
      ...body, stream: true, stream_options: {include_usage: true}, timings_per_token: true, return_progress: true,
      return_token_source: true})});
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: {")) continue;
      const json = JSON.parse(event.slice(6));
      if (json.error) throw new Error(json.error.message);
      yield json;
    }
  }
}

