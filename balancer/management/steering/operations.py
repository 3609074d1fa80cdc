"""The routes of this room for the OpenAPI document."""

from pydantic import TypeAdapter

from ....shared.errors import Conflict, NotFound, StoreUnavailable
from ...api.native.operations import NATIVE_ERRORS
from ...api.openapi.bodies import Body
from ...api.openapi.document import OF_BODIES, Answer, Operation, json_answer, parameter
from ...control.desired_state import DesiredState
from . import answer_types
from .bodies import DRAIN_BODY, RELOAD_BODY

_ID = parameter("id", "path", required=True)
_STATE_BODY = Body(name="DesiredState", adapter=TypeAdapter(DesiredState), takes_nulls=False)
_STATE = json_answer("The desired state; `ETag` is its revision.", answer_types.Wish)


def _steer(verb: str, name: str, summary: str, body: Body | None = None) -> Operation:
    return Operation(
        method="POST",
        path=f"/api/v1/agents/{{id}}/{verb}",
        name=name,
        summary=summary,
        parameters=(_ID,),
        body=body,
        answers={200: json_answer("The agent's state now.", answer_types.Steered)},
        errors=(NotFound, *(OF_BODIES if body is not None else ())),
        told=NATIVE_ERRORS,
    )


def _dry_run_or_state() -> Answer:
    whole = {"schema": answer_types.Wish | answer_types.DryRun}
    return Answer("The desired state, or what would change.", {"application/json": whole})


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/desired-state",
        name="DesiredState",
        summary="The models that the fleet should serve.",
        answers={200: _STATE},
        told=NATIVE_ERRORS,
    ),
    Operation(
        method="PUT",
        path="/api/v1/desired-state",
        name="Wish",
        summary="Replaces the desired state; with `dry_run`, says what would change.",
        parameters=(
            parameter("If-Match", "header"),
            parameter("dry_run", "query", {"type": "boolean", "default": False}),
        ),
        body=_STATE_BODY,
        answers={200: _dry_run_or_state()},
        errors=(*OF_BODIES, Conflict, StoreUnavailable),
        told=NATIVE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/v1/models",
        name="Models",
        summary="What is wished for and what is served, with its status.",
        answers={200: json_answer("All models, by name.", answer_types.Models)},
        told=NATIVE_ERRORS,
    ),
    _steer("drain", "DrainAgent", "Gives an agent no new requests.", DRAIN_BODY),
    _steer("resume", "ResumeAgent", "Gives an agent requests again."),
    _steer("reload", "ReloadAgent", "Has an agent load its model anew.", RELOAD_BODY),
)
