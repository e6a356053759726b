// SPDX-License-Identifier: Apache-2.0
// --- Conversations, kept in the browser. ---
//
// The list of them, last used first, and the turns of each; which one is open is the tab's own business.

const kChats = "longspec.chats", kChat = "longspec.chat.", kOpen = "longspec.open";
const kMostOfChat = 4e6;  // characters; browsers have room for 5 million in all
let chatId = null;        // null: nothing of this conversation is kept yet

function chatList() {
  try { return JSON.parse(localStorage.getItem(kChats)) ?? []; } catch { return []; }
}

function storeChats(list) {
  localStorage.setItem(kChats, JSON.stringify(list));
  showChats();
}

function setChat(id) {
  chatId = id;
  try { if (id) sessionStorage.setItem(kOpen, id); else sessionStorage.removeItem(kOpen); } catch { /* no storage */ }
}

function titleOf(turn) {
  const text = turn.content.trim().split("\n")[0] || turn.documents?.map(one => one.name).join(", ") || "Conversation";
  return text.length > 60 ? text.slice(0, 60) + "…" : text;
}

// Keeps the conversation as it is now; the oldest ones make room for it. What there is to say about that, or nothing.
function keepChat() {
  if (!turns.length) {
    if (chatId) dropChat(chatId);
    return "";
  }
  const text = JSON.stringify(turns), dropped = [];
  if (text.length > kMostOfChat) return "This conversation is too large to be kept in the browser.";
  if (!chatId) setChat(Date.now().toString(36) + Math.random().toString(36).slice(2));
  for (;;) {
    const list = chatList(), others = list.filter(one => one.id !== chatId);
    const old = list.find(one => one.id === chatId);
    const entry = {id: chatId, title: old?.named ? old.title : titleOf(turns[0]), named: Boolean(old?.named)};
    try {
      localStorage.setItem(kChat + chatId, text);
      storeChats([entry, ...others]);
      break;
    } catch (error) {
      const oldest = error.name === "QuotaExceededError" && others.pop();
      if (!oldest) return "The browser does not keep this conversation.";
      dropChat(oldest.id);
      dropped.push(oldest.title);
    }
  }
  return dropped.length ? `The browser's room was full; gone for it: ${dropped.join(", ")}.` : "";
}

function dropChat(id) {
  try {
    localStorage.removeItem(kChat + id);
    storeChats(chatList().filter(one => one.id !== id));
  } catch { /* no storage */ }
  if (id === chatId) setChat(null);
}

// An empty page; what is being written is stopped and kept first.
async function leaveChat() {
  running?.stop();
  await running?.done;
  turns = [];
  shown = null;
  views.clear();
  articles.clear();
  for (const article of document.querySelectorAll("article")) article.remove();
  $("hello").hidden = false;
  setChat(null);
  showSide("chats", false);
  say("");
  draw();
}

async function newChat() {
  await leaveChat();
  showChats();
  $("input").focus();
}

async function openChat(id) {
  await leaveChat();
  try {
    for (const turn of JSON.parse(localStorage.getItem(kChat + id))) addTurn(turn);
    setChat(id);
  } catch {
    await leaveChat();
    dropChat(id);
    say("The browser has lost this conversation.", true);
  }
  showChats();
  scrollDown();
}

function showChats() {
  if ($("chat-list").querySelector("input")) return;  // a name is being written
  $("chat-list").replaceChildren(...chatList().map(one => {
    const item = element("li", "");
    const open = button("open", one.title, async () => { await openChat(one.id); $("input").focus(); });
    open.title = one.title;
    if (one.id === chatId) open.setAttribute("aria-current", "true");
    const rename = button("rename", "✎", () => renameChat(one, open));
    rename.setAttribute("aria-label", "Rename " + one.title);
    const drop = button("drop", "×", () => confirmDrop(one, drop));
    drop.setAttribute("aria-label", "Delete " + one.title);
    item.append(open, rename, drop);
    return item;
  }));
  $("no-chats").hidden = $("chat-list").childElementCount > 0;
}

function renameChat(one, open) {
  const field = element("input", "");
  field.type = "text";
  field.value = one.title;
  field.setAttribute("aria-label", "Name of the conversation");
  const end = keep => {
    field.onblur = null;
    field.remove();
    const title = field.value.trim();
    try {
      if (keep && title) storeChats(chatList().map(other => other.id === one.id ? {...other, title, named: true} : other));
    } catch { say("The browser has no room for this name.", true); }
    showChats();
  };
  field.onblur = () => end(true);
  field.onkeydown = event => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.stopPropagation();
    end(event.key === "Enter");
    $("input").focus();
  };
  open.replaceWith(field);
  field.select();
}

// The second press within some time deletes.
function confirmDrop(one, drop) {
  if (drop.textContent !== "Delete?") {
    drop.textContent = "Delete?";
    drop.setAttribute("aria-label", `Really delete ${one.title}?`);
    drop.onblur = showChats;
    return;
  }
  drop.onblur = null;
  if (one.id === chatId) { newChat().then(() => dropChat(one.id)); return; }
  dropChat(one.id);
  $("new").focus();
}

// What a tab had open before it was loaded again.
function reopenChat() {
  let id = null;
  try { id = sessionStorage.getItem(kOpen); } catch { /* no storage */ }
  if (id && chatList().some(one => one.id === id)) return openChat(id);
  showChats();
}

addEventListener("storage", event => { if (event.key === kChats) showChats(); });
