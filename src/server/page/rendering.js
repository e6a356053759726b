// SPDX-License-Identifier: Apache-2.0
//
// A text that grows, shown in an element: as Markdown or as it is, with its guessed parts marked either way. Only its
// last block is read again when there is more.

const rendersMarkdown = () => $("markdown").checked;

// A last line that may yet become another thing (a list, a rule, a fence, a tag) is kept back until it is decided.
const kUndecided = /(?:^|\n)[ \t>]*(?:[-=*+_#~`|: \t]{1,200}|\d{1,9}[.)]?|<\/?[think]{0,5})$/;

function undecided(text, a, b) {
  return kUndecided.exec(text.slice(Math.max(a, b - 220), b))?.[0].trimStart().length ?? 0;
}

class Rendering {
  constructor(host) {
    this.host = host;
    this.starts = [];  // of the blocks that are shown
  }

  // Shows the part from a to b; `growing`: more may come.
  show(source, a, b, growing) {
    const kids = [];
    if (this.from !== a || this.isMarkdown !== rendersMarkdown()) this.starts = [];
    this.from = a;
    this.isMarkdown = rendersMarkdown();
    this.host.classList.toggle("markdown", this.isMarkdown);
    if (!this.isMarkdown) {
      source.paint(kids, a, b);
      return patch(this.host, kids);
    }
    // The blocks before the last one are as they will be.
    const known = Math.max(0, this.starts.length - 1);
    const end = growing ? b - undecided(source.text, a, b) : b;
    const blocks = blocksOf(source, this.starts[known] ?? a, end, growing);
    this.starts = [...this.starts.slice(0, known), ...blocks.map(block => block.start)];
    patch(this.host, blocks.map(block => block.node), known);
  }
}

// Thoughts stand before an answer, between tags; of templates that write the first tag the model writes only the last.
// Where they are (a to b) and where the answer begins; null: there are none.
function thoughtsIn(text) {
  const first = /^\s*<think>\n?/.exec(text);
  const last = first ? /\n?<\/think>\s*/g : /(?:^|\n)<\/think>[ \t]*(?:\n\s*|$)/g;
  last.lastIndex = first ? first[0].length : 0;
  const end = last.exec(text);
  if (!first && !end) return null;
  return {a: first ? first[0].length : 0, b: end?.index ?? text.length,
    answer: end ? end.index + end[0].length : text.length, open: !end};
}

// An answer in its article: thoughts, folded, and what it says. While it grows it is shown the more rarely the longer
// that takes.
class AnswerView {
  constructor(article) {
    this.content = new Source("", []);
    this.reasoning = new Source("", []);
    this.thoughts = element("details", "thoughts");
    this.thoughts.hidden = true;
    this.title = element("summary", "");
    const thoughts = element("div", "text"), text = element("div", "text");
    this.thoughts.append(this.title, thoughts);
    article.append(this.thoughts, text);
    this.thoughtsRendering = new Rendering(thoughts);
    this.textRendering = new Rendering(text);
    this.growing = false;
    this.timer = null;
    this.pause = 0;
  }

  add(source, piece, by) {
    source.add(piece, by);
    this.growing = true;
    this.timer ??= setTimeout(() => {
      this.timer = null;
      const began = performance.now(), follow = atEnd();
      this.show();
      if (follow) scrollDown();
      this.pause = 4 * (performance.now() - began);
    }, Math.max(30, this.pause));
  }

  finish() {
    clearTimeout(this.timer);
    this.timer = null;
    this.growing = false;
    this.show();
  }

  show() {
    const {text} = this.content;
    const inText = this.reasoning.text ? null : thoughtsIn(text);
    const begins = this.growing && "<think>".startsWith(text.trimStart());
    if (inText) this.showThoughts(this.content, inText.a, inText.b, inText.open);
    else if (this.reasoning.text) this.showThoughts(this.reasoning, 0, this.reasoning.text.length, !text);
    else this.thoughts.hidden = true;
    this.textRendering.show(this.content, inText?.answer ?? 0, begins ? 0 : text.length, this.growing);
  }

  showThoughts(source, a, b, open) {
    this.thoughts.hidden = !source.text.slice(a, b).trim();
    this.title.textContent = open && this.growing ? "Thinking …" : "Thoughts";
    this.thoughtsRendering.show(source, a, b, open && this.growing);
  }
}

// Everything again, after the way of showing has changed.
const views = new Map();  // by article
function showAgain() { for (const view of views.values()) view.show(); }
