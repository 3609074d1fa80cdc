// Markdown within a line: code, strong, emphasis, struck out, links. To DOM nodes.

import { element } from "../dom.js";

// Each alternative is bounded by its own end, so that reading a line takes time in proportion to it.
const SPAN = new RegExp(
  [
    "(`+)(?<code>[^`]{1,1000}?)\\1(?!`)",
    "\\*\\*(?<strong>[^*\\n]{1,1000}?)\\*\\*",
    "__(?<strong2>[^_\\n]{1,1000}?)__",
    "~~(?<struck>[^~\\n]{1,1000}?)~~",
    "\\*(?<soft>[^*\\s][^*\\n]{0,1000}?)\\*",
    "(?<![\\w_])_(?<soft2>[^_\\s][^_\\n]{0,1000}?)_(?!\\w)",
    "\\[(?<label>[^\\]\\n]{1,300})\\]\\((?<url>[^)\\s]{1,1000})\\)",
    "(?<bare>https?:\\/\\/[^\\s<>()]{1,1000}[^\\s<>().,;:!?'\"])",
  ].join("|"),
  "g",
);
const MAX_DEPTH = 4; // spans in spans

/** The nodes of one line of text. */
export function inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(SPAN)) {
    if (match.index > at) nodes.push(text.slice(at, match.index));
    nodes.push(span(match, depth + 1));
    at = match.index + match[0].length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

function span(match, depth) {
  const { code, strong, strong2, struck, soft, soft2, label, url, bare } = match.groups;
  if (code !== undefined) return element("code", "", code.trim() || code);
  if (strong ?? strong2) return element("strong", "", ...inline(strong ?? strong2, depth));
  if (struck) return element("s", "", ...inline(struck, depth));
  if (soft ?? soft2) return element("em", "", ...inline(soft ?? soft2, depth));
  return link(url ?? bare, label ? inline(label, depth) : [bare], match[0]);
}

/** A link, or the text as it was written where it leads to anything but a web page. */
function link(url, label, written) {
  if (!/^https?:\/\//i.test(url)) return written;
  const node = element("a", "", ...label);
  node.href = url;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}
