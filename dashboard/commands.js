// The commands that the page suggests, with the balancer's own addresses in them.

import { byId, copies, setText } from "./dom.js";
import { get } from "./management.js";
import { CURL_KEY } from "./playground/snippets.js";
import { needsKey } from "./session.js";

let clientsCall = null; // the address of the inference port, once the balancer has said it

/** Address of this page's port, without a slash at the end. */
export const managementUrl = () => new URL(".", location.href).href.replace(/\/$/, "");

/** Address of the port for clients. Until it is known this port, which takes `/api/v1/generate` too. */
export const inferenceUrl = () => clientsCall ?? managementUrl();

/** Ask the balancer where clients reach it; resolves to what it says of itself, if it does. */
export async function learnAddresses() {
  const about = await get("api/v1/about").catch(() => null);
  if (about === null) return null; // the commands stay as they are
  clientsCall = about.public_url ?? atPort(about.inference_port);
  drawCommands();
  return about;
}

/** Write the commands, and wire their copy buttons. */
export function writeCommands() {
  drawCommands();
  copies(byId("copy-command"), byId("agent-command"));
  copies(byId("copy-curl"), byId("curl-command"));
  copies(byId("copy-upload"), byId("upload-command"));
  copies(byId("copy-batch"), byId("batch-command"));
}

function drawCommands() {
  const socket = managementUrl().replace(/^http/, "ws");
  const generate = `${inferenceUrl()}/api/v1/generate`;
  const [agentsKey, clientsKey] = needsKey() ? [" --key-file path/to/agent.key", ` ${CURL_KEY}`] : ["", ""];
  const model = "--model path/to/model.gguf";
  setText(byId("agent-command"), `agent --balancer ${socket}${agentsKey} ${model}`);
  const body = '{"prompt": "Once upon a time"}';
  setText(byId("curl-command"), `curl -N ${generate}${clientsKey} --json '${body}'`);
  const files = `${inferenceUrl()}/v1/files`;
  setText(byId("upload-command"), `curl ${files}${clientsKey} -F purpose=batch -F file=@requests.jsonl`);
  const batches = `${inferenceUrl()}/v1/batches`;
  const batch = '{"input_file_id": "file-…", "endpoint": "/v1/chat/completions", "completion_window": "24h"}';
  setText(byId("batch-command"), `curl ${batches}${clientsKey} --json '${batch}'`);
}

/** The host by which this page was opened, at another port. */
function atPort(port) {
  if (port === null) return null;
  const url = new URL(location.origin);
  url.port = String(port);
  return url.origin;
}
