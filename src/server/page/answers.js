// SPDX-License-Identifier: Apache-2.0
// --- Answers. ---

function contentOf(turn) {
  const parts = (turn.documents ?? []).map(one => `Document ${one.name}:\n\n${one.text}\n\n`);
  return parts.join("") + turn.content;
}

function messageOf(turn) {
  return {role: turn.role, content: contentOf(turn), ...(turn.reasoning ? {reasoning_content: turn.reasoning} : {})};
}

// The fields of a request besides its messages, as the panel has them.
function settings() {
  const given = $("seed").value.trim();
  return {system: $("system").value.trim(), temperature: Number($("temperature").value),
    max_tokens: Math.max(1, Number($("most").value)), speculation: $("speculation").checked,
    seed: /^\d+$/.test(given) ? Number(given) : Math.floor(Math.random() * 2 ** 31)};
}

// The request for the turn after `upTo` others.
function request(upTo, {system, speculation, ...fields}) {
  const messages = turns.slice(0, upTo).map(messageOf);
  const body = {messages: system ? [{role: "system", content: system}, ...messages] : messages, ...fields};
  return speculation ? body : {...body, speculative: false};
}

// Follows an answer: where its text goes, how far it is, and what it took.
async function follow(body, signal, view) {
  const answer = {text: "", reasoning: "", points: [], finish: null, timings: null, speculation: null};
  let tokens = 0, passes = 0;
  for await (const event of chat(body, signal)) {
    if (event.prompt_progress) view.progress(event.prompt_progress);
    const choice = event.choices[0];
    if (choice) {
      const piece = choice.delta.content ?? "", thought = choice.delta.reasoning_content ?? choice.delta.reasoning ?? "";
      const sources = choice.token_sources ?? [];
      const by = sources.find(source => source) ?? null;
      answer.text += piece;
      answer.reasoning += thought;
      if (piece || thought) view.piece(piece, thought, by);
      tokens += sources.length;
      passes += sources.filter(source => !source).length;  // each pass ends with a token of the model's own
      if (choice.finish_reason) answer.finish = choice.finish_reason;
      if (event.timings && sources.length)
        answer.points.push({tokens, passes, ms: event.timings.predicted_ms});
    }
    if (event.timings) answer.timings = event.timings;
    if (event.speculation) answer.speculation = event.speculation;
    view.points(answer.points);
  }
  return answer;
}

function facts(answer, firstMs) {
  const t = answer.timings;
  if (!t) return "";
  const said = [`${number(t.predicted_n)} tokens`, `${rate(t.predicted_per_second)} tokens/s`,
    `first after ${(firstMs / 1000).toFixed(2)} s`];
  if (answer.speculation && t.draft_n > 0) {
    said.push(`${rate(answer.speculation.mean_acceptance_length)} tokens a pass`,
      `${number(t.draft_n_accepted)} of ${number(t.draft_n)} guesses taken`);
  }
  if (t.cache_n > 0) said.push(`${number(t.cache_n)} tokens of the prompt were known`);
  if (answer.finish === "length") said.push("cut at the most tokens");
  return said.join(" · ");
}

function setRunning(stop) {
  running?.end();
  running = null;
  if (stop) {
    running = {stop};
    running.done = new Promise(done => { running.end = done; });
  }
  $("send").hidden = Boolean(stop);
  $("stop").hidden = !stop;
  for (const button of document.querySelectorAll(".tools button")) button.disabled = Boolean(stop);
}

// The bar of a prompt that is being read, and how long it may take.
function progressBar() {
  const bar = element("div", "bar"), known = element("i", "known"), computed = element("i", "");
  bar.append(known, computed);
  for (const [name, value] of Object.entries({role: "progressbar", "aria-label": "Prompt", "aria-valuemin": 0,
    "aria-valuemax": 100})) bar.setAttribute(name, value);
  return {bar, show({total, cache, processed, time_ms}) {
    known.style.width = 100 * cache / total + "%";
    computed.style.width = 100 * (processed - cache) / total + "%";
    bar.setAttribute("aria-valuenow", Math.round(100 * processed / total));
    const done = processed - cache, seconds = (total - processed) * (time_ms ?? 0) / 1000 / Math.max(1, done);
    say(`Prompt: ${number(total)} tokens, ${number(cache)} known, ${number(done)} computed` +
      (done > 0 && seconds >= 2 ? `, about ${number(Math.round(seconds))} s left` : ""));
  }};
}

// The answer to all turns so far. If not a word of it comes, `orElse` is called with its article and what was wrong.
async function writeAnswer(orElse) {
  for (const failed of document.querySelectorAll("article.failed")) failed.remove();
  const aborter = new AbortController();
  const made = settings(), body = request(turns.length, made);
  const notice = keepChat();
  const article = addMessage("assistant", "Model");
  const {bar, show: showProgress} = progressBar();
  article.append(bar);
  const answerView = new AnswerView(article);
  const turn = {role: "assistant", content: "", made};
  views.set(article, answerView);
  articles.set(turn, article);
  const began = performance.now();
  let first = null;
  setRunning(() => aborter.abort());
  say("Waiting for its turn …");
  const view = {
    progress: showProgress,
    piece(piece, thought, by) {
      if (first === null) {
        first = performance.now() - began;
        bar.remove();
        say("Writing …");
      }
      if (thought) answerView.add(answerView.reasoning, thought, by);
      if (piece) answerView.add(answerView.content, piece, by);
    },
    points(points) { shown = {points, speculation: made.speculation}; drawSoon(); },
  };
  let said, bad = false;
  try {
    const answer = await follow(body, aborter.signal, view);
    turn.facts = facts(answer, first ?? performance.now() - began);
    if (answer.timings) turn.speed = answer.timings.predicted_per_second;
    if (!made.speculation && answer.timings) setPlainSpeed(turn.speed);
    said = "Done.";
  } catch (error) {
    bad = error.name !== "AbortError";
    said = bad ? error.message : "Stopped.";
    turn.facts = said;
  }
  const follows = atEnd();
  bar.remove();
  answerView.finish();
  turn.content = answerView.content.text;
  turn.reasoning = answerView.reasoning.text;
  turn.runs = answerView.content.runs;
  turn.reasoningRuns = answerView.reasoning.runs;
  // What stands there is part of the conversation; a question without any answer may be asked again.
  if (turn.content || turn.reasoning || turn.speed !== undefined) {
    turns.push(turn);
    endArticle(turn, article);
  } else {
    views.delete(article);
    articles.delete(turn);
    orElse(article, said);
  }
  article.querySelector(".facts")?.classList.toggle("error", bad);
  if (follows) scrollDown();
  const notices = [...new Set([notice, keepChat()])].filter(text => text);
  say([said, ...notices].join(" "), bad || notices.length > 0);
  setRunning(null);
  refreshServer();
  $("input").focus();
}

// The last question goes back to where it was written.
function giveBack(article, said) {
  const question = turns.pop();
  forgetArticle(question);
  article.classList.add("failed");
  article.append(element("p", "facts", said));
  $("input").value ||= question.content;
  documents.push(...question.documents ?? []);
  showDocuments();
}

function addAnswerTools(turn, article) {
  const tools = element("div", "tools");
  if (turn.speed !== undefined) {
    tools.append(button("check", "Compare with " + (turn.made.speculation ? "no guesses" : "guesses"),
      () => compare(turn, article)));
  }
  tools.append(button("copy", "Copy", () => copyText(turn.content)),
    button("regenerate", "Regenerate", () => regenerate(turn)));
  article.append(tools);
}

// The same answer with speculation the other way round.
async function compare(turn, article) {
  const aborter = new AbortController();
  const result = element("p", "facts verdict", "");
  const {speculation} = turn.made;
  let n = 0;
  setRunning(() => aborter.abort());
  article.querySelector(".verdict")?.remove();
  article.append(result);
  try {
    const body = request(turns.indexOf(turn), {...turn.made, speculation: !speculation});
    const other = await follow(body, aborter.signal, {progress() {}, points() {}, piece(piece, thought) {
      n += piece.length + thought.length;
      say(`Comparing: ${number(n)} characters`);
    }});
    const otherSpeed = other.timings.predicted_per_second;
    const [guessed, plain] = speculation ? [turn.speed, otherSpeed] : [otherSpeed, turn.speed];
    const same = other.text === turn.content && other.reasoning === turn.reasoning;
    result.textContent = (same ? "✓ The same text. " : "✗ Another text! ") +
      `${rate(guessed)} tokens/s with guesses, ${rate(plain)} without`;
    result.classList.add(same ? "same" : "different");
    setPlainSpeed(plain);
    say("Compared.");
  } catch (error) {
    result.remove();
    say(error.name === "AbortError" ? "Stopped." : error.message, error.name !== "AbortError");
  } finally {
    setRunning(null);
    refreshServer();
  }
}

function setPlainSpeed(speed) {
  plainSpeed = speed;
  $("plain-note").textContent = `Dashed: without guesses (${rate(speed)} tokens a second).`;
  drawSoon();
}
