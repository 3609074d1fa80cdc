"""Tools of the Responses API, and the names by which the model knows their functions.

A namespace groups functions. Models know only plain functions, so namespaces are flattened. For
example, the model calls `crm__find`, and the client gets a call of `find` in the namespace `crm`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from .....shared.inference import MAX_TOOLS
from .....shared.strict import STRICT, ListOf
from ...common.request_checks import FunctionName
from ..completions.formats import qualified
from .items import Json

Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A function that the client runs."""

    __pydantic_config__ = STRICT

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def neutral(self, name: str, about: str | None = None) -> Json:
        """Return the tool for a neutral request, under the `name` that the model sees.

        `about` is the description of its namespace.
        """
        function: Json = {"name": name}
        if described := [each for each in (about, self.description) if each is not None]:
            function["description"] = "\n\n".join(described)
        if self.parameters is not None:
            function["parameters"] = self.parameters
        if self.strict:
            function["strict"] = True
        return {"type": "function", "function": function}

    def echo(self) -> Json:
        """Return the tool in the form in which a response repeats it."""
        return {
            "type": self.type,
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": self.strict,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceTool:
    """Functions under one name. The model sees the `description` before that of each function."""

    __pydantic_config__ = STRICT

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: Annotated[ListOf[FunctionTool], Field(max_length=MAX_TOOLS)] = ()

    def echo(self) -> Json:
        """Return the tool in the form in which a response repeats it."""
        return {
            "type": self.type,
            "name": self.name,
            "description": self.description,
            "tools": [tool.echo() for tool in self.tools],
        }


Tool = Annotated[FunctionTool | NamespaceTool, Field(discriminator="type")]


def functions(tools: Iterable[FunctionTool | NamespaceTool]) -> tuple[Json, ...]:
    """Return all functions as neutral tools."""
    return tuple(
        tool.neutral(name, space.description if space else None)
        for name, tool, space in _unfolded(tools)
    )


def namespaces(tools: Iterable[FunctionTool | NamespaceTool]) -> Mapping[str, tuple[str, str]]:
    """Return a map from the model's name of a function to its namespace and its name there."""
    return {name: (space.name, tool.name) for name, tool, space in _unfolded(tools) if space}


def _unfolded(
    tools: Iterable[FunctionTool | NamespaceTool],
) -> Iterator[tuple[str, FunctionTool, NamespaceTool | None]]:
    for tool in tools:
        if isinstance(tool, FunctionTool):
            yield tool.name, tool, None
        else:
            for each in tool.tools:
                yield qualified(each.name, tool.name), each, tool
