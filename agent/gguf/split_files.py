"""The names of the files of a split model."""

import re

_SPLIT = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)

MAX_FILES = 1000
"""Maximum files of a split model; the largest known models have about 100."""


def files_of(name: str) -> tuple[str, ...]:
    """Return the names of all files of the split model to which `name` belongs, in order.

    `name-00002-of-00003.gguf` is one file of three. `name` may be a path or a URL without query.
    Raises `ValueError` for an impossible number of files.
    """
    found = _SPLIT.fullmatch(name)
    if found is None:
        return (name,)
    count = int(found["count"])
    if not 1 <= int(found["number"]) <= count <= MAX_FILES:
        raise ValueError(f"{name} is not a file of a split model with at most {MAX_FILES} files")
    return tuple(
        f"{found['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)
    )
