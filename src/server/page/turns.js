// SPDX-License-Identifier: Apache-2.0
// --- The turns of the conversation and their articles. ---
//
// A turn is {role, content} and, of a question, documents; of an answer, reasoning, who guessed what (runs,
// reasoningRuns), facts, and made: the request's fields that it came of.

const articles = new Map();  // by turn

function addTurn(turn) {
  turns.push(turn);
  showTurn(turn);
}

function showTurn(turn) {
  if (turn.role === "user") return showQuestion(turn);
  const article = addMessage("assistant", "Model"), view = new AnswerView(article);
  view.content = sourceOf(turn.content, turn.runs);
  view.reasoning = sourceOf(turn.reasoning ?? "", turn.reasoningRuns);
  views.set(article, view);
  articles.set(turn, article);
  view.finish();
  endArticle(turn, article);
}

const sourceOf = (text, runs) => new Source(text, runs ?? [{end: text.length, source: null}]);

// What stands below an answer that is complete.
function endArticle(turn, article) {
  article.append(element("p", "facts", turn.facts ?? ""));
  addAnswerTools(turn, article);
}

function showQuestion(turn) {
  const article = addMessage("user", "You");
  articles.set(turn, article);
  for (const one of turn.documents ?? []) {
    const chip = element("span", "chip");
    chip.append(bold(one.name), number(one.tokens) + " tokens");
    article.append(chip);
  }
  const tools = element("div", "tools");
  tools.append(button("edit", "Edit", () => editQuestion(turn, article)));
  article.append(element("div", "text", turn.content), tools);
}

// The question becomes a field; what is sent from there takes the place of the question and of all that followed.
function editQuestion(turn, article) {
  const text = article.querySelector(".text"), tools = article.querySelector(".tools");
  const form = element("form", "editor"), field = element("textarea", ""), row = element("div", "tools");
  field.value = turn.content;
  field.setAttribute("aria-label", "Edit the message");
  const close = () => { form.remove(); text.hidden = tools.hidden = false; tools.firstChild.focus(); };
  const send = element("button", "main", "Send");
  row.append(send, button("", "Cancel", close));
  form.append(field, row);
  form.onsubmit = event => {
    event.preventDefault();
    const content = field.value.trim();
    if (running || (!content && !turn.documents?.length)) return;
    const old = cutFrom(turn);
    ask(content, turn.documents ?? [], (article, said) => { giveBack(article, said); old.forEach(addTurn); });
  };
  field.onkeydown = event => {
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  };
  text.hidden = tools.hidden = true;
  article.append(form);
  field.style.height = Math.min(field.scrollHeight + 4, innerHeight / 3) + "px";
  field.focus();
}

function forgetArticle(turn) {
  const article = articles.get(turn);
  views.delete(article);
  articles.delete(turn);
  article?.remove();
}

// Drops a turn and all after it, which it returns.
function cutFrom(turn) {
  const old = turns.splice(turns.indexOf(turn));
  old.forEach(forgetArticle);
  return old;
}

function ask(content, own, orElse = giveBack) {
  addTurn({role: "user", content, documents: own});
  writeAnswer(orElse);
}

function regenerate(turn) {
  if (running) return;
  const old = cutFrom(turn);
  writeAnswer(article => { article.remove(); old.forEach(addTurn); });
}
