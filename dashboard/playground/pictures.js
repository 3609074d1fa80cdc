// Pictures of the reader's messages. They are in this page's memory and nowhere else, so after a
// reload a chat only knows that there was one.

import { element } from "../dom.js";

const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const MAX_SIDE = 2048; // pixels; what is larger is scaled down, as models do themselves
const MAX_BYTES = 2 ** 21; // of a file that is sent as it is
const MAX_KEPT = 2 ** 26; // characters of all data URIs; the oldest are forgotten
const SMALL_SIDE = 144; // pixels of what is shown

const GONE = "A picture that is no longer here; it is not sent.";

export const ACCEPTED = TYPES.join(",");

export class Pictures {
  #stored = new Map(); // by id: its data URI, and a small canvas

  /** Take in a file. Resolves to its id; throws an `Error` with words for the reader. */
  async read(file) {
    const bitmap = await decoded(file);
    const isLarge = file.size > MAX_BYTES || Math.max(bitmap.width, bitmap.height) > MAX_SIDE;
    const url = isLarge ? scaled(bitmap, MAX_SIDE).toDataURL("image/jpeg", 0.9) : await asUrl(file);
    const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
    this.#stored.set(id, { url, small: scaled(bitmap, SMALL_SIDE), name: file.name });
    bitmap.close();
    this.#forgetOldest();
    return id;
  }

  /** As it is sent, or undefined where it is no longer here. */
  url(id) {
    return this.#stored.get(id)?.url;
  }

  /** A new node that shows it, or that it is gone. */
  node(id) {
    const stored = this.#stored.get(id);
    if (!stored) return element("p", "picture-gone", GONE);
    const canvas = copied(stored.small);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Picture ${stored.name}`);
    canvas.dataset.testid = "picture";
    return canvas;
  }

  #forgetOldest() {
    let size = 0;
    for (const { url } of this.#stored.values()) size += url.length;
    for (const [id, { url }] of this.#stored) {
      if (size <= MAX_KEPT) return;
      this.#stored.delete(id);
      size -= url.length;
    }
  }
}

async function decoded(file) {
  if (!TYPES.includes(file.type)) {
    throw new Error(`${file.name}: models read PNG, JPEG, WebP and GIF pictures.`);
  }
  try {
    return await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name}: this picture cannot be read.`);
  }
}

/** A canvas with the whole of `source`, no side longer than `most`. */
function scaled(source, most) {
  const scale = Math.min(1, most / Math.max(source.width, source.height));
  const canvas = element("canvas", "picture");
  canvas.width = Math.max(1, Math.round(source.width * scale));
  canvas.height = Math.max(1, Math.round(source.height * scale));
  canvas.getContext("2d").drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas;
}

const copied = (canvas) => scaled(canvas, SMALL_SIDE);

function asUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(new Error(`${file.name}: it cannot be read.`)));
    reader.readAsDataURL(file);
  });
}
