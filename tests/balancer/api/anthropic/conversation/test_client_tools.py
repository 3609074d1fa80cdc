"""The schemas of tools that clients run, against what Anthropic's library knows of them."""

from typing import Any, Literal, get_args, get_origin

import pytest
from anthropic.types import beta

from arriero.balancer.api.anthropic.conversation.tools import FUNCTIONS, ClientTool

COMMANDS = (
    beta.BetaMemoryTool20250818ViewCommand,
    beta.BetaMemoryTool20250818CreateCommand,
    beta.BetaMemoryTool20250818StrReplaceCommand,
    beta.BetaMemoryTool20250818InsertCommand,
    beta.BetaMemoryTool20250818DeleteCommand,
    beta.BetaMemoryTool20250818RenameCommand,
)
KINDS = {"string": str, "integer": int, "array": list[int]}


def properties(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = FUNCTIONS[kind]["parameters"]["properties"]
    return found


def test_the_memory_tools_input_is_that_of_its_commands() -> None:
    schemas = properties("memory_20250818")
    named = {name for command in COMMANDS for name in command.model_fields}
    assert schemas.keys() == named
    commands = [get_args(each.model_fields["command"].annotation)[0] for each in COMMANDS]
    assert sorted(schemas["command"]["enum"]) == sorted(commands)
    for command in COMMANDS:
        for name, field in command.model_fields.items():
            requested = field.annotation if field.is_required() else get_args(field.annotation)[0]
            if get_origin(requested) is not Literal:
                expected: Any = list[int] if get_origin(requested) is list else requested
                assert KINDS[schemas[name]["type"]] == expected


def test_each_command_of_the_memory_tool_needs_its_fields() -> None:
    needed = {
        each["properties"]["command"]["const"]: set(each["required"])
        for each in FUNCTIONS["memory_20250818"]["parameters"]["anyOf"]
    }
    for command in COMMANDS:
        fields = command.model_fields.items()
        required = {name for name, field in fields if field.is_required()} - {"command"}
        (name,) = get_args(command.model_fields["command"].annotation)
        assert needed.pop(name) == required
    assert not needed


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("bash_20241022", beta.BetaToolBash20241022Param),
        ("bash_20250124", beta.BetaToolBash20250124Param),
        ("text_editor_20241022", beta.BetaToolTextEditor20241022Param),
        ("text_editor_20250124", beta.BetaToolTextEditor20250124Param),
        ("text_editor_20250429", beta.BetaToolTextEditor20250429Param),
        ("text_editor_20250728", beta.BetaToolTextEditor20250728Param),
        ("memory_20250818", beta.BetaMemoryTool20250818Param),
    ],
)
def test_names_are_the_librarys(kind: str, parameters: Any) -> None:
    assert repr(FUNCTIONS[kind]["name"]) in repr(parameters.__annotations__["name"])


def test_each_type_has_its_function() -> None:
    assert set(get_args(ClientTool.__annotations__["type"])) == FUNCTIONS.keys()


def test_only_the_first_editors_undo() -> None:
    undo = [kind for kind in FUNCTIONS if "undo_edit" in repr(properties(kind))]
    assert undo == ["text_editor_20241022", "text_editor_20250124"]
