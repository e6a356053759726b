// SPDX-License-Identifier: Apache-2.0
// --- Documents. ---

function showDocuments() {
  const list = $("documents");
  list.replaceChildren();
  for (const one of documents) {
    const item = document.createElement("li");
    item.className = "chip";
    item.append(bold(one.name), one.tokens === null ? "…" : number(one.tokens) + " tokens");
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "×";
    remove.setAttribute("aria-label", "Remove " + one.name);
    remove.onclick = () => { documents.splice(documents.indexOf(one), 1); showDocuments(); $("input").focus(); };
    item.append(remove);
    list.append(item);
  }
  const total = documents.reduce((sum, one) => sum + (one.tokens ?? 0), 0);
  if (contextSize && total > contextSize)
    say(`These documents have ${number(total)} tokens; the context has room for ${number(contextSize)}.`, true);
}

async function addDocuments(files) {
  for (const file of files) {
    const one = {name: file.name, text: await file.text(), tokens: null};
    if (one.text.includes("\0")) { say(file.name + " is no text.", true); continue; }
    documents.push(one);
    showDocuments();
    try {
      one.tokens = await countTokens(one.text);
      say("");
    } catch (error) {
      documents.splice(documents.indexOf(one), 1);
      say(file.name + ": " + error.message, true);
    }
    showDocuments();
  }
}

