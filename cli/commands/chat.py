"""`arriero chat`: a conversation in the terminal."""

import argparse
import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import EXIT_USAGE, Target, exit_code_of, make_parser, run_plain, sentence_of
from ..output import console
from ..waiting_line import WaitingLine
from .generate import add_options, options_of

if TYPE_CHECKING:
    from ...client import Client
    from ...client.answers import Event
    from ..screen import Screen

HELP = """/help        show this help
/system TEXT set the system message; without TEXT, remove it
/retry       ask the last question again
/clear       begin a new conversation
/quit        leave; so does Ctrl-D
@path        put a file into the question; \\ at a line's end continues on the next line
Ctrl-C       stop the answer"""


# ---- turns, and what a person types: text, files by `@path`


MAX_FILE = 2**20
"""Maximum bytes of a file that is put into a question."""

_PATHS = ("/", "./", "../", "~/")
"""Beginnings of words that can only be paths."""

_PUNCTUATION = ",.;:!?)"
"""Punctuation that may follow a path in a sentence."""

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S+)")


class FileProblem(Exception):
    """A file that the question mentions cannot be read."""


@dataclass(slots=True)
class Conversation:
    """The messages so far; they alternate, and the first is the user's."""

    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)

    def asked(self, text: str) -> list[dict[str, Any]]:
        """Return the messages to send for the next question."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.turns, {"role": "user", "content": text}]

    def answered(self, question: str, answer: str) -> None:
        """Add a question and its answer. An interrupted answer is added as far as it was
        received.
        """
        self.turns.append({"role": "user", "content": question})
        self.turns.append({"role": "assistant", "content": answer})

    def take_back(self) -> str | None:
        """Remove the last question with its answer, and return the question; `None` without one."""
        if not self.turns:
            return None
        question = self.turns[-2]["content"]
        del self.turns[-2:]
        return question


def with_files(text: str) -> str:
    """Return `text` followed by the files that it mentions as `@path`. Raises `FileProblem`.

    If a word after `@` is not a file, it stays unchanged; a word that begins like a path must be a
    file.
    """
    mentions = dict.fromkeys(_MENTION.findall(text))
    found = {word: _file(word) or _file(word.rstrip(_PUNCTUATION)) for word in mentions}
    for word, file in found.items():
        if file is None and word.startswith(_PATHS):
            raise FileProblem(f"there is no file {word.rstrip(_PUNCTUATION)}")
    files = dict.fromkeys(file for file in found.values() if file is not None)
    return "\n\n".join([text, *map(_fenced, files)])


def _file(word: str) -> Path | None:
    path = Path(word).expanduser()
    return path if path.is_file() else None


def _fenced(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE:
            raise FileProblem(f"{path} is larger than {MAX_FILE // 2**20} MiB")
        content = path.read_text()
    except OSError as error:
        raise FileProblem(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileProblem(f"cannot read {path}: it is not text") from error
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", content)), default=0))
    return f"{path}:\n{fence}\n{content.rstrip()}\n{fence}"


# ---- the command


def main(argv: Sequence[str] | None = None) -> int:
    """Chat with a model."""
    return run_plain(build_parser(), argv, _chat)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("chat", main.__doc__ or "")
    parser.add_argument("--system", help="the system message")
    parser.add_argument("--no-thinking", action="store_true", help="ask the model not to reason")
    add_options(parser)
    return parser


def _chat(arguments: argparse.Namespace, target: Target) -> int:

    if sys.stdin.isatty():
        import readline  # noqa: F401  # input() then has a history and can be edited

    options = options_of(arguments)
    if arguments.no_thinking:
        options["thinking"] = False
    with asyncio.Runner() as runner:
        client = target.client()
        try:
            return _Chat(runner, client, console(), options, arguments.system).run()
        finally:
            runner.run(client.close())


class _Chat:
    def __init__(
        self,
        runner: asyncio.Runner,
        client: "Client",
        console: "Screen",
        options: dict[str, Any],
        system: str | None,
    ) -> None:
        self._runner = runner
        self._client = client
        self._console = console
        self._options = options
        self._conversation = Conversation(system)
        self._code = 0
        """The exit code for the last question."""

    def run(self) -> int:
        """Read and answer questions.

        Returns the exit code of the last question.
        """
        if sys.stdin.isatty():
            self._console.print("/help explains, Ctrl-D leaves", style="dim")
        while (line := self._read()) is not None:
            if line.startswith("/"):
                if not self._obey(line):
                    break
            elif line.strip():
                self._ask(line)
        return self._code

    def _read(self) -> str | None:
        """Read a question, which may have several lines; `None` at the end of the input."""
        lines: list[str] = []
        while True:
            try:
                lines.append(input("… " if lines else "> "))
            except EOFError:
                return None
            except KeyboardInterrupt:
                self._console.print()
                lines = []
                continue
            if not lines[-1].endswith("\\"):
                return "\n".join(line.removesuffix("\\") for line in lines)

    def _obey(self, line: str) -> bool:
        """Run a `/` command. Returns whether the chat goes on."""
        command, _, rest = line.partition(" ")
        match command:
            case "/quit" | "/exit":
                return False
            case "/clear":
                self._conversation = Conversation(self._conversation.system)
            case "/system":
                self._conversation.system = rest.strip() or None
            case "/retry":
                question = self._conversation.take_back()
                if question is not None:
                    self._answer(question)
            case _:
                self._say(f"{HELP}\n")
        return True

    def _ask(self, line: str) -> None:
        try:
            self._answer(with_files(line))
        except FileProblem as problem:
            self._code = EXIT_USAGE
            self._say(f"{problem}\n", style="red")

    def _answer(self, question: str) -> None:
        from ...client import ArrieroError

        texts: list[str] = []
        try:
            self._runner.run(self._stream(question, texts))
        except KeyboardInterrupt:
            self._say("\nstopped\n", style="dim")
        except ArrieroError as error:
            self._code = exit_code_of(error)
            self._say(f"{sentence_of(error)}\n", style="red")
            return
        self._code = 0
        self._conversation.answered(question, "".join(texts))

    async def _stream(self, question: str, texts: list[str]) -> None:
        from ...client import Reading, Waiting

        messages = self._conversation.asked(question)
        with WaitingLine(sys.stderr) as waits:
            async with self._client.stream(messages=messages, **self._options) as events:
                async for event in events:
                    if isinstance(event, Waiting | Reading):
                        waits.show(event)
                    else:
                        waits.clear()
                        self._show(event, texts)

    def _show(self, event: "Event", texts: list[str]) -> None:
        from ...client import Done, Token, ToolCall, Warned

        match event:
            case Token(kind="content"):
                texts.append(event.text)
                self._say(event.text)
            case Token(kind="reasoning"):
                self._say(event.text, style="dim italic")
            case ToolCall():
                self._say(f"\n{event.name}({event.arguments})", style="cyan")
            case Warned():
                self._say(f"\n{event.message}\n", style="yellow")
            case Done():
                self._say(f"\n{_facts(event)}\n", style="dim")
            case _:
                pass

    def _say(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(text, style), end="", soft_wrap=True)


def _facts(done: Any) -> str:
    rate = done.timings.decode_tokens_per_second
    parts = [f"{done.usage.completion_tokens} tokens"]
    if rate is not None:
        parts.append(f"{rate:.0f} tok/s")
    if done.usage.cached_tokens:
        parts.append(f"{done.usage.cached_tokens} of {done.usage.prompt_tokens} cached")
    if done.finish_reason != "stop":
        parts.append(done.finish_reason)
    return " · ".join(parts)
