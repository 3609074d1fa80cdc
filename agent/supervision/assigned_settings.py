"""The settings of an engine process that serves an assignment, based on the agent's settings."""

from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from ...shared.messages import Issue
from ...shared.models.assignments import Assignment
from ...shared.models.engine_options import EngineOptions
from ...shared.validation import requirement
from ..models.model_file import ModelFile
from ..settings import AgentSettings


class OptionsError(Exception):
    """The assignment's options conflict with each other or with the agent's settings."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.issue = Issue(
            code="invalid_options",
            message=message,
            hint="change the model's options in the desired state, or the agent's settings",
        )


def assigned_settings(
    settings: AgentSettings, assignment: Assignment, file: ModelFile
) -> AgentSettings:
    """Return `settings` with the model in `file` and the options of `assignment`.

    Template and sampling are not settings: they change without a new process. Raises
    `OptionsError`.
    """
    options = {
        field.name: getattr(assignment.engine, field.name) for field in fields(EngineOptions)
    }
    assigned = {"slots": assignment.slots, "context_size": assignment.context_size, **options}
    given = {name: value for name, value in assigned.items() if value is not None}
    if file.projector is not None:
        given["projector"] = Path(file.projector)
    if file.draft_model is not None:
        given["draft_model"] = Path(file.draft_model)
    paths = tuple(each.path for each in file.adapters)
    given["adapter"] = adapter_flags(settings, assignment, paths)
    try:
        return AgentSettings.model_validate({**dict(settings), **given, "model": Path(file.path)})
    except ValidationError as error:
        first = error.errors()[0]
        words = requirement(first)
        raise OptionsError(f"`{first['loc'][0]}` {words}" if first["loc"] else words) from error


def adapter_flags(
    settings: AgentSettings, assignment: Assignment, adapters: Sequence[str]
) -> tuple[str, ...]:
    """Return the adapters of `assignment`, whose files are here, in the form of `--adapter`.

    If the assignment names no adapters, return those that the agent was started with.
    """
    if assignment.adapters is None:
        return tuple(settings.adapter)
    return tuple(
        f"{adapter.name}={path}:{Decimal(repr(adapter.scale)):f}"
        for adapter, path in zip(assignment.adapters, adapters, strict=True)
    )


def with_share_of_threads(settings: AgentSettings, num: int) -> AgentSettings:
    """Return `settings` for one of `num` models that share the host and its `--threads`."""
    threads, batch = share_of_threads(settings, num)
    share = {"threads": threads, "threads_batch": settings.threads_batch and batch}
    return settings if num == 1 else settings.model_copy(update=share)


def share_of_threads(settings: AgentSettings, num: int) -> tuple[int, int]:
    """Return the threads for one of `num` models: for single-token steps, and for larger steps."""
    batch = settings.threads_batch or settings.threads
    return max(1, settings.threads // num), max(1, batch // num)
