// SPDX-License-Identifier: Apache-2.0
//
// What is to be shown, as a tree, and how the document becomes like it. A node is a string or {tag, props, kids}; props
// are attributes. Nothing here takes text as HTML.

const node = (tag, props = {}, kids = []) => ({tag, props, kids});

// Adds a node to its siblings; text by the same hand becomes one.
function join(kids, one) {
  const last = kids[kids.length - 1];
  if (typeof one === "string" && typeof last === "string") kids[kids.length - 1] += one;
  else if (one.guessed && last?.guessed === one.guessed) last.kids[0] += one.kids[0];
  else if (one !== "") kids.push(one);
}

function build(one) {
  if (typeof one === "string") return document.createTextNode(one);
  const made = document.createElement(one.tag);
  dress(made, one.props);
  for (const kid of one.kids) made.append(build(kid));
  return made;
}

function dress(made, props) {
  for (const name of Object.keys(made.dressed ?? {})) if (!(name in props)) made.removeAttribute(name);
  for (const [name, value] of Object.entries(props))
    if (made.dressed?.[name] !== value) made.setAttribute(name, value);
  made.dressed = props;
}

// Makes the children of `parent` from the one at `index` on like `kids`. What is alike stays the element it was, so that
// nothing flickers and a selection holds.
function patch(parent, kids, index = 0) {
  let old = parent.childNodes[index] ?? null;
  for (const kid of kids) {
    const next = old?.nextSibling ?? null;
    if (typeof kid === "string" && old?.nodeType === Node.TEXT_NODE) {
      if (!kid.startsWith(old.data)) old.data = kid;
      else if (kid.length > old.data.length) old.appendData(kid.slice(old.data.length));
    } else if (typeof kid !== "string" && old?.localName === kid.tag) {
      dress(old, kid.props);
      patch(old, kid.kids);
    } else if (old) {
      old.replaceWith(build(kid));
    } else {
      parent.append(build(kid));
    }
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}
