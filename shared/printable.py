"""Text from elsewhere, made safe for a terminal."""

import json
import re

_STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls (C0, DEL, C1), separators of lines, overrides of the text's direction (bidi), and
surrogates, which cannot be written at all."""


def printable(text: str, *, keep: str = "") -> str:
    """`text` with each character that steers a terminal as its JSON escape, such as `\\u001b`.

    JSON stays JSON of the same meaning. The characters of `keep` stay as they are.
    """
    return _STEERS.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]
