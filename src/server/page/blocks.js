// SPDX-License-Identifier: Apache-2.0
//
// Markdown's blocks: paragraphs, headings, lists, quotes, tables, code. As CommonMark and GitHub have them, but for HTML
// and references, which stay text, and for what models get wrong (lists that are indented too little). Each level of
// nesting passes over its lines once, and levels are limited.

const kFence = /^(`{3,}|~{3,})[ \t]*([^`]*)$/;
const kHeading = /^(#{1,6})(?:[ \t]+|$)/;
const kRule = /^([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const kItem = /^(?:([-*+])|(\d{1,9})([.)]))(?:[ \t]+|$)/;
const kTask = /^\[([ xX])\][ \t]/;
const kTableRule = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const kMostColumns = 100;

// {node, start} for each block of the lines of `source` from a to b; `growing`: more text may come.
function blocksOf(source, a, b, growing) {
  const lines = [];
  for (let at = a; at < b;) {
    const newline = source.text.indexOf("\n", at);
    const end = newline < 0 || newline >= b ? b : newline;
    lines.push({...lineOf(source, at, source.text[end - 1] === "\r" && end > at ? end - 1 : end), start: at});
    at = end + 1;
  }
  return new Blocks(source, growing ? b : -1).parse(lines, 0);
}

// A line without the space before it: `indent` is how wide that was.
function lineOf(source, a, b, indent = 0) {
  for (; a < b && (source.text[a] === " " || source.text[a] === "\t"); ++a)
    indent += source.text[a] === "\t" ? 4 - indent % 4 : 1;
  return {a, b, indent, text: source.text.slice(a, b)};
}

class Blocks {
  constructor(source, growingEnd) {
    this.source = source;
    this.growingEnd = growingEnd;
  }

  parse(lines, depth) {
    const made = [];
    for (let i = 0; i < lines.length;) {
      if (!lines[i].text) { ++i; continue; }
      const block = this.block(lines, i, depth);
      made.push({node: block.node, start: lines[i].start});
      i = block.next;
    }
    return made;
  }

  kids(lines, depth) { return this.parse(lines, depth).map(block => block.node); }

  block(lines, i, depth) {
    const line = lines[i];
    if (line.indent >= 4) return this.indentedCode(lines, i);
    if (kFence.test(line.text)) return this.fence(lines, i);
    if (kHeading.test(line.text)) return {node: this.heading(line), next: i + 1};
    if (kRule.test(line.text)) return {node: node("hr"), next: i + 1};
    if (depth < kDeepest && line.text[0] === ">") return this.quote(lines, i, depth);
    if (depth < kDeepest && kItem.test(line.text)) return this.list(lines, i, depth);
    if (this.startsTable(lines, i)) return this.table(lines, i);
    return this.paragraph(lines, i, depth);
  }

  // Whether a paragraph ends before this line.
  interrupts(lines, i, depth) {
    const {text, indent} = lines[i];
    if (!text) return true;
    if (indent >= 4) return false;
    if (kFence.test(text) || kHeading.test(text) || kRule.test(text)) return true;
    if (depth < kDeepest && text[0] === ">") return true;
    const item = depth < kDeepest && kItem.exec(text);
    if (item && item[0].length < text.length && (item[1] || item[2] === "1")) return true;
    return this.startsTable(lines, i);
  }

  inline(lines) {
    const last = lines[lines.length - 1];
    const trimmed = lines.map(line => ({a: line.a, b: line.b - (line.text.length - line.text.trimEnd().length)}));
    return new Inline(this.source, trimmed, last?.b === this.growingEnd).kids();
  }

  // --- Leaves. ---

  paragraph(lines, i, depth) {
    const first = i;
    for (++i; i < lines.length && !this.interrupts(lines, i, depth) && !/^=+[ \t]*$/.test(lines[i].text);) ++i;
    const own = lines.slice(first, i);
    const under = lines[i];
    if (under?.text && under.indent < 4 && /^(=+|-+)[ \t]*$/.test(under.text))
      return {node: node(under.text[0] === "=" ? "h1" : "h2", {}, this.inline(own)), next: i + 1};
    return {node: node("p", {}, this.inline(own)), next: i};
  }

  heading(line) {
    const [mark, {length: level}] = kHeading.exec(line.text);
    const text = line.text.slice(mark.length).replace(/(?:^|[ \t])#+[ \t]*$/, "");
    const a = line.a + mark.length;
    return node("h" + level, {}, this.inline([{a, b: a + text.length, text}]));
  }

  fence(lines, i) {
    const [, mark, info] = kFence.exec(lines[i].text);
    const indent = lines[i].indent, first = i + 1;
    const closes = ({text}) => text.startsWith(mark) && !text.replaceAll(mark[0], "").trim();
    for (++i; i < lines.length && !(lines[i].indent < 4 && closes(lines[i]));) ++i;
    return {node: this.code(lines.slice(first, i), indent, info.trim().split(/[\s{,]/)[0].slice(0, 30)), next: i + 1};
  }

  indentedCode(lines, i) {
    const first = i;
    let end = i;
    for (; i < lines.length && (!lines[i].text || lines[i].indent >= 4); ++i) if (lines[i].text) end = i + 1;
    return {node: this.code(lines.slice(first, end), 4, ""), next: end};
  }

  code(lines, indent, language) {
    const code = node("code");
    for (const [i, line] of lines.entries()) {
      join(code.kids, (i ? "\n" : "") + " ".repeat(Math.min(Math.max(0, line.indent - indent), 1000)));
      this.source.paint(code.kids, line.a, line.b);
    }
    const title = language || "Code";
    return node("div", {class: "code"}, [
      node("div", {class: "code-head"}, [node("span", {}, language ? [language] : []),
        node("button", {type: "button", class: "copy-code", "aria-label": `Copy: ${title}`}, ["Copy"])]),
      node("pre", {tabindex: "0", role: "region", "aria-label": title}, [code])]);
  }

  // --- Tables. ---

  startsTable(lines, i) {
    const rule = lines[i + 1];
    if (!rule?.text || rule.indent >= 4 || !lines[i].text.includes("|") || !kTableRule.test(rule.text)) return false;
    const n = this.cells(lines[i]).length;
    return n === this.cells(rule).length && n <= kMostColumns && (n > 1 || rule.text.includes("|"));
  }

  // The parts of a line between its bars.
  cells(line) {
    const text = line.text.trimEnd();
    const cells = [];
    let from = text[0] === "|" ? 1 : 0;
    const add = to => {
      const cell = text.slice(from, to), a = line.a + from + cell.length - cell.trimStart().length;
      cells.push({a, b: a + cell.trim().length, text: cell.trim()});
      from = to + 1;
    };
    for (let at = from, inCode = false; at < text.length; ++at) {
      if (text[at] === "\\") ++at;
      else if (text[at] === "`") inCode = !inCode && text.indexOf("`", at + 1) > 0;
      else if (text[at] === "|" && !inCode) add(at);
    }
    if (from < text.length) add(text.length);
    return cells;
  }

  table(lines, i) {
    const align = this.cells(lines[i + 1]).map(({text}) =>
      text.endsWith(":") ? text.startsWith(":") ? "center" : "right" : "");
    const row = (line, tag) => node("tr", {}, this.cells(line).slice(0, align.length).map((cell, column) =>
      node(tag, align[column] ? {class: align[column]} : {}, this.inline([cell]))));
    const body = node("tbody");
    const head = node("thead", {}, [row(lines[i], "th")]);
    for (i += 2; i < lines.length && lines[i].text.includes("|"); ++i)
      body.kids.push(row(lines[i], "td"));
    return {node: node("div", {class: "table", tabindex: "0", role: "region", "aria-label": "Table"},
      [node("table", {}, body.kids.length ? [head, body] : [head])]), next: i};
  }

  // --- Containers. ---

  quote(lines, i, depth) {
    const own = [];
    let lazy = false;  // a paragraph may go on without its sign
    for (; i < lines.length; ++i) {
      const line = lines[i];
      if (line.indent < 4 && line.text[0] === ">") {
        own.push(lineOf(this.source, line.a + (line.text[1] === " " ? 2 : 1), line.b));
        const text = own[own.length - 1].text;
        lazy = Boolean(text) && !kFence.test(text) && !kHeading.test(text) && !kRule.test(text);
      } else if (lazy && !this.interrupts(lines, i, depth)) {
        own.push(line);
      } else {
        break;
      }
    }
    return {node: node("blockquote", {}, this.kids(own, depth + 1)), next: i};
  }

  list(lines, i, depth) {
    const kind = text => { const found = kItem.exec(text); return found && (found[1] ?? found[3]); };
    const mark = kind(lines[i].text), start = Number(kItem.exec(lines[i].text)[2] ?? 1);
    const items = [];
    let loose = false;
    while (i < lines.length && lines[i].indent < 4 && kind(lines[i].text) === mark && !kRule.test(lines[i].text)) {
      const item = this.item(lines, i, depth);
      items.push(item.node);
      i = item.next;
      const after = i;
      while (i < lines.length && !lines[i].text) ++i;
      const goesOn = i < lines.length && lines[i].indent < 4 && kind(lines[i].text) === mark;
      loose ||= item.loose || (goesOn && i > after);
    }
    const props = {...(start === 1 ? {} : {start: String(start)}), ...(loose ? {class: "loose"} : {})};
    return {node: node(/[.)]/.test(mark) ? "ol" : "ul", props, items), next: i};
  }

  // An item and the lines that belong to it: those that are indented, and what goes on with its paragraph.
  item(lines, i, depth) {
    const line = lines[i], mark = kItem.exec(line.text)[0];
    const width = Math.min(mark.length, mark.trimEnd().length + 4);
    const needed = line.indent + Math.min(2, width);
    let first = lineOf(this.source, line.a + width, line.b);
    const task = kTask.exec(first.text);
    if (task) first = lineOf(this.source, first.a + 4, first.b);
    const own = [first];
    let fence = kFence.exec(first.text)?.[1], blank = false, loose = false;
    for (++i; i < lines.length; ++i) {
      const next = lines[i];
      const deeper = next.indent >= needed;
      if (next.text && !deeper && !fence && (blank || this.interrupts(lines, i, depth) || kItem.test(next.text))) break;
      loose ||= blank && Boolean(next.text) && !fence;
      blank = !next.text;
      own.push({...next, indent: Math.max(0, next.indent - Math.min(line.indent + width, Math.max(next.indent, needed)))});
      if (!fence) fence = kFence.exec(next.text)?.[1];
      else if (next.text.startsWith(fence) && !next.text.replaceAll(fence[0], "").trim()) fence = undefined;
    }
    while (own.length > 1 && !own[own.length - 1].text) { own.pop(); --i; }
    const kids = this.kids(own, depth + 1);
    const box = task ? [node("span", {class: "task"}, [task[1] === " " ? "☐ " : "☑ "])] : [];
    return {node: node("li", task ? {class: "task"} : {}, [...box, ...kids]), next: i, loose};
  }
}
