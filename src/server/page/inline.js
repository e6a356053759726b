// SPDX-License-Identifier: Apache-2.0
//
// Markdown within a paragraph: emphasis, code, links. One pass over the text and one over its marks, so that no text
// takes more than linear time. What is no Markdown stands there as it is.

// A text and who wrote which part of it: `runs` are {end, source}, in order.
class Source {
  constructor(text, runs) {
    this.text = text;
    this.runs = runs;
  }

  add(piece, by) {
    const last = this.runs[this.runs.length - 1];
    this.text += piece;
    if (last && last.source === by) last.end = this.text.length;
    else this.runs.push({end: this.text.length, source: by});
  }

  // The characters from a to b, or what is shown in their place, marked by who guessed them.
  paint(kids, a, b, instead) {
    if (a >= b) return;
    let low = 0, high = this.runs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.runs[middle].end > a) high = middle; else low = middle + 1;
    }
    for (; a < b; ++low) {
      const end = instead === undefined ? Math.min(b, this.runs[low]?.end ?? b) : b;
      const text = instead ?? this.text.slice(a, end), source = this.runs[low]?.source;
      join(kids, source ? {...node("span", {class: colourOf(source), title: source}, [text]), guessed: source} : text);
      a = end;
    }
  }
}

const kDeepest = 16;  // elements within each other; what is deeper loses its form, not its text
const kMarks = /[\\`*_~[\]<&]|https?:\/\//g;
const kDestination =
  /\([ \t]{0,3}<?(https?:\/\/[^\s<>()]{1,2000}(?:\([^\s<>()]{0,200}\)[^\s<>()]{0,500}){0,4})>?(?:[ \t]{1,3}"[^"\n]{0,300}")?[ \t]{0,3}\)/iy;
const kBare = /https?:\/\/[^\s<>"`|\\^{}[\]]{1,2000}/iy;
const kEntity = /&(amp|lt|gt|quot|nbsp|#39);/y;
const kEntities = {amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'"};
const kBreak = /<br[ ]?\/?>/iy;
const kPunctuation = /[\p{P}\p{S}]/u;

// The address as browsers read it; null: none of the web.
function webAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:"].includes(url.protocol) ? url.href : null;
  } catch { return null; }
}

const link = href => ["a", {href, target: "_blank", rel: "noopener noreferrer nofollow"}];

class Inline {
  // `lines` are {a, b}, parts of the source; `growing`: more of the last one may come.
  constructor(source, lines, growing) {
    this.source = source;
    this.lines = lines;
    this.growing = growing;
    this.text = lines.map(line => source.text.slice(line.a, line.b)).join("\n");
    this.starts = [];
    for (let at = 0, i = 0; i < lines.length; at += lines[i].b - lines[i].a + 1, ++i) this.starts.push(at);
    this.items = [];       // in the order of the text
    this.delimiters = [];  // those of the items that may still become emphasis
    this.brackets = [];
  }

  kids() {
    this.scan();
    this.pair(0);
    return this.assemble();
  }

  // --- What the text consists of. ---

  scan() {
    const text = this.text;
    this.readTicks();
    let from = 0, at = 0;
    const plain = to => { if (to > from) this.items.push({a: from, b: to}); };
    const match = pattern => { pattern.lastIndex = at; return pattern.exec(text); };
    for (;;) {
      kMarks.lastIndex = at;
      const found = kMarks.exec(text);
      if (!found) break;
      at = found.index;
      const item = this.read(text[at], at, match);
      if (!item) { at += 1; continue; }
      if (item.first !== undefined && at > from && text[at - 1] === "!") item.a -= 1;  // an image, which is a link here
      plain(item.a);
      this.items.push(item);
      from = at = item.b;
    }
    plain(text.length);
  }

  // The item that begins at `at`; null: it is text.
  read(mark, at, match) {
    if (mark === "\\") return this.readEscape(at);
    if (mark === "`") return this.readCode(at);
    if (mark === "*" || mark === "_" || mark === "~") return this.readDelimiter(mark, at);
    if (mark === "[") return this.openBracket(at);
    if (mark === "]") return this.closeBracket(at, match);
    if (mark === "&") {
      const entity = match(kEntity);
      return entity && {a: at, b: at + entity[0].length, instead: kEntities[entity[1]]};
    }
    if (mark === "<") {
      const br = match(kBreak);
      return br && {a: at, b: at + br[0].length, node: node("br")};
    }
    return this.readBare(at, match);
  }

  // Before brackets the backslash stays: there it mostly begins a formula.
  readEscape(at) {
    const next = this.text[at + 1] ?? "";
    if (next === "\n") return {a: at, b: at + 1, node: ""};
    if (/[()[\]]/.test(next)) return {a: at, b: at + 2};
    return /[!-/:-@[-`{-~]/.test(next) ? {a: at, b: at + 2, instead: next} : null;
  }

  // Where each run of backticks finds the next one of its length.
  readTicks() {
    const next = new Map();
    this.ticks = new Map();
    for (const run of [...this.text.matchAll(/`+/g)].reverse()) {
      this.ticks.set(run.index, {n: run[0].length, end: next.get(run[0].length)});
      next.set(run[0].length, run.index);
    }
  }

  readCode(at) {
    const run = this.ticks.get(at);
    if (!run) return null;  // the rest of a run that was escaped
    if (run.end === undefined && !(this.growing && run.n < 3)) return {a: at, b: at + run.n};
    const end = run.end ?? this.text.length;
    let a = at + run.n, b = end;
    if (b - a > 2 && this.text[a] === " " && this.text[b - 1] === " ") { a += 1; b -= 1; }
    const code = node("code");
    this.paint(code.kids, a, b);
    return {a: at, b: Math.min(end + run.n, this.text.length), node: code};
  }

  readDelimiter(mark, at) {
    let b = at + 1;
    while (this.text[b] === mark) ++b;
    const n = b - at;
    const before = this.text[at - 1] ?? " ", after = this.text[b] ?? " ";
    const space = c => /\s/.test(c), sign = c => kPunctuation.test(c);
    const left = !space(after) && (!sign(after) || space(before) || sign(before));
    const right = !space(before) && (!sign(before) || space(after) || sign(after));
    const item = {a: at, b, mark, n, left: n, opens: [], closes: [],
      canOpen: mark === "_" ? left && (!right || sign(before)) : left,
      canClose: mark === "_" ? right && (!left || sign(after)) : right};
    if (mark !== "~" || n === 2) this.delimiters.push(item);
    return item;
  }

  readBare(at, match) {
    if (/[\p{L}\p{N}]/u.test(this.text[at - 1] ?? "")) return null;
    const found = match(kBare)?.[0];
    if (!found) return null;
    // Signs at the end are the sentence's, and so is a bracket that nothing in the address opens.
    let n = found.length, unopened = found.split(")").length - found.split("(").length;
    while (n > 0 && /[.,;:!?'*_~)]/.test(found[n - 1]) && (found[n - 1] !== ")" || unopened > 0)) {
      if (found[n - 1] === ")") --unopened;
      --n;
    }
    const href = webAddress(found.slice(0, n));
    if (!href) return null;
    const made = node(...link(href));
    this.paint(made.kids, at, at + n);
    return {a: at, b: at + n, node: made};
  }

  openBracket(at) {
    const item = {a: at, b: at + 1, first: this.delimiters.length, opens: [], closes: []};
    this.brackets.push(item);
    return item;
  }

  closeBracket(at, match) {
    const open = this.brackets.pop();
    if (!open) return null;
    at += 1;
    kDestination.lastIndex = at;
    const found = kDestination.exec(this.text);
    const href = found && webAddress(found[1]);
    if (!href) return null;
    this.pair(open.first);
    this.brackets.length = 0;  // no link within a link
    open.opens.push(link(href));
    open.hidden = true;
    const a = at + found[0].indexOf(found[1]);
    const label = this.text.slice(open.b, at - 1);
    return {a: at - 1, b: at + found[0].length, opens: [], closes: ["a"],
      hidden: true, address: label === found[1] ? null : {a, b: a + found[1].length}};
  }

  // --- Which delimiters belong together, of those from the one at `first` on. ---

  pair(first) {
    const open = [], floor = new Map();
    for (const [order, one] of this.delimiters.splice(first).entries()) {
      one.order = order;
      while (one.canClose && one.left > 0) {
        const kind = one.mark + one.canOpen + one.n % 3;
        let at = open.length - 1;
        while (at >= 0 && open[at].order > (floor.get(kind) ?? -1) && !Inline.match(open[at], one)) --at;
        if (at < 0 || open[at].order <= (floor.get(kind) ?? -1)) {
          floor.set(kind, open[open.length - 1]?.order ?? -1);
          break;
        }
        open.length = at + 1;
        Inline.marry(open[at], one);
        if (!open[at].left) open.pop();
      }
      if (one.left && one.canOpen) open.push(one);
    }
    if (!this.growing || first) return;
    // What an answer is about to close is closed already, or it would change its form in front of the reader.
    for (const one of open.reverse())
      if (one.mark === "*" && one.left === 2) Inline.marry(one, {left: 2, closes: [], mark: "*"});
  }

  static match(open, close) {
    if (open.mark !== close.mark) return false;
    if (open.mark === "~") return true;
    const either = open.canClose || close.canOpen;
    return !(either && (open.n + close.n) % 3 === 0 && (open.n % 3 || close.n % 3));
  }

  static marry(open, close) {
    const n = Math.min(2, open.left, close.left);
    const tag = open.mark === "~" ? "del" : n === 2 ? "strong" : "em";
    open.opens.push([tag, {}]);
    close.closes.push(tag);
    open.left -= n;
    close.left -= n;
  }

  // --- The tree. ---

  assemble() {
    const root = [], levels = [root];
    for (const item of this.items) {
      const here = () => levels[levels.length - 1];
      for (let i = item.closes?.length ?? 0; i > 0 && levels.length > 1; --i) levels.pop();
      if (item.node !== undefined) join(here(), item.node);
      else if (item.mark) this.paint(here(), item.b - item.left, item.b);
      else if (!item.hidden) this.paint(here(), item.a, item.b, item.instead);
      if (item.address) {
        const shown = node("span", {class: "address"});
        shown.kids.push(" (");
        this.paint(shown.kids, item.address.a, item.address.b);
        shown.kids.push(")");
        here().push(shown);
      }
      for (const [tag, props] of [...(item.opens ?? [])].reverse()) {
        const made = node(tag, props);
        if (levels.length < kDeepest) here().push(made);
        levels.push(levels.length < kDeepest ? made.kids : here());
      }
    }
    return root;
  }

  // Like Source's, but the places are those of the joined lines.
  paint(kids, a, b, instead) {
    let low = 0, high = this.lines.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= a) low = middle; else high = middle - 1;
    }
    if (a >= b) return;
    for (; low < this.lines.length && this.starts[low] <= b; ++low) {
      const line = this.lines[low], shift = line.a - this.starts[low];
      if (low > 0 && this.starts[low] > a) join(kids, "\n");
      this.source.paint(kids, Math.max(a + shift, line.a), Math.min(b + shift, line.b), instead);
    }
  }
}
