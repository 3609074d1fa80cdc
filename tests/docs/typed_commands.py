"""Finds what the written pages tell a reader to type and the programs do not take.

It reads blocks of `sh` (commands of `balancer`, `agent` and `arriero`), and those of `toml` whose
first line is a comment with the file's name: `balancer.toml`, `agent.toml` or `models.toml`.
"""

import argparse
import importlib
import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from arriero.agent.settings import AgentSettings
from arriero.balancer.control.desired_state import parse_desired_state
from arriero.balancer.settings import BalancerSettings
from arriero.shared.errors import InvalidRequest
from arriero.shared.settings.declaration import Settings
from arriero.shared.settings.load import SettingsError, load

from .written_pages import ROOT

PROGRAMS: dict[str, type[Settings]] = {"balancer": BalancerSettings, "agent": AgentSettings}

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (?:\S*/)?(balancer|agent|models)\.toml\b")
_ASSIGNED = re.compile(r"[A-Z_]+=.*")
_ENDS = frozenset((";", "&", "&&", "|", "||", "(", ")"))
_REDIRECTIONS = frozenset((">", ">>", "<"))


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code in `text` that say that they are in this language."""
    return [body for name, body in _BLOCK.findall(text) if name == language]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of the three programs in blocks of `sh`."""
    for block in blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for words in _commands_of(line):
                while words and (_ASSIGNED.fullmatch(words[0]) or words[0] == "sudo"):
                    del words[0]
                if words and (name := Path(words[0]).name) in (*PROGRAMS, "arriero"):
                    yield [name, *words[1:]]


def _commands_of(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a text in quotes that goes on in the next line
        return
    command: list[str] = []
    is_file = False
    for word in [*words, ";"]:
        if word in _ENDS:
            yield command
            command = []
        elif word in _REDIRECTIONS:
            is_file = True
        elif is_file:
            is_file = False
        else:
            command.append(word)


def wrong_commands(page: str, text: str) -> Iterator[str]:
    """What the programs refuse of the commands in `text`, as `page` has it."""
    for words in commands(text):
        name, *arguments = words
        problem = _refusal(name, arguments)
        if problem:
            yield f"{page}: {shlex.join(words)}: {problem}"


def _refusal(name: str, arguments: list[str]) -> str | None:
    if name in PROGRAMS:
        if "--config" in arguments:  # the file is in another block, if anywhere
            at = arguments.index("--config")
            arguments = arguments[:at] + arguments[at + 2 :]
        return _refused_settings(PROGRAMS[name], arguments)
    if not arguments or arguments[0] in PROGRAMS:
        return None
    try:
        module = importlib.import_module(f"arriero.cli.commands.{arguments[0]}")
    except ModuleNotFoundError:
        return "no such command"
    parser: argparse.ArgumentParser = module.build_parser()
    with redirect_stderr(StringIO()) as said:
        try:
            parser.parse_args(arguments[1:])
        except SystemExit:
            return said.getvalue().splitlines()[-1]
    return None


def _refused_settings(cls: type[Settings], arguments: list[str]) -> str | None:
    try:
        load(cls, arguments, {})
    except SettingsError as error:
        return str(error)
    return None


def wrong_files(page: str, text: str) -> Iterator[str]:
    """What is wrong with the files in blocks of `toml` in `text`, as `page` has it."""
    for block in blocks(text, "toml"):
        if (named := _FILE.match(block)) is None:
            continue
        problem = _wrong_file(named[1], block)
        if problem:
            yield f"{page}: {named[1]}.toml: {problem}"


def _wrong_file(name: str, block: str) -> str | None:
    if name == "models":
        try:
            parse_desired_state(json.dumps(tomllib.loads(block)))
        except (InvalidRequest, tomllib.TOMLDecodeError) as error:
            return str(error)
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(block)
        file.flush()
        return _refused_settings(PROGRAMS[name], ["--config", file.name])


def names_code(text: str) -> Iterator[tuple[str, str]]:
    """Files and what is said to be in them, where a line has `file.py` and then (`name`, …)."""
    for path, names in re.findall(r"`([\w/]+\.py)`\s*\(((?:`[\w.]+`(?:,\s*)?)+)\)", text):
        for name in re.findall(r"`([\w.]+)`", names):
            yield path, name


def missing_names(page: str, text: str) -> Iterator[str]:
    """Those of `names_code` that the file does not define."""
    for path, name in names_code(text):
        file = ROOT / path
        if not file.exists() or not all(_defines(file, part) for part in name.split(".")):
            yield f"{page}: `{path}` has no `{name}`"


def _defines(file: Path, name: str) -> bool:
    pattern = rf"^\s*(?:(?:async )?def|class) {name}\b|^\s*(?:self\.)?{name}\b\s*(?::[^=]*)?="
    return re.search(pattern, file.read_text(), re.MULTILINE) is not None
