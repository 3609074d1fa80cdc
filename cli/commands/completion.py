"""`arriero completion`: a shell script that completes commands and flags."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points

from ...shared.command_line import GROUP
from ..arguments import Target, make_parser, run_plain


def main(argv: Sequence[str] | None = None) -> int:
    """Print a completion script for bash, zsh or fish."""
    return run_plain(build_parser(), argv, _completion)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = make_parser("completion", main.__doc__ or "")
    parser.add_argument(
        "shell", choices=sorted(SHELLS), help="e.g. source <(arriero completion bash)"
    )
    return parser


def _completion(arguments: argparse.Namespace, _: Target) -> None:
    sys.stdout.write(SHELLS[arguments.shell](words()))


def words() -> Mapping[str, Sequence[str]]:
    """Return the words that may follow each installed command."""
    found = {}
    for entry in sorted(entry_points(group=GROUP)):
        module = sys.modules[entry.load().__module__]
        build = getattr(module, "build_parser", None)
        found[entry.name] = [] if build is None else _words(build())
    return found


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Return the choices of positional arguments, and the long flags."""
    words: list[str] = []
    for action in parser._actions:
        flags = [flag for flag in action.option_strings if flag.startswith("--")]
        choices = [] if action.option_strings else [str(each) for each in action.choices or ()]
        words += flags + choices
    return words


# ---- scripts for shells


Words = Mapping[str, Sequence[str]]


def bash(words: Words) -> str:
    """Return bash's script; bash completes file names if no word matches."""
    cases = "".join(
        f'    {command}) words="{" ".join(following)}" ;;\n' for command, following in words.items()
    )
    return f"""_arriero() {{
  local words current="${{COMP_WORDS[COMP_CWORD]}}"
  case "${{COMP_WORDS[1]}}" in
{cases}    *) words="" ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words="{" ".join(words)}"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _arriero arriero
"""


def zsh(words: Words) -> str:
    """Return zsh's script: zsh can use bash's."""
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash(words)


def fish(words: Words) -> str:
    """Return fish's script."""
    first = f"complete -c arriero -n __fish_use_subcommand -f -a '{' '.join(words)}'\n"
    rest = [
        f"complete -c arriero -n '__fish_seen_subcommand_from {command}' {_fish(word)}\n"
        for command, following in words.items()
        for word in following
    ]
    return first + "".join(rest)


def _fish(word: str) -> str:
    return f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"


SHELLS: Mapping[str, Callable[[Words], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
