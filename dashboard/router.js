// Which page is shown: the part of the address behind "#", such as "#/agents/3".

const FIRST = "fleet";

/** Where `#/page/argument` leads; the first page where it says nothing. */
export function parseRoute(hash) {
  const [name, ...rest] = hash.replace(/^#\/?/, "").split("/");
  return { name: name || FIRST, argument: decode(rest.join("/")) };
}

/** The address of a page. */
export const linkTo = (name, argument = "") =>
  argument ? `#/${name}/${encodeURIComponent(argument)}` : `#/${name}`;

/** Calls `onRoute(route)` now and whenever another page is asked for. */
export function startRouter(onRoute) {
  addEventListener("hashchange", () => {
    // A link to a part of the page, such as the one that skips the header, leads to no other page.
    if (location.hash === "" || location.hash.startsWith("#/")) onRoute(parseRoute(location.hash));
  });
  onRoute(parseRoute(location.hash));
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // not percent-encoded: somebody typed it
  }
}
