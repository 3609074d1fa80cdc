// The pictures that go with the next message: chosen, dropped onto the talk or pasted.

import { byId, element, setText, show } from "../dom.js";
import { ACCEPTED } from "./pictures.js";

const MAX_PICTURES = 8; // of one message

export class Tray {
  #ids = [];
  #canRead = false; // whether any model reads pictures

  constructor(pictures) {
    this.pictures = pictures;
    const input = byId("picture-file");
    input.accept = ACCEPTED;
    byId("add-picture").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.#add([...input.files]);
      input.value = ""; // so that the same file can be chosen again
    });
    byId("prompt").addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    this.#drops(byId("talk"));
  }

  /** Offer it, where some model reads pictures. */
  offer(canRead) {
    this.#canRead = canRead;
    show(byId("add-picture"), canRead);
  }

  get isEmpty() {
    return this.#ids.length === 0;
  }

  /** Have these in place of what is there. */
  fill(ids) {
    this.#ids = ids.filter((id) => this.pictures.url(id));
    setText(byId("picture-problem"), "");
    this.#draw();
  }

  /** What is there; it stays. */
  get ids() {
    return [...this.#ids];
  }

  async #add(files) {
    setText(byId("picture-problem"), "");
    for (const file of files) {
      try {
        if (!this.#canRead) throw new Error("No model here reads pictures.");
        if (this.#ids.length >= MAX_PICTURES) throw new Error(`At most ${MAX_PICTURES} pictures.`);
        this.#ids.push(await this.pictures.read(file));
      } catch (error) {
        setText(byId("picture-problem"), error.message);
      }
    }
    this.#draw();
  }

  /** Files that are dropped or pasted; text goes where it always does. */
  #take(event, data) {
    const files = [...(data?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    this.#add(files);
  }

  #drops(area) {
    const mark = (isOver) => area.classList.toggle("drop", isOver);
    area.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      mark(true);
    });
    area.addEventListener("dragleave", (event) => {
      if (!area.contains(event.relatedTarget)) mark(false);
    });
    area.addEventListener("drop", (event) => {
      mark(false);
      this.#take(event, event.dataTransfer);
    });
  }

  #draw() {
    byId("tray").replaceChildren(...this.#ids.map((id) => this.#item(id)));
    show(byId("tray"), !this.isEmpty);
  }

  #item(id) {
    const remove = element("button", "quiet", "Remove");
    remove.type = "button";
    remove.addEventListener("click", () => this.fill(this.#ids.filter((each) => each !== id)));
    return element("li", "", this.pictures.node(id), remove);
  }
}
