"""The lines of a batch that are asked right now: each is a task, and settles once.

What came of them waits in `take` for the batch's own task, which writes it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from ...shared.errors import InternalError
from .core.batch import Batch
from .core.lines import Line, answer_line, error_line
from .core.outcome import Again, judge
from .core.schedule import LineKey
from .tools import Tools

logger = logging.getLogger(__name__)

OUR_FAULT = InternalError("internal error; the balancer's log has the details")

GONE = Again(1.0, is_attempt=False, for_all=True)
"""Whoever made the batch has no key any more; the batch's task ends it."""


@dataclass(frozen=True, slots=True)
class LineResult:
    """What came of a line; without `text` it has not run."""

    line: Line
    text: bytes | None
    is_error: bool = True


class LineRuns:
    """`on_result` is called when there is something to `take`."""

    def __init__(self, batch: Batch, tools: Tools, on_result: Callable[[], None]) -> None:
        self._batch = batch
        self._tools = tools
        self._on_result = on_result
        self._results: list[LineResult] = []
        self._tasks: dict[int, asyncio.Task[Again | LineResult]] = {}
        self._tries: dict[int, tuple[int, int]] = {}

    def start(self, line: Line) -> None:
        """A line runs from now on."""
        task = asyncio.get_running_loop().create_task(self._outcome(line))
        self._tasks[line.number] = task
        task.add_done_callback(lambda done: self._done(line, done))

    def take(self) -> list[LineResult]:
        """What came since the last call."""
        results, self._results = self._results, []
        for result in results:
            self._tries.pop(result.line.number, None)
        return results

    def stop(self) -> None:
        """No more of them run: those that do are cancelled, and those that wait settle."""
        for task in self._tasks.values():
            task.cancel()
        waiting = self._tools.schedule.withdraw(self._batch.id)
        self._results += [LineResult(line, None) for line in waiting]

    async def stopped(self) -> None:
        """Wait until none runs; call `stop` first."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _done(self, line: Line, task: asyncio.Task[Again | LineResult]) -> None:
        del self._tasks[line.number]
        key = LineKey(self._batch.id, line.number)
        outcome = LineResult(line, None) if task.cancelled() else task.result()
        if isinstance(outcome, Again):
            at = self._tools.clock() + outcome.pause
            self._tools.schedule.again(key, at, for_all=outcome.for_all)
        else:
            self._tools.schedule.settle(key)
            self._results.append(outcome)
        self._on_result()
        self._tools.pump()

    async def _outcome(self, line: Line) -> Again | LineResult:
        """Whatever goes wrong with a line ends that line; the others do not notice."""
        try:
            return await self._run(line)
        except Exception:
            logger.exception("%s: line %d failed", self._batch.id, line.number)
            return LineResult(line, error_line(self._batch.id, line, OUR_FAULT))

    async def _run(self, line: Line) -> Again | LineResult:
        if line.problem is not None:
            return LineResult(line, error_line(self._batch.id, line, line.problem))
        caller = self._tools.caller_of(self._batch.caller)
        if caller is None:
            return GONE
        answered = await self._tools.answer(line, caller)
        attempts, refusals = self._tries.get(line.number, (0, 0))
        outcome = judge(
            answered.error,
            num_attempts=attempts,
            num_refusals=refusals,
            model_may_come=self._tools.model_may_come(line.model),
        )
        if isinstance(outcome, Again):
            counts = (1, 0) if outcome.is_attempt else (0, 1)
            self._tries[line.number] = (attempts + counts[0], refusals + counts[1])
            return outcome
        text = answer_line(self._batch.id, line, answered)
        return LineResult(line, text, is_error=outcome.is_error)
