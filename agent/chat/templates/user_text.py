"""Separates client text from template text, so that clients cannot inject control tokens.

A tokenizer reads `<|im_start|>` as a control token anywhere in a text. It must do so where the
template wrote the characters, and must not where a message, a tool or a variable contains them.

So a conversation whose strings contain the beginning of a control token is rendered twice. For the
second render, the first character of each such place is replaced by a *mark*: a character of a
private use area that occurs nowhere else. Marks survive what templates do with text. Lengths stay
the same, and text with marks is trimmed, split, joined, cut and written as JSON in the same way.
With the marks replaced back, both texts must be equal; then the marks show the places in the text.
There the text is *cut* after the first character, and the tokenizer gets the pieces. A text without
such places is rendered once and tokenized as a whole.

A template may look for control tokens in messages: some search an assistant's message for the end
of its reasoning. The two texts differ then. Control tokens that a template looks for in an
assistant's message keep their meaning there. In any other place the request is refused.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ....shared.inference import Notice

_MARKS = range(0xE000, 0xF8FF)
_LEAST_BEGUN = 3
"""Characters of a control token that are marked even if the other characters do not follow.

A template that removes text in between may join the two parts.
"""

MOST_SEARCHED = 4
"""Maximum control tokens tried in assistant messages, each with one more render."""

_OWN = ("content", "reasoning_content", "thinking")
"""Members of an assistant message that a model wrote."""


class MixedUpError(Exception):
    """The template looks for a control token at a place where a client wrote one."""


@dataclass(frozen=True, slots=True)
class RenderedText:
    """A rendered text. `cuts` are positions at which it must be split before tokenization.

    `notices` say which messages are shown in another form than they were sent.
    """

    text: str
    cuts: tuple[int, ...] = ()
    notices: tuple[Notice, ...] = ()

    @property
    def pieces(self) -> Iterator[str]:
        """The text, split at `cuts`."""
        return (self.text[a:b] for a, b in pairwise((0, *self.cuts, len(self.text))))

    def divided(self, length: int) -> "tuple[RenderedText, RenderedText]":
        """Return the first `length` characters and the remaining ones, each with its cuts."""
        return (
            RenderedText(self.text[:length], tuple(cut for cut in self.cuts if cut < length)),
            RenderedText(
                self.text[length:], tuple(cut - length for cut in self.cuts if cut > length)
            ),
        )


@dataclass(frozen=True, slots=True)
class Variables:
    """The template variables that come from a client: plain values."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    options: Mapping[str, Any]


Render = Callable[[Variables], str]
"""Renders variables; may change them."""


class ControlTexts:
    """The texts that a tokenizer reads as control tokens."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._whole = _beginning({text for text in texts if text})
        self._begun = _beginning({text[:_LEAST_BEGUN] for text in texts if text})

    def tell_apart(self, variables: Callable[[], Variables], render: Render) -> RenderedText:
        """Render `variables()` with cuts; `variables` makes new values for each render.

        Raises `MixedUpError`, and the exceptions that `render` raises.
        """
        given = variables()
        is_plain = not any(map(self._begun.search, _strings(given)))
        text = render(given)
        if is_plain:
            return RenderedText(text)
        found = self._attempts(text, variables, render, ()) or self._attempts(
            text, variables, render, self._searched(text, variables, render)
        )
        if found is None:
            written = next(filter(None, map(self._whole.search, _strings(variables()))), None)
            named = repr(_whole_of(written)) if written else "text"
            raise MixedUpError(
                f"it cannot tell {named} in a message from its own markup; remove it there"
            )
        return found

    def _attempts(
        self,
        text: str,
        variables: Callable[[], Variables],
        render: Render,
        kept: tuple[str, ...],
    ) -> RenderedText | None:
        markings = (_Marking(each, text, kept=kept) for each in (self._begun, self._whole))
        return next(
            filter(None, (self._marked(each, variables, render) for each in markings)), None
        )

    def _marked(
        self, marking: "_Marking", variables: Callable[[], Variables], render: Render
    ) -> RenderedText | None:
        """Render with marks; return `None` if the marks change the template's output."""
        marked = marking.variables(variables())
        places = marking.places(render(marked))
        if places is None:
            return None
        found = (place for place in places if self._whole.match(marking.text, place))
        return RenderedText(marking.text, tuple(place + 1 for place in found))

    def _searched(
        self, text: str, variables: Callable[[], Variables], render: Render
    ) -> tuple[str, ...]:
        """Return the control tokens that the template looks for in assistant messages."""
        found: dict[str, None] = {}
        for own in _own_strings(variables().messages):
            found |= dict.fromkeys(_whole_of(match) for match in self._whole.finditer(own))
            if len(found) > MOST_SEARCHED:
                break
        return tuple(
            each
            for each in [*found][:MOST_SEARCHED]
            if not self._marked(
                _Marking(_beginning({each}), text, only_own=True), variables, render
            )
        )


class _Marking:
    """Marks matches of `pattern`, for a template that writes `text` without marks.

    Matches of `kept` are not marked in assistant messages. With `only_own`, only assistant messages
    are marked.
    """

    def __init__(
        self,
        pattern: re.Pattern[str],
        text: str,
        *,
        kept: tuple[str, ...] = (),
        only_own: bool = False,
    ) -> None:
        self._pattern = pattern
        self.text = text
        self._kept = kept
        self._only_own = only_own
        used = set(text)
        self._free = (
            mark for mark in map(chr, _MARKS) if mark not in used and _escaped(mark) not in text
        )
        self._marks: dict[str, str] = {}

    def variables(self, given: Variables) -> Variables:
        """Return a copy of `given` in which marks replace the matches of the pattern."""
        messages = [self._message(message) for message in given.messages]
        if self._only_own:
            return Variables(messages, given.tools, given.options)
        return Variables(messages, self._value(given.tools), self._value(given.options))

    def places(self, marked: str) -> list[int] | None:
        """Return the positions of the marks.

        Returns `None` if the text differs after the marks are replaced back.
        """
        firsts: dict[str, str] = {}
        for first, mark in self._marks.items():
            firsts |= {mark: first, _escaped(mark): first}
        places, parts, length, start = [], [], 0, 0
        for found in re.finditer(_any_of(firsts), marked):
            parts += [marked[start : found.start()], firsts[found[0]]]
            length += found.start() - start
            places.append(length)
            length += 1
            start = found.end()
        parts.append(marked[start:])
        return places if "".join(parts) == self.text else None

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        def is_own(key: str) -> bool:
            return message.get("role") == "assistant" and key in _OWN

        return {
            key: self._value(value, self._kept if is_own(key) else ())
            if is_own(key) or not self._only_own
            else value
            for key, value in message.items()
        }

    def _value(self, value: Any, kept: tuple[str, ...] = ()) -> Any:
        match value:
            case str():
                return self._string(value, kept)
            case list() | tuple():
                return [self._value(each, kept) for each in value]
            case dict():
                return {
                    self._string(key, ()): self._value(each, kept) for key, each in value.items()
                }
            case _:
                return value

    def _string(self, text: str, kept: tuple[str, ...]) -> str:
        def mark(found: re.Match[str]) -> str:
            first = text[found.start()]
            if kept and text.startswith(kept, found.start()):
                return first
            if first not in self._marks:
                self._marks[first] = next(self._free)
            return self._marks[first]

        return self._pattern.sub(mark, text)


def _beginning(texts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the first character of any of `texts`; its last group is the rest."""
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[0], []).append(text[1:])
    # One alternative per first character makes the search of a long text fast.
    found = (f"{re.escape(first)}(?=({_any_of(each)}))" for first, each in rests.items())
    return re.compile("|".join(found) or "(?!)")


def _whole_of(found: re.Match[str]) -> str:
    return f"{found[0]}{found[found.lastindex or 0]}"


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)"


def _escaped(mark: str) -> str:
    """Return the mark's escape in ASCII JSON and in Python's `repr`."""
    return f"\\u{ord(mark):04x}"


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Variables():
            for part in (value.messages, value.tools, value.options):
                yield from _strings(part)
        case list() | tuple():
            for each in value:
                yield from _strings(each)
        case Mapping():
            for key, each in value.items():
                yield key
                yield from _strings(each)
        case _:
            return


def _own_strings(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        if message.get("role") == "assistant":
            yield from _strings([message.get(key) for key in _OWN])
