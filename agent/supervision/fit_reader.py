"""Answers how this host would load a model, in a separate process per question.

Questions are answered one at a time: each may ask drivers for their memory and servers for 64 MiB
of headers.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from ...shared.log import context
from ...shared.messages import FitRead, Issue, ReadFit
from ...shared.strict import STRICT
from ..child import Child, program
from ..json_lines import Lines
from ..settings import AgentSettings

logger = logging.getLogger(__name__)

COMMAND = program("arriero.agent.supervision.fit_process")

DEADLINE = 45.0
"""Maximum seconds for one question, including the answers of drivers and servers."""

MAX_QUESTIONS = 8
"""Maximum open questions; one is being answered, the others wait."""

MAX_LINE = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOrder:
    """Answer `question` for an agent with these settings."""

    __pydantic_config__ = STRICT
    settings: AgentSettings
    question: ReadFit


_order: TypeAdapter[FitOrder] = TypeAdapter(FitOrder)
_read: TypeAdapter[FitRead] = TypeAdapter(FitRead)

FIT_ORDERS = Lines(_order)
FIT_ANSWERS = Lines(_read)


class FitReader:
    """Answers questions. `settings` are the host's own. Questions run as tasks of `group`."""

    def __init__(
        self,
        settings: AgentSettings,
        group: asyncio.TaskGroup,
        *,
        command: Sequence[str] = COMMAND,
        deadline: float = DEADLINE,
    ) -> None:
        self._settings = settings
        self._group = group
        self._command = command
        self._deadline = deadline
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, question: ReadFit, on_answer: Callable[[FitRead], None]) -> None:
        """Call `on_answer` once, unless `stop` is called earlier."""
        if len(self._tasks) >= MAX_QUESTIONS:
            message = f"{MAX_QUESTIONS} questions of this kind are already open on this host"
            issue = Issue(
                code="busy", message=message, hint="ask again when one of them is answered"
            )
            on_answer(FitRead(id=question.id, issue=issue))
            return
        task = self._group.create_task(self._answer(question, on_answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Cancel all questions."""
        for task in self._tasks:
            task.cancel()

    async def _answer(self, question: ReadFit, on_answer: Callable[[FitRead], None]) -> None:
        async with self._turn:
            on_answer(await self._read(question))

    async def _read(self, question: ReadFit) -> FitRead:
        try:
            async with asyncio.timeout(self._deadline):
                return await self._output(question)
        except TimeoutError:
            issue = Issue(
                code="no_answer",
                message=f"drivers or servers did not answer within {self._deadline:g} s",
                hint="check the source, and the host's network; the agent's log may say more",
            )
        except (OSError, ValueError) as error:
            logger.warning(
                "cannot determine what would be chosen for a model",
                extra=context(reason=str(error)),
            )
            issue = Issue(
                code="fit_failed",
                message="the process that examines the model and this host failed",
                hint="the agent's log has the details",
            )
        return FitRead(id=question.id, issue=issue)

    async def _output(self, question: ReadFit) -> FitRead:
        """Run the process and return its answer.

        Raises `OSError`, or `ValueError` if it ends without an answer.
        """
        async with await Child.start(self._command, longest_line=MAX_LINE) as child:
            child.write(FIT_ORDERS.encode(FitOrder(settings=self._settings, question=question)))
            async for line in child.lines():
                return FIT_ANSWERS.decode(line)
            raise ValueError(f"it ended with code {await child.end()}")
