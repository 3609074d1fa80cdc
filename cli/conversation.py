"""A chat's turns, and what a person types: text, files by `@path`, and commands."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_FILE = 2**20
"""Largest file that is put into a question, in bytes."""

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S+)")


class FileProblem(Exception):
    """A file that is asked for cannot be put into the question."""


@dataclass(slots=True)
class Conversation:
    """The messages so far; they alternate, beginning with the user's."""

    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)

    def asked(self, text: str) -> list[dict[str, Any]]:
        """What to send for the next question."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.turns, {"role": "user", "content": text}]

    def answered(self, question: str, answer: str) -> None:
        """Keep a turn. An answer that was cut off counts as far as it came."""
        self.turns.append({"role": "user", "content": question})
        self.turns.append({"role": "assistant", "content": answer})

    def take_back(self) -> str | None:
        """Forget the last turn; its question, if there was one."""
        if not self.turns:
            return None
        question = self.turns[-2]["content"]
        del self.turns[-2:]
        return question


def with_files(text: str) -> str:
    """`text` with the files that it mentions as `@path` behind it. Raises `FileProblem`.

    A word behind an `@` that is no path stays as it is.
    """
    paths = [Path(word).expanduser() for word in _MENTION.findall(text)]
    files = [path for path in dict.fromkeys(paths) if path.is_file()]
    return "\n\n".join([text, *map(_fenced, files)])


def _fenced(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE:
            raise FileProblem(f"{path} is larger than {MAX_FILE // 2**20} MiB")
        content = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileProblem(f"cannot read {path}: {error}") from error
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", content)), default=0))
    return f"{path}:\n{fence}\n{content.rstrip()}\n{fence}"
