"""What the head of an answer says of the file: its size, which part follows, how to resume it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFacts:
    """`total` is the size of the whole file. `first_byte` is where the body begins in it.

    `validator` goes into `If-Range`: a strong ETag, or the date of the last change (RFC 9110,
    13.1.5). `retry_after` in seconds.
    """

    status: int
    total: int | None = None
    first_byte: int | None = None
    validator: str | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str]) -> Self:
        """`headers` finds names however they are written."""
        first_byte, total = _range(headers.get("content-range", ""))
        if status == 200:
            total = _number(headers.get("content-length"))
        return cls(
            status=status,
            total=total,
            first_byte=first_byte,
            validator=_validator(headers),
            retry_after=_number(headers.get("retry-after")),
        )


def _range(text: str) -> tuple[int | None, int | None]:
    found = _RANGE.fullmatch(text)
    if found is None:
        return None, None
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _number(text: str | None) -> int | None:
    """`Retry-After` may be a date; then the pause is ours to choose."""
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= 18
    return int(text) if text is not None and is_number else None


def _validator(headers: Mapping[str, str]) -> str | None:
    etag = headers.get("etag", "")
    if etag.startswith('"'):
        return etag
    return None if etag else headers.get("last-modified")
