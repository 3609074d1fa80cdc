// The page of access keys, for admins: which there are, what each may and when it was used; make, rotate
// and revoke them.

import { byId, keyed, setText, show } from "../dom.js";
import { plural } from "../format.js";
import { confirmed } from "../keys/confirm.js";
import { KeyForm } from "../keys/form.js";
import { byUse, createKeyRow, updateKeyRow } from "../keys/row.js";
import { showSecret, startSecret } from "../keys/secret.js";
import { call, get, paced, path } from "../management.js";
import { checkSession, enterWith, myName, needsKey } from "../session.js";

const PAUSE = 5000; // milliseconds between two looks while requests end
const ENDS = "What its holder has open ends: requests, streams, an agent's link.";

export class KeysPage {
  #keys = null;
  #usage = new Map(); // by caller
  #problem = "";

  constructor() {
    this.load = paced(() => this.#fetch(), PAUSE);
    this.form = new KeyForm((spec) => this.#make(spec));
    startSecret();
  }

  open() {
    setText(byId("keys-said"), "");
    this.#fetch();
  }

  /** A request has ended: a key was used. */
  onEnded() {
    if (!byId("page-keys").hidden) this.load();
  }

  draw() {}

  drawThroughput() {
    this.#draw();
  }

  async #fetch() {
    try {
      this.#keys = (await get("api/v1/keys")).keys.sort(byUse);
      this.#problem = "";
    } catch (error) {
      this.#problem = `They cannot be read: ${error.message}`;
    }
    const usage = await get("api/v1/usage?by=caller&since=30d").catch(() => null);
    if (usage) this.#usage = new Map(usage.usage.map((row) => [row.caller, row]));
    this.#draw();
  }

  async #make(spec) {
    const make = () => this.#secretOf("POST", path("keys"), spec);
    // From the first one on every call needs a key.
    if (needsKey()) await make();
    else await enterWith(make);
    this.#say(`The key ${spec.name} is made.`);
    await this.#fetch();
  }

  async #act(action, name) {
    const isMine = name === myName();
    const title = `${action === "rotate" ? "Rotate" : "Revoke"} ${name}?`;
    const what =
      action === "rotate" ? "The key gets a new secret; the old secret is no longer valid." : "The key is no longer valid.";
    const mine = isMine ? " You are logged in with it." : "";
    if (!(await confirmed({ title, text: `${what} ${ENDS}${mine}`, act: title.split(" ")[0] }))) return;
    try {
      if (action === "revoke") await this.#revoke(name, isMine);
      else await this.#rotate(name, isMine);
    } catch (error) {
      this.#say(`Not done: ${error.message}`);
    }
    await this.#fetch();
  }

  async #revoke(name, isMine) {
    await call("DELETE", path("keys", name));
    if (isMine) await checkSession();
    this.#say(`The key ${name} is revoked.`);
  }

  async #rotate(name, isMine) {
    const make = () => this.#secretOf("POST", path("keys", name, "rotate"), {});
    if (isMine) await enterWith(make);
    else await make();
    this.#say(`The key ${name} has another secret.`);
  }

  /** The secret that a call answers, once it is on the page. */
  async #secretOf(method, where, sent) {
    const { body } = await call(method, where, { body: sent });
    showSecret(body.name, body.key);
    return body.key;
  }

  #say(words) {
    setText(byId("keys-said"), words);
  }

  #draw() {
    const keys = this.#keys ?? [];
    const now = Date.now() / 1000;
    show(byId("no-keys"), keys.length === 0);
    setText(byId("no-keys"), this.#problem || "There are no keys, so no key is needed. The first key has the role admin; once it exists, every call needs a key.");
    show(byId("keys-table"), keys.length > 0);
    const numValid = keys.filter((key) => key.is_valid).length;
    setText(byId("keys-note"), keys.length ? `${plural(numValid, "key")} of ${keys.length} valid` : "");
    keyed(byId("keys"), keys, {
      key: ({ name, created_at: at }) => `${name} ${at}`,
      create: (key) => createKeyRow(key, (action, name) => this.#act(action, name)),
      update: (row, key) => updateKeyRow(row, key, { now, usage: this.#usage.get(key.name) }),
    });
  }
}
