"""Long-running WebSocket calls: events are sent as they arrive, then one answer.

`emit` takes one frame and may wait for a slow reader.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence

from ....shared.errors import RequestError
from ....shared.inference import Done, Event, Failed, GenerateRequest
from ...fleet.queries.query_handle import QueryHandle
from ..common.accumulator import Accumulator
from ..common.answering import written
from ..common.merge import EventStream, Merged
from .answer_types import AnswerFields, DoneFields, ErrorAnswer
from .events import RPC_NOTIFICATIONS, EventWriter, answer_fields, done_fields, end_fields
from .queries import QueryCall
from .requests import Batch
from .rpc import RpcId, request_error, result, written_result

Emit = Callable[[bytes], Awaitable[None]]


async def answer_generate(
    id: RpcId, wanted: GenerateRequest, stream: AsyncIterable[Event], emit: Emit
) -> bytes:
    """The answer to `generate`; its events are emitted before, if it streams."""
    writer = EventWriter({"id": id}, RPC_NOTIFICATIONS)
    accumulator = Accumulator()
    async for event in stream:
        if not wanted.stream or isinstance(event, Done | Failed):
            accumulator.add(event)
        else:
            await _emit(emit, writer.render(event))
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


async def answer_batch(id: RpcId, batch: Batch, streams: list[EventStream], emit: Emit) -> bytes:
    """The answer to `generate_batch`; its notifications tell the entries apart by `item`."""
    outcomes: Sequence[DoneFields | AnswerFields | ErrorAnswer]
    async with Merged(streams) as merged:
        if batch.stream:
            outcomes = await _emit_batch(id, batch, merged, emit)
        else:
            outcomes = [answer_fields(accumulator) for accumulator in await merged.collect()]
    pairs = zip(batch.ids, outcomes, strict=True)
    return result(id, {"results": [{"id": item, **outcome} for item, outcome in pairs]})


async def _emit_batch(
    id: RpcId, batch: Batch, merged: Merged, emit: Emit
) -> list[DoneFields | ErrorAnswer]:
    writers = [EventWriter({"id": id, "item": item}, RPC_NOTIFICATIONS) for item in batch.ids]
    ends: dict[int, DoneFields | ErrorAnswer] = {}
    async for events in merged:
        for number, event in events:
            await _emit(emit, writers[number].render(event))
            if isinstance(event, Done | Failed):
                ends[number] = end_fields(event)
    return [ends[number] for number in range(len(writers))]


async def _emit(emit: Emit, frame: bytes) -> None:
    if frame:
        await emit(frame)
