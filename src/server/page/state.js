// SPDX-License-Identifier: Apache-2.0
// --- The server's state. ---

async function refreshServer() {
  try {
    const slots = await (await get("/slots")).json();
    const busy = slots.filter(slot => slot.is_processing).length;
    $("slots-text").textContent = `${busy} of ${slots.length} slots busy`;
    $("slots").replaceChildren(...slots.map(slot => {
      const box = element("i", slot.is_processing ? "busy" : slot.n_prompt_tokens ? "kept" : "");
      box.title = `slot ${slot.id}: ${slot.n_prompt_tokens} tokens`;
      return box;
    }));
  } catch (error) { $("slots-text").textContent = "Slots: " + error.message; }
  try {
    const text = await (await get("/metrics")).text();
    const value = name => Number(text.match(new RegExp("^longspec:" + name + " (\\S+)$", "m"))?.[1] ?? 0);
    const used = value("kv_cache_usage_perc");
    $("memory-text").textContent = `${(100 * used).toFixed(0)} % of the memory for keys and values in use`;
    $("memory-bar").style.width = 100 * used + "%";
    $("server-facts").textContent = `${number(value("num_requests_running"))} running, ` +
      `${number(value("num_requests_waiting"))} waiting; ${number(value("generation_tokens_total"))} tokens written`;
  } catch (error) { $("memory-text").textContent = "Metrics: " + error.message; }
}

async function loadProps() {
  try {
    const props = await (await get("/props")).json();
    contextSize = props.default_generation_settings.n_ctx;
    $("model").textContent = `${props.model_alias} · ${number(contextSize)} tokens of context · ${props.kernels}`;
  } catch (error) {
    $("model").textContent = error.message;
    setTimeout(loadProps, 2000);  // the model may still be loaded
  }
}

// Only while somebody looks.
setInterval(() => { if (!document.hidden && (running || Date.now() % 5000 < 1000)) refreshServer(); }, 1000);

