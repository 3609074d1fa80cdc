"""The files of a split model, by their names."""

import re

_SPLIT = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)

MAX_FILES = 1000
"""Most files of a split model; the largest models known have about 100."""


def files_of(name: str) -> tuple[str, ...]:
    """The names of all files of the model that `name` belongs to, the first one first.

    `name-00002-of-00003.gguf` is one file of three. `name` may be a path or a URL without query.
    Raises `ValueError` for a number of files that no model has.
    """
    found = _SPLIT.fullmatch(name)
    if found is None:
        return (name,)
    count = int(found["count"])
    if not 1 <= int(found["number"]) <= count <= MAX_FILES:
        raise ValueError(f"{name} names no file of a split model of at most {MAX_FILES} files")
    return tuple(
        f"{found['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)
    )
