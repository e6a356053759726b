// SPDX-License-Identifier: Apache-2.0
// --- What messages are made of. ---

const number = n => n.toLocaleString("en");
const rate = n => n < 1000 ? n.toFixed(n < 10 ? 2 : 1) : number(Math.round(n));
function bold(text) { const b = document.createElement("b"); b.textContent = text; return b; }
function say(text, bad = false) { $("status").textContent = text; $("status").classList.toggle("error", bad); }

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function addMessage(role, title) {
  $("hello").hidden = true;
  const article = element("article", role);
  article.append(element("h3", "", title));
  $("log").append(article);
  scrollDown();
  return article;
}

function atEnd() {
  const log = $("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 120;
}
function scrollDown() { $("log").scrollTop = $("log").scrollHeight; }

function button(className, text, act) {
  const made = element("button", className, text);
  made.type = "button";
  made.onclick = act;
  return made;
}

async function copyText(text) {
  try { await navigator.clipboard.writeText(text); say("Copied."); return true; }
  catch { say("The browser does not allow it.", true); return false; }
}

// Colours are given to drafters as they are met.
const colours = new Map();
function colourOf(drafter) {
  if (!colours.has(drafter)) {
    colours.set(drafter, `guess d${colours.size % 6}`);
    const item = document.createElement("li");
    item.append(element("span", colours.get(drafter), drafter));
    $("legend").append(item);
  }
  return colours.get(drafter);
}
