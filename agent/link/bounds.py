"""What an agent reports, cut to what may be sent: a model's file or an error can say anything."""

from dataclasses import replace

from ...shared.errors import shortened
from ...shared.inference import MAX_COUNT
from ...shared.messages import MAX_ISSUES, MAX_WORDS, Hello, Issue, Status
from ...shared.models.assignments import MAX_BYTES
from ...shared.reports.model_info import MAX_ARCHITECTURE, ModelInfo


def bounded_hello(hello: Hello) -> Hello:
    """`hello` with bounded models."""
    return replace(hello, model=_bounded_model(hello.model), loading=_bounded_model(hello.loading))


def bounded_status(status: Status) -> Status:
    """`status` with a bounded model, and bounded issues."""
    issues = tuple(map(_bounded_issue, status.issues[:MAX_ISSUES]))
    return replace(status, model=_bounded_model(status.model), issues=issues)


def _bounded_model(model: ModelInfo | None) -> ModelInfo | None:
    if model is None:
        return None
    return replace(
        model,
        architecture=shortened(model.architecture, MAX_ARCHITECTURE),
        parameters=min(model.parameters, MAX_BYTES),
        size_bytes=min(model.size_bytes, MAX_BYTES),
        context_size=min(model.context_size, MAX_COUNT),
        longest_token=min(model.longest_token, MAX_COUNT),
    )


def _bounded_issue(issue: Issue) -> Issue:
    message, hint = shortened(issue.message, MAX_WORDS), shortened(issue.hint, MAX_WORDS)
    return replace(issue, message=message, hint=hint)
