// SPDX-License-Identifier: Apache-2.0
// --- Hands. ---

const kSettings = ["temperature", "most", "seed", "system"];
function loadSettings() {
  try {
    for (const id of kSettings) $(id).value = localStorage.getItem("longspec." + id) ?? $(id).value;
    for (const id of kSwitches) $(id).checked = localStorage.getItem("longspec." + id) !== "false";
  } catch { /* no storage */ }
}
const kSwitches = ["marks", "markdown"];
function store(name, value) { try { localStorage.setItem("longspec." + name, value); } catch { /* no storage */ } }
for (const id of kSettings) $(id).addEventListener("change", () => store(id, $(id).value));
for (const id of kSwitches) $(id).addEventListener("change", () => { store(id, $(id).checked); followSwitches(); });
function followSwitches() {
  document.body.classList.toggle("plain", !$("marks").checked);
  showAgain();
}

$("composer").addEventListener("submit", event => {
  event.preventDefault();
  const content = $("input").value.trim();
  if (running || (!content && !documents.length)) return;
  if (documents.some(one => one.tokens === null)) return say("A document is still being counted.", true);
  const own = documents.splice(0);
  $("input").value = "";
  showDocuments();
  ask(content, own);
});
$("input").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("composer").requestSubmit();
  }
});
document.addEventListener("keydown", event => { if (event.key === "Escape") running?.stop(); });
$("stop").onclick = () => running?.stop();
$("attach").onclick = () => $("files").click();
$("files").addEventListener("change", () => { addDocuments([...$("files").files]); $("files").value = ""; });
$("key").addEventListener("change", () => { loadProps(); refreshServer(); });
$("log").addEventListener("click", async event => {
  const pressed = event.target.closest(".copy-code");
  if (!pressed || !await copyText(pressed.closest(".code").querySelector("code").textContent)) return;
  pressed.textContent = "Copied";
  setTimeout(() => { pressed.textContent = "Copy"; }, 1500);
});
$("new").onclick = newChat;

// Where there is no room beside the conversation, a side takes its place.
const kSides = {panel: "Panel", chats: "Chats"};
function showSide(side, open) {
  for (const [name, title] of Object.entries(kSides)) {
    const shows = name === side && open;
    document.body.classList.toggle("with-" + name, shows);
    $(name + "-button").setAttribute("aria-expanded", shows);
    $(name + "-button").textContent = shows ? "Back" : title;
  }
}
for (const side of Object.keys(kSides))
  $(side + "-button").onclick = () => showSide(side, !document.body.classList.contains("with-" + side));

for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, event => {
    event.preventDefault();
    $("composer").classList.toggle("over", name === "dragover");
    if (name === "drop") addDocuments([...event.dataTransfer.files]);
  });
}

loadSettings();
followSwitches();
loadProps();
refreshServer();
draw();
reopenChat();
$("input").focus();
