// Which page is shown: the part of the address behind "#", such as "#/agents/3" or
// "#/requests?state=ended".

const FIRST = "fleet";

/** Where `#/page/argument?query` leads; the first page where it says nothing. */
export function parseRoute(hash) {
  const [path, ...query] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return {
    name: name || FIRST,
    argument: decode(rest.join("/")),
    query: new URLSearchParams(query.join("?")),
  };
}

/** The address of a page; what is empty in `query` is left out. */
export function linkTo(name, argument = "", query = {}) {
  const path = argument ? `#/${name}/${encodeURIComponent(argument)}` : `#/${name}`;
  const given = Object.entries(query).filter(([, value]) => value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** Writes what a page shows into its address, without another page in the browser's history. */
export function rewriteAddress(link) {
  if (location.hash !== link) history.replaceState(null, "", link);
}

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
