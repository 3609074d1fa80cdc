"""Anthropic's tools that clients run: their names and input schemas, which requests leave out.

A model here does not know these tools from its training, so it is given them as functions.
"""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def _schema(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _commands(properties: Json, **required: tuple[str, ...]) -> Json:
    """An object with a `command`, and for each the fields that it needs.

    All fields stand side by side as well, since templates show models only those.
    """
    command = {"type": "string", "enum": list(required), "description": "What to do."}
    schema = _schema({"command": command, **properties}, "command")
    schema["anyOf"] = [
        {"properties": {"command": {"const": name}}, "required": list(fields)}
        for name, fields in required.items()
    ]
    return schema


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str) -> Json:
    return {"type": "integer", "description": description}


_BASH: Json = {
    "name": "bash",
    "description": (
        "Runs a command in a bash shell and returns its output. The shell keeps its state between "
        "calls; `restart` starts a new one."
    ),
    "parameters": _schema(
        {
            "command": _text("The command to run. Required unless `restart` is true."),
            "restart": {"type": "boolean", "description": "Whether to start a new shell."},
        }
    ),
}

_RANGE: Json = {
    "type": "array",
    "items": {"type": "integer"},
    "minItems": 2,
    "maxItems": 2,
    "description": "For `view`: the first and last line to show, counted from 1; -1 is the end.",
}

_EDITED: Json = {
    "path": _text("The absolute path of a file, or for `view` of a directory."),
    "view_range": _RANGE,
    "file_text": _text("For `create`: the text of the new file."),
    "old_str": _text("For `str_replace`: the text to replace, which must occur exactly once."),
    "insert_line": _number("For `insert`: the line after which to insert; 0 is the beginning."),
}


def _editor(name: str, insertion: str, others: Json, **more: tuple[str, ...]) -> Json:
    return {
        "name": name,
        "description": "Shows, creates and edits text files.",
        "parameters": _commands(
            {**_EDITED, **others},
            view=("path",),
            create=("path", "file_text"),
            str_replace=("path", "old_str"),
            insert=("path", "insert_line", insertion),
            **more,
        ),
    }


_FIRST_EDITOR = _editor(
    "str_replace_editor",
    "new_str",
    {"new_str": _text("For `str_replace`: the replacement. For `insert`: the text to insert.")},
    undo_edit=("path",),
)
_REPLACEMENT = _text("For `str_replace`: the replacement.")
_INSERTION = _text("For `insert`: the text to insert.")
_EDITOR = _editor(
    "str_replace_based_edit_tool",
    "insert_text",
    {"new_str": _REPLACEMENT, "insert_text": _INSERTION},
)

_MEMORY: Json = {
    "name": "memory",
    "description": (
        "Reads and writes files that outlast this conversation, below the directory `/memories`. "
        "View it before you begin a task, and note there what will be needed later."
    ),
    "parameters": _commands(
        {
            "path": _text("The path of a file or directory, for all commands but `rename`."),
            "view_range": _RANGE,
            "file_text": _text("For `create`: the text of the new file."),
            "old_str": _text("For `str_replace`: the text to replace."),
            "new_str": _REPLACEMENT,
            "insert_line": _number("For `insert`: the line after which to insert."),
            "insert_text": _INSERTION,
            "old_path": _text("For `rename`: the path as it is."),
            "new_path": _text("For `rename`: the path as it will be."),
        },
        view=("path",),
        create=("path", "file_text"),
        str_replace=("path", "old_str", "new_str"),
        insert=("path", "insert_line", "insert_text"),
        delete=("path",),
        rename=("old_path", "new_path"),
    ),
}

FUNCTIONS: Mapping[str, Json] = {
    "bash_20241022": _BASH,
    "bash_20250124": _BASH,
    "text_editor_20241022": _FIRST_EDITOR,
    "text_editor_20250124": _FIRST_EDITOR,
    "text_editor_20250429": _EDITOR,
    "text_editor_20250728": _EDITOR,
    "memory_20250818": _MEMORY,
}
"""The function for each type of tool."""
