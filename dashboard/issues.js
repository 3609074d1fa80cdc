// Issues of an agent or a model, with what to do about them.

import { element, keyed, setText, show } from "./dom.js";

/** Draw `issues` as a list that is hidden while there are none. */
export function drawIssues(list, issues) {
  show(list, issues.length > 0);
  keyed(list, issues.map((issue, index) => ({ ...issue, index })), {
    key: (issue) => issue.index,
    create: () => {
      const item = element("li", "", element("span"), element("span", "hint"));
      item.dataset.testid = "issue";
      return item;
    },
    update: (item, issue) => {
      const [words, hint] = item.children;
      setText(words, `${issue.message} (${issue.code})`);
      setText(hint, issue.hint ?? "");
      show(hint, Boolean(issue.hint));
    },
  });
}
