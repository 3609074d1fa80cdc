"""The settings of an engine process that serves an assignment: the agent's, where it says none."""

from dataclasses import fields
from pathlib import Path

from pydantic import ValidationError

from ...shared.messages import Issue
from ...shared.models.assignments import Assignment, EngineOptions
from ..settings import AgentSettings


class OptionsError(Exception):
    """The assignment's options do not go together with the agent's settings."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.issue = Issue(
            code="invalid_options",
            message=message,
            hint="change the model's options in the desired state, or the agent's settings",
        )


def assigned_settings(settings: AgentSettings, assignment: Assignment, path: str) -> AgentSettings:
    """`settings`, but for the model at `path` as `assignment` wants it. Raises `OptionsError`.

    Template and sampling are not settings: they change without a new process.
    """
    options = {
        field.name: getattr(assignment.engine, field.name) for field in fields(EngineOptions)
    }
    wanted = {"slots": assignment.slots, "context_size": assignment.context_size, **options}
    given = {name: value for name, value in wanted.items() if value is not None}
    try:
        return AgentSettings.model_validate({**dict(settings), **given, "model": Path(path)})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise OptionsError(f"`{place}`: {first['msg']}") from error
