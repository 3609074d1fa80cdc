"""Steps as the JSON documents that stores keep."""

from pydantic import TypeAdapter, ValidationError

from ..store.records import SavedStep, StepWidth
from .series import Step

_STEP = TypeAdapter(Step)


def to_saved(step: Step, width: StepWidth, source: str = "") -> SavedStep:
    """`step` for a store; `source` counted it."""
    return SavedStep(width, step.at, _STEP.dump_json(step).decode(), source)


def from_saved(saved: SavedStep) -> Step | None:
    """The step again; `None` if the document is of another version and cannot be read."""
    try:
        step = _STEP.validate_json(saved.document)
    except ValidationError:
        return None
    return step if step.at == saved.at else None
