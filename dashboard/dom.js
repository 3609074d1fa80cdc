// Small helpers over the DOM. Text only ever goes in as text, and only what changed is touched, so
// that nothing flickers, loses focus or is read out twice.

export const byId = (id) => document.getElementById(id);

/** A new element with a class, and text or children. */
export function element(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** A new SVG element with attributes. */
export function svg(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/**
 * Keep one child of `container` for each item: known by key, made by `create(item)`, brought up to
 * date by `update(node, item)`, in the items' order. Nodes that stay are not moved.
 */
export function keyed(container, items, { key, create, update }) {
  const before = container.nodesByKey ?? new Map();
  const stay = new Set(items.map(key));
  for (const [id, node] of before) if (!stay.has(id)) node.remove();

  const after = new Map();
  let next = container.firstElementChild;
  for (const item of items) {
    const node = before.get(key(item)) ?? create(item);
    after.set(key(item), node);
    update(node, item);
    if (node === next) next = next.nextElementSibling;
    else container.insertBefore(node, next);
  }
  container.nodesByKey = after;
}

/** Copy the text of `source` when `button` is pressed, and say so on the button. */
export function copies(button, source) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      setText(button, "Copied");
    } catch {
      // Not a secure context, or refused: leave the text selected for the reader to copy.
      getSelection().selectAllChildren(source);
      setText(button, "Selected");
    }
    setTimeout(() => setText(button, label), 1500);
  });
}
