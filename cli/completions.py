"""Completion scripts for shells, from the words that may follow each command."""

from collections.abc import Callable, Mapping, Sequence

Words = Mapping[str, Sequence[str]]


def bash(words: Words) -> str:
    """For bash; its file names are completed where no word fits."""
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
    """For zsh, which can read bash's."""
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash(words)


def fish(words: Words) -> str:
    """For fish."""
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
