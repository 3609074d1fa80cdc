"""A prompt in the engine, and a sequence's history: a prompt that grows.

Both are sequences of positions. A position holds a token, or a part of media: an image is one span
that covers as many positions as the model takes for it. An adapter (LoRA) changes the results at
all positions.

Each position has a *cache key*. Sequences whose first n keys are equal have the same first n
cells, so the cache, the prefix tree and stored prompts compare only keys:

- the key of a token is its id;
- the keys of media are negative, from the digest of the media and the position within them;
- under an adapter, the adapter is a part of every key;
- in a scope, the scope is a part of every key: callers of other scopes have no key in common.

The keys of a plain text prompt are its token ids. Adapters are set for a step
(`scheduling.planner`).

Media are computed in parts like text, but a prefix that is shared or cached ends at the `border`
of a span. Cells of a picture may have positions in two dimensions, and llama.cpp cannot cut
between them. If a model computes a picture as a whole, each of its positions depends on all
others, so one step computes them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1
_SALT_BYTES = 8
_SCOPE_BYTES = 16
_MEDIA_BYTES = 16


@dataclass(frozen=True, slots=True)
class Media:
    """A picture or sound in a prompt, identified by its `digest`.

    Raises `ValueError` if it covers no position. `is_whole`: its positions attend to each other,
    not only to earlier positions.
    """

    digest: bytes
    num_positions: int
    is_whole: bool = False

    def __post_init__(self) -> None:
        if self.num_positions < 1:
            raise ValueError(f"media of {self.num_positions} positions")


@dataclass(frozen=True, slots=True)
class MediaPart:
    """`count` positions of `media`, from its position `first` on."""

    media: Media
    first: int
    count: int


Span = tuple[int, ...] | Media
"""Token ids, or media."""

_Placed = tuple[int, Media]
"""Media and their first position."""


class Positions:
    """The common part of a prompt and a history. `keys` has one key per position; read only."""

    __slots__ = ("_media", "adapter", "keys", "scope")

    adapter: str | None
    """Identifies the adapters that apply: an `adapter.adapter_key`."""
    scope: str | None
    """The scope whose callers may share the prompt; `None` is the scope of all other callers."""
    keys: Sequence[int]
    _media: Sequence[_Placed]

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        salts = "".join(
            f", {name}={value!r}"
            for name, value in (("adapter", self.adapter), ("scope", self.scope))
            if value is not None
        )
        return f"{type(self).__name__}({', '.join(map(repr, self.spans))}{salts})"

    @property
    def has_media(self) -> bool:
        """Return whether some of the positions are not tokens."""
        return bool(self._media)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Tokens and media, in order; spans of tokens are never adjacent, and no span is empty.

        The engine computes the spans one by one.
        """
        spans: list[Span] = []
        start = 0
        for place, media in self._media:
            spans += [self._ids(start, place), media]
            start = place + media.num_positions
        spans.append(self._ids(start, None))
        return tuple(span for span in spans if span)

    @property
    def tokens(self) -> tuple[int, ...]:
        """All token ids in order, without media, for penalties, echo and drafts."""
        if not self._media:
            return self._ids(0, None)
        return tuple(id for span in self.spans if isinstance(span, tuple) for id in span)

    def token_ids(self, start: int, stop: int) -> tuple[int, ...]:
        """Return the tokens in [`start`, `stop`). Raises `ValueError` if some are not tokens."""
        media = self._media
        if media and any(at < stop and start < at + one.num_positions for at, one in media):
            raise ValueError(f"positions {start} to {stop} are not all tokens")
        return self._ids(start, stop)

    def span_left(self, start: int) -> int:
        """Return how many positions from `start` on are in one span, which one run computes."""
        for place, media in self._media:
            if start < place:
                return place - start
            if start < place + media.num_positions:
                return place + media.num_positions - start
        return len(self.keys) - start

    def media_part(self, start: int, count: int) -> MediaPart | None:
        """Return the media at `start`, if any; the `count` positions must be within the span."""
        for place, media in self._media:
            if place <= start < place + media.num_positions:
                return MediaPart(media, start - place, count)
        return None

    def whole_left(self, start: int) -> int:
        """Return how many positions from `start` must be computed at once; 0 if fewer than two."""
        part = self.media_part(start, 1) if self._media else None
        return self.span_left(start) if part is not None and part.media.is_whole else 0

    @property
    def media(self) -> tuple[Media, ...]:
        """All media, in order."""
        return tuple(one for _, one in self._media)

    def part(self, start: int, stop: int) -> "Prompt":
        """Return the positions in [`start`, `stop`). Raises `ValueError` if that cuts media."""
        media = [*_between(self._media, start, stop)]
        moved = [(place - start, one) for place, one in media]
        return _prompt(tuple(self.keys[start:stop]), moved, self)

    def _ids(self, start: int, stop: int | None) -> tuple[int, ...]:
        keys = self.keys[start:stop]
        is_salted = self.adapter is not None or self.scope is not None
        return tuple(key & _ID_MASK for key in keys) if is_salted else tuple(keys)


class Prompt(Positions):
    """An immutable prompt of token or media spans; prompts with the same cache keys are equal."""

    __slots__ = ()

    keys: tuple[int, ...]

    def __init__(self, *spans: Span, adapter: str | None = None, scope: str | None = None) -> None:
        self.adapter, self.scope = adapter, scope
        self._media, place = [], 0
        for span in spans:
            if isinstance(span, Media):
                self._media.append((place, span))
            place += span.num_positions if isinstance(span, Media) else len(span)
        first = spans[0] if spans else ()
        salt = _salt(adapter, scope)
        if len(spans) < 2 and not salt and isinstance(first, tuple):
            self.keys = first
        else:
            self.keys = tuple(key for span in spans for key in _keys(span, salt))

    def __eq__(self, other: object) -> bool:
        return self.keys == other.keys if isinstance(other, Prompt) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.keys)

    def without(self, start: int, count: int) -> "Prompt":
        """Return a copy without `count` positions from `start` on.

        Raises `ValueError` if that cuts media.
        """
        before, after = self.part(0, start), self.part(start + count, len(self))
        moved = [(start + place, one) for place, one in after._media]
        return _prompt(before.keys + after.keys, [*before._media, *moved], self)


class History(Positions):
    """The content of a sequence: `prompt`, and the tokens generated since.

    `keys` stays the same list while it changes, so the cache can look at it later.
    """

    __slots__ = ("_salt",)

    keys: list[int]

    def __init__(self, prompt: Prompt) -> None:
        self.adapter, self.scope = prompt.adapter, prompt.scope
        self.keys = list(prompt.keys)
        self._media = list(prompt._media)
        self._salt = _salt(prompt.adapter, prompt.scope)

    def append(self, token: int) -> None:
        """Append a generated `token`."""
        self.keys.append(self._salt | token)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append generated `tokens`."""
        self.keys.extend(tokens if not self._salt else (self._salt | token for token in tokens))

    def discard(self, start: int, count: int) -> None:
        """Remove `count` positions from `start` on. Raises `ValueError` if that cuts media."""
        end = start + count
        before = [*_between(self._media, 0, start)]
        after = [*_between(self._media, end, len(self))]
        self._media = [*before, *((place - count, one) for place, one in after)]
        del self.keys[start:end]


def _prompt(keys: tuple[int, ...], media: Sequence[_Placed], like: Positions) -> Prompt:
    made = Prompt.__new__(Prompt)
    made.keys, made._media, made.adapter, made.scope = keys, media, like.adapter, like.scope
    return made


def _between(media: Iterable[_Placed], start: int, stop: int) -> Iterator[_Placed]:
    """Yield the `media` in [`start`, `stop`)."""
    for place, one in media:
        end = place + one.num_positions
        if place < start < end or place < stop < end:
            raise ValueError(f"positions {start} to {stop} cut media at {place} to {end}")
        if start <= place and end <= stop:
            yield place, one


def border(keys: Sequence[int], length: int) -> int:
    """Return the longest length, at most `length`, at which `keys` can be cut: not within media.

    The keys of media are negative, and each key is one less than the key before it.
    """
    while 0 < length < len(keys) and keys[length - 1] < 0 and keys[length] == keys[length - 1] - 1:
        length -= 1
    return length


def _salt(adapter: str | None, scope: str | None) -> int:
    """Return the bits that an adapter and a scope add to the keys, above the bits of token ids."""
    if adapter is None and scope is None:
        return 0
    person = b"" if scope is None else blake2b(scope.encode(), digest_size=_SCOPE_BYTES).digest()
    text = (adapter or "").encode()
    digest = blake2b(text, digest_size=_SALT_BYTES, person=person).digest()
    return (1 + int.from_bytes(digest)) << _ID_BITS


def _keys(span: Span, salt: int) -> Iterable[int]:
    if isinstance(span, tuple):
        return (salt | id for id in span) if salt else span
    identity = b"%d %d " % (salt, span.num_positions) + span.digest
    first = int.from_bytes(blake2b(identity, digest_size=_MEDIA_BYTES).digest())
    return range(-1 - first, -1 - first - span.num_positions, -1)
