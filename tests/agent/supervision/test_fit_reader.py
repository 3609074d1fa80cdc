"""Questions of what the host would choose, with stand-ins for the process that answers them."""

import asyncio
import sys
from pathlib import Path

import pytest

from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.fit_reader import FIT_ORDERS, MAX_QUESTIONS, FitOrder, FitReader
from arriero.shared.inference import RequestId
from arriero.shared.messages import FitRead, ReadFit
from tests.waiting import HANGS

SAYS_WHICH = """
import json, sys
order = json.loads(sys.stdin.readline())
issue = {"code": "seen", "message": order["question"]["source"]}
print(json.dumps({"type": "fit_read", "id": order["question"]["id"], "issue": issue}))
"""

COUNTS = """
import json, os, sys, time
order, folder = json.loads(sys.stdin.readline()), sys.argv[1]
os.mkdir(folder)  # fails where another process is at work
os.rmdir(folder)
print(json.dumps({"type": "fit_read", "id": order["question"]["id"]}))
"""

SILENT = "import sys, time; sys.stdin.readline(); time.sleep(600)"


def asked(number: int = 1, source: str = "file:///m.gguf") -> ReadFit:
    return ReadFit(id=RequestId(str(number)), source=source)


class Answers:
    """Those that came, and a wait for `count` of them."""

    def __init__(self) -> None:
        self.reads: asyncio.Queue[FitRead] = asyncio.Queue()

    async def next(self) -> FitRead:
        async with asyncio.timeout(HANGS):
            return await self.reads.get()


def reader(
    group: asyncio.TaskGroup, code: str, *arguments: str, deadline: float = HANGS
) -> FitReader:
    command = (sys.executable, "-c", code, *arguments)
    return FitReader(AgentSettings(), group, command=command, deadline=deadline)


async def test_a_process_is_asked_and_its_answer_goes_to_who_asked() -> None:
    answers = Answers()
    async with asyncio.TaskGroup() as group:
        fits = reader(group, SAYS_WHICH)
        fits.ask(asked(source="https://example.org/m.gguf"), answers.reads.put_nowait)
        read = await answers.next()
    assert read.id == "1"
    assert read.issue is not None
    assert read.issue.message == "https://example.org/m.gguf"


async def test_one_question_is_answered_at_a_time(tmp_path: Path) -> None:
    answers = Answers()
    async with asyncio.TaskGroup() as group:
        fits = reader(group, COUNTS, str(tmp_path / "at work"))
        for number in range(3):
            fits.ask(asked(number), answers.reads.put_nowait)
        reads = [await answers.next() for _ in range(3)]
    assert [(each.id, each.issue) for each in reads] == [("0", None), ("1", None), ("2", None)]


async def test_more_than_may_wait_are_refused_at_once() -> None:
    answers = Answers()
    async with asyncio.TaskGroup() as group:
        fits = reader(group, SILENT)
        for number in range(MAX_QUESTIONS + 1):
            fits.ask(asked(number), answers.reads.put_nowait)
        read = answers.reads.get_nowait()
        assert read.issue is not None
        assert (read.id, read.issue.code) == (str(MAX_QUESTIONS), "busy")
        fits.stop()
    assert answers.reads.empty()


async def test_a_process_that_is_silent_is_killed() -> None:
    answers = Answers()
    async with asyncio.TaskGroup() as group:
        fits = reader(group, SILENT, deadline=0.1)
        fits.ask(asked(), answers.reads.put_nowait)
        read = await answers.next()
    assert read.issue is not None
    assert read.issue.code == "no_answer"


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print('noise')", "print()"])
async def test_a_process_that_fails_is_told(code: str) -> None:
    answers = Answers()
    async with asyncio.TaskGroup() as group:
        fits = reader(group, code)
        fits.ask(asked(), answers.reads.put_nowait)
        read = await answers.next()
    assert read.issue is not None
    assert read.issue.code == "fit_failed"


async def test_a_process_that_cannot_be_started_is_told() -> None:
    answers = Answers()
    async with asyncio.TaskGroup() as group:
        fits = FitReader(AgentSettings(), group, command=("/nowhere/program",))
        fits.ask(asked(), answers.reads.put_nowait)
        read = await answers.next()
    assert read.issue is not None
    assert read.issue.code == "fit_failed"


def test_an_order_is_read_as_it_was_written() -> None:
    from pydantic import TypeAdapter

    order = FitOrder(settings=AgentSettings(slots=3), question=asked())
    assert FIT_ORDERS.decode(TypeAdapter(FitOrder).dump_json(order)) == order
