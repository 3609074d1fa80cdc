"""What `--help` prints."""

import textwrap

from .declaration import Setting, Settings, settings_of

RULES = (
    "Flags win over the environment, the environment over the file. The file's keys are the "
    "flags without the dashes in front. A DURATION is a number of seconds (10, 1.5) or has a "
    "unit (500ms, 30s, 2m, 1h)."
)


def help_text(cls: type[Settings], width: int) -> str:
    """What `--help` prints, in lines of at most `width` characters where words allow."""
    lines = [f"usage: {cls.program} [--FLAG VALUE ...]", "", *textwrap.wrap(cls.summary, width)]
    lines.append("")
    for setting in settings_of(cls):
        lines += _help_entry(setting, width)
    lines += ["  --version", *_indented("Print the version and exit.", width)]
    lines += ["  --help, -h", *_indented("Print this and exit.", width), ""]
    return "\n".join([*lines, *textwrap.wrap(RULES, width)]) + "\n"


def _help_entry(setting: Setting, width: int) -> list[str]:
    head = f"  {setting.flag} {setting.metavar}" + (" (repeatable)" if setting.repeats else "")
    sentence = f"{setting.description[0].upper()}{setting.description[1:]}."
    names = f"[default: {setting.default}] [{setting.variable}]"
    return [head, *_indented(sentence, width), *_indented(names, width)]


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
