// The commands that empty states suggest, with the balancer's own addresses in them.

import { byId, copies, setText } from "./dom.js";

/** Address of this page's port, without a slash at the end. */
export const managementUrl = () => new URL(".", location.href).href.replace(/\/$/, "");

/** Address of a client's requests; this port answers `/api/v1/generate` as well. */
export const generateUrl = () => `${managementUrl()}/api/v1/generate`;

/** Write the commands, and wire their copy buttons. */
export function writeCommands() {
  const socket = managementUrl().replace(/^http/, "ws");
  setText(byId("agent-command"), `agent --balancer ${socket} --model path/to/model.gguf`);
  setText(byId("curl-command"), `curl -N ${generateUrl()} --json '{"prompt": "Once upon a time"}'`);
  copies(byId("copy-command"), byId("agent-command"));
  copies(byId("copy-curl"), byId("curl-command"));
}
