// Markdown to DOM nodes. Whatever an answer says, it becomes text in elements that are chosen here;
// only links to http and https are followed.

import { element } from "../dom.js";
import { inline } from "./markdown-inline.js";

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_DEPTH = 8; // quotes in quotes; what is deeper is text

/** The nodes of `text`. */
export function markdown(text, depth = 0) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    const read = block(lines, at, depth);
    if (read.node) nodes.push(read.node);
    at = read.next;
  }
  return nodes;
}

function block(lines, at, depth) {
  const line = lines[at];
  if (line.trim() === "") return { node: null, next: at + 1 };
  if (FENCE.test(line)) return fence(lines, at);
  if (RULE.test(line)) return { node: element("hr"), next: at + 1 };
  const heading = HEADING.exec(line);
  if (heading) {
    // The page's own headings end at the third level.
    const tag = `h${Math.min(6, heading[1].length + 3)}`;
    return { node: element(tag, "", ...inline(withoutHashes(heading[2]))), next: at + 1 };
  }
  if (QUOTE.test(line) && depth < MAX_DEPTH) return quote(lines, at, depth);
  if (ITEM.test(line)) return list(lines, at);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

/** A heading without the hashes that may close it. Takes time in proportion to its length. */
function withoutHashes(text) {
  let end = text.trimEnd().length;
  while (text[end - 1] === "#") end -= 1;
  return text.slice(0, end).trimEnd();
}

function fence(lines, at) {
  const [, mark, language] = FENCE.exec(lines[at]);
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(mark)) end += 1;
  const code = element("code", "", lines.slice(at + 1, end).join("\n"));
  if (language) code.dataset.language = language;
  const node = element("pre", "", code);
  node.tabIndex = 0; // it scrolls, so the keyboard has to reach it
  return { node, next: end + 1 };
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => QUOTE.exec(line)[1]);
  return { node: element("blockquote", "", ...markdown(inner.join("\n"), depth + 1)), next: end };
}

/** A list; items that are indented more hang under the item before them. */
function list(lines, at) {
  const lists = []; // open lists, outermost first, each with its indent
  let end = at;
  for (; end < lines.length && lines[end].trim() !== ""; end += 1) {
    const item = ITEM.exec(lines[end]);
    if (item) addItem(lists, item);
    else if (startsBlock(lines[end])) break;
    else lists.at(-1).node.lastElementChild.append(" ", ...inline(lines[end].trim()));
  }
  return { node: lists[0].node, next: end };
}

function addItem(lists, [, indent, mark, text]) {
  while (lists.length > 1 && indent.length < lists.at(-1).indent) lists.pop();
  const isDeeper = lists.length && indent.length > lists.at(-1).indent + 1;
  if (lists.length === 0 || (isDeeper && lists.length < MAX_DEPTH)) {
    const node = element(/\d/.test(mark) ? "ol" : "ul");
    if (/\d/.test(mark) && Number.parseInt(mark, 10) !== 1) node.start = Number.parseInt(mark, 10);
    lists.at(-1)?.node.lastElementChild.append(node);
    lists.push({ node, indent: indent.length });
  }
  lists.at(-1).node.append(element("li", "", ...inline(text)));
}

const isTable = (lines, at) =>
  lines[at].includes("|") && at + 1 < lines.length && TABLE_RULE.test(lines[at + 1]);

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const row = (line, tag) =>
    element("tr", "", ...cells(line).map((cell) => element(tag, "", ...inline(cell))));
  const body = lines.slice(at + 2, end).map((line) => row(line, "td"));
  const node = element("table", "", element("thead", "", row(lines[at], "th")));
  node.append(element("tbody", "", ...body));
  const scroll = element("div", "scroll", node);
  scroll.tabIndex = 0;
  return { node: scroll, next: end };
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines[end])) end += 1;
  const text = lines.slice(at, end).join("\n");
  return { node: element("p", depth ? "" : "text", ...inline(text)), next: end };
}

const startsBlock = (line) =>
  [FENCE, HEADING, RULE, ITEM, QUOTE].some((pattern) => pattern.test(line));
