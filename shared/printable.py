"""Makes foreign text safe for a terminal."""

import json
import re

_STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, change the text's direction, or cannot be written.

They are control characters (C0, DEL, C1), line separators, bidi overrides and surrogates.
"""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return `text` with control characters as JSON escapes, such as `\u001b`.

    JSON keeps its meaning. The characters of `keep` stay unchanged.
    """
    return _STEERS.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]
