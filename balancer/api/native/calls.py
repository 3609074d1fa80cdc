"""Long-running WebSocket calls: events are sent as they arrive, then one answer."""

import time
from collections.abc import Sequence
from typing import Protocol

from ....shared.errors import RequestError
from ....shared.inference import Done, EndEvent, Event, Failed, GenerateRequest
from ...fleet.queries.query_handle import QueryHandle
from ..common.accumulator import Accumulator
from ..common.answering import written
from ..common.merge import EventStream, Merged
from ..openapi.document import ErrorAnswer
from ..transport.streaming import Events
from .batch_statistics import batch_statistics
from .events import (
    RPC_NOTIFICATIONS,
    AnswerFields,
    DoneFields,
    EventWriter,
    answer_fields,
    done_fields,
    end_fields,
)
from .queries import QueryCall
from .requests import Batch
from .rpc import RpcId, request_error, result, written_result


class Frames(Protocol):
    """Where frames go: `frame_writer.FrameWriter`."""

    def write(self, frame: bytes, /) -> bool:
        """Write one frame; says whether there is room for another."""

    async def drained(self) -> None:
        """Wait until there is room."""


async def answer_generate(
    id: RpcId, wanted: GenerateRequest, stream: Events, frames: Frames
) -> bytes:
    """The answer to `generate`; its events are pushed before, if it streams."""
    writer = EventWriter({"id": id}, RPC_NOTIFICATIONS)
    accumulator = Accumulator()

    def take(event: Event) -> bool:
        if not wanted.stream or isinstance(event, Done | Failed):
            accumulator.add(event)
            return True
        frame = writer.render(event)
        return not frame or frames.write(frame)

    await stream.push(take, frames.drained)
    if isinstance(accumulator.end, Failed):
        return request_error(id, accumulator.end.error)
    fields = done_fields(accumulator.end) if wanted.stream else answer_fields(accumulator)
    return result(id, fields)


async def answer_query(id: RpcId, asking: QueryCall, handle: QueryHandle) -> bytes:
    """The answer to a call that takes no slot."""
    try:
        answer = asking.answer(await handle.results())
        return written_result(id, await written(answer))
    except RequestError as error:
        return request_error(id, error)


async def answer_batch(
    id: RpcId, batch: Batch, streams: list[EventStream], frames: Frames
) -> bytes:
    """The answer to `generate_batch`; its notifications tell the entries apart by `item`."""
    began = time.monotonic()
    outcomes: Sequence[DoneFields | AnswerFields | ErrorAnswer]
    async with Merged(streams) as merged:
        if batch.stream:
            ends = await _emit_batch(id, batch, merged, frames)
            outcomes = [end_fields(end) for end in ends]
        else:
            answers = await merged.collect()
            ends = [each.end for each in answers]
            outcomes = [answer_fields(each) for each in answers]
    statistics = batch_statistics(ends, time.monotonic() - began)
    pairs = zip(batch.ids, outcomes, strict=True)
    results = [{"id": item, **outcome} for item, outcome in pairs]
    return result(id, {"results": results, "statistics": statistics})


async def _emit_batch(id: RpcId, batch: Batch, merged: Merged, frames: Frames) -> list[EndEvent]:
    writers = [EventWriter({"id": id, "item": item}, RPC_NOTIFICATIONS) for item in batch.ids]
    ends: dict[int, EndEvent] = {}
    async for events in merged:
        for number, event in events:
            frame = writers[number].render(event)
            if frame and not frames.write(frame):
                await frames.drained()
            if isinstance(event, Done | Failed):
                ends[number] = event
    return [ends[number] for number in range(len(writers))]
