"""Retained requests and their events as JSON, as the store has them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from ...shared.errors import WireError, from_wire, to_wire
from ...shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    GenerateRequest,
    Notice,
    RequestId,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
)
from ...shared.strict import LAZY, STRICT
from ..fleet.caller import ANONYMOUS_NAME, Caller
from ..fleet.retained_record import AskedRequest, RetainedKey, RetainedRecord
from ..store.retained_records import SavedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    __pydantic_config__ = STRICT

    request: GenerateRequest
    caller: str = ANONYMOUS_NAME
    address: str | None = None
    keeps_failure: bool = False
    model: str = ""
    note: str = ""


_document = TypeAdapter(_Document)
_done = TypeAdapter(Done)
_error = TypeAdapter(WireError)
_log_probs = TypeAdapter(tuple[TokenLogProbs, ...], config=LAZY)


def saved(record: RetainedRecord, asked: AskedRequest) -> SavedRequest:
    """Return the saved form of a request. Without an owner, the owner is an empty text."""
    document = _Document(
        request=asked.request,
        caller=asked.caller.name,
        address=asked.caller.address,
        keeps_failure=record.keeps_failure,
        model=record.model,
        note=asked.note.decode(),
    )
    return SavedRequest(
        id=record.id,
        owner=record.key.owner or "",
        name=record.key.name,
        digest=record.digest.hex(),
        document=_document.dump_json(document, exclude_defaults=True).decode(),
        created_at=record.created_at,
    )


def restored(saved: SavedRequest) -> tuple[RetainedRecord, AskedRequest]:
    """Return the saved request. Raises `ValueError` if this version cannot read it."""
    document = _document.validate_json(saved.document)
    owner = saved.owner or None
    record = RetainedRecord(
        key=RetainedKey(owner, saved.name),
        id=RequestId(saved.id),
        digest=bytes.fromhex(saved.digest),
        created_at=saved.created_at,
        keeps_failure=document.keeps_failure,
        model=document.model,
    )
    caller = Caller(name=document.caller, address=document.address, owner=owner)
    return record, AskedRequest(document.request, caller, document.note.encode())


# ---- events: a list with a tag for each


def saved_events(events: Iterable[Event]) -> str:
    """Return the saved form of events, in order."""
    return to_json([_saved_event(event) for event in events]).decode()


def _saved_event(event: Event) -> list[Any]:
    match event:
        case Token(log_probs=()):
            return ["token", *event[:3]]
        case Token():
            return ["token", *event[:3], _log_probs.dump_python(event.log_probs, mode="json")]
        case Done():
            return ["done", _done.dump_python(event, mode="json")]
        case Failed():
            return ["failed", _error.dump_python(to_wire(event.error), mode="json")]
        case _:
            return [_TAGS[type(event)], *astuple(event)]


def restored_events(document: str) -> list[Event]:
    """Return the saved events. Raises `ValueError` if this version cannot read them."""
    try:
        return [_READERS[tag](*values) for tag, *values in from_json(document)]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no events of this version: {error}") from error


def _token(text: str, kind: Any, tokens: list[int], log_probs: object = ()) -> Token:
    return Token(text, kind, tuple(tokens), _log_probs.validate_json(to_json(log_probs)))


def _ended(value: object) -> Done:
    return _done.validate_json(to_json(value))


def _failed(value: object) -> Failed:
    return Failed(from_wire(_error.validate_json(to_json(value))))


_TAGS = {ToolCallStarted: "call_started", ToolCall: "call", Notice: "notice", Begun: "begun"}
_READERS: Mapping[str, Callable[..., Event]] = {
    **{tag: kind for kind, tag in _TAGS.items()},
    "token": _token,
    "done": _ended,
    "failed": _failed,
}
