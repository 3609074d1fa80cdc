"""How functions of namespaces are named."""

import pytest

from arriero.balancer.api.openai.responses.tools import (
    FunctionTool,
    NamespaceTool,
    functions,
    namespaces,
)

FIND = FunctionTool(type="function", name="find", description="finds", strict=True)
BARE = FunctionTool(type="function", name="bare")
CRM = NamespaceTool(type="namespace", name="crm", tools=(FIND, BARE))


def test_functions_in_neutral_words() -> None:
    assert functions([BARE, CRM]) == (
        {"type": "function", "function": {"name": "bare"}},
        {
            "type": "function",
            "function": {"name": "crm__find", "description": "finds", "strict": True},
        },
        {"type": "function", "function": {"name": "crm__bare"}},
    )


@pytest.mark.parametrize(
    ("space", "name"),
    [("crm", "crm__find"), ("crm_", "crm___find"), ("mcp__crm__", "mcp__crm__find")],
)
def test_a_namespace_may_bring_its_own_separator(space: str, name: str) -> None:
    tool = NamespaceTool(type="namespace", name=space, tools=(FIND,))
    assert namespaces([BARE, tool]) == {name: (space, "find")}


def test_a_namespaces_description_comes_before_that_of_each_function() -> None:
    space = NamespaceTool(type="namespace", name="s", description="A shop.", tools=(FIND, BARE))
    assert [each["function"].get("description") for each in functions([space])] == [
        "A shop.\n\nfinds",
        "A shop.",
    ]
