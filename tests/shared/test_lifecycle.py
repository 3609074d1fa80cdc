"""A daemon's end: its exit code, what it says, and what signals do."""

import asyncio
import gc
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from arriero.shared import lifecycle
from arriero.shared.lifecycle import Shutdown, StartupError, ready, reasons, run
from tests.waiting import HANGS

STUBBORN = """
import asyncio, sys, time
{block}
from arriero.shared import lifecycle

async def main(shutdown):
    lifecycle.ready("stubborn")
    await shutdown.requested.wait()
    print("stopping", flush=True)
    {stuck}

sys.exit(lifecycle.run("stubborn", main))
"""
IDLE = "await asyncio.Event().wait()"
BLOCKED = "while True: time.sleep(0.1)"
NO_UVLOOP = "sys.modules['uvloop'] = None"


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def exit_of(error: BaseException) -> int:
    async def main(_shutdown: Shutdown) -> None:
        raise error

    return run("test", main)


def test_returning_is_success() -> None:
    async def main(_shutdown: Shutdown) -> None:
        return

    assert run("test", main) == 0


def test_a_hang_up_ends_nothing_and_has_files_read_again() -> None:
    async def main(shutdown: Shutdown) -> int:
        read = asyncio.Event()
        shutdown.on_refresh(read.set)
        signal.raise_signal(signal.SIGHUP)
        async with asyncio.timeout(HANGS):
            await read.wait()
        return int(shutdown.requested.is_set())

    assert run("test", main) == 0


def test_what_is_returned_is_the_exit_code() -> None:
    async def main(_shutdown: Shutdown) -> int:
        return 7

    assert run("test", main) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_for_an_orderly_stop(number: signal.Signals) -> None:
    program = STUBBORN.format(block="", stuck="return")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready stubborn\n"
        process.send_signal(number)
        assert process.stdout.readline() == b"stopping\n"
        assert process.wait(timeout=HANGS) == 0


@pytest.mark.parametrize("stuck", [IDLE, BLOCKED], ids=["idle", "blocked"])
@pytest.mark.parametrize("block", ["", NO_UVLOOP], ids=["uvloop", "asyncio"])
def test_the_second_signal_ends_the_process_at_once(block: str, stuck: str) -> None:
    program = STUBBORN.format(block=block, stuck=stuck)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready stubborn\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"stopping\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANGS) == 143


def test_a_startup_error_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_of(StartupError("--inference-addr: 127.0.0.1:80 is in use")) == 1
    assert capfd.readouterr().err == "test: --inference-addr: 127.0.0.1:80 is in use\n"


def test_startup_errors_in_groups_are_one_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    inner = ExceptionGroup("tasks", [StartupError("one"), StartupError("two")])
    assert exit_of(ExceptionGroup("tasks", [StartupError("one"), inner])) == 1
    assert capfd.readouterr().err == "test: one\ntest: two\n"


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("oh"),
        ExceptionGroup("mixed", [StartupError("one"), ZeroDivisionError("oh")]),
    ],
    ids=["plain", "mixed group"],
)
def test_anything_else_is_logged_with_everything(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert exit_of(error) == 70
    (record,) = caplog.records
    assert record.levelname == "CRITICAL"
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_reasons_are_one_line_each() -> None:
    error = ExceptionGroup("tasks", [StartupError("one"), ValueError("two\n lines")])
    assert reasons(error) == ["one", "ValueError: two lines"]


def test_an_interrupt_that_slips_through_is_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert exit_of(KeyboardInterrupt()) == 130
    assert capfd.readouterr().err == ""


def test_without_uvloop_it_runs_on_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loops: list[asyncio.AbstractEventLoop] = []

    async def main(_shutdown: Shutdown) -> None:
        loops.append(asyncio.get_running_loop())

    assert run("test", main) == 0
    assert type(loops[0]).__module__.startswith("asyncio")


async def test_asking_twice_is_asking_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger=lifecycle.__name__)
    shutdown = Shutdown()
    shutdown.request("the engine is gone")
    shutdown.request("once more")
    assert shutdown.requested.is_set()
    assert [record.getMessage() for record in caplog.records] == ["stopping: the engine is gone"]
    shutdown.withdraw()
    assert not shutdown.requested.is_set()


def test_the_ready_line(capsys: pytest.CaptureFixture[str]) -> None:
    ready("agent", name="two words", slots=4)
    assert capsys.readouterr().out == 'ready agent name="two words" slots=4\n'


TALKATIVE = """
import logging, sys
from arriero.shared import lifecycle, log

async def main(shutdown):
    for number in range({num_lines}):
        logging.getLogger("arriero.test").info("line %d", number)

log.setup("text", "info")
sys.exit(lifecycle.run("talkative", main))
"""


def test_nothing_of_the_log_is_lost_at_an_orderly_exit() -> None:
    program = TALKATIVE.format(num_lines=1000)
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=HANGS
    )
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (0, 1000)
    assert lines[-1].endswith("line 999")


def test_a_log_that_nobody_reads_does_not_keep_the_process() -> None:
    program = TALKATIVE.format(num_lines=20_000)
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        assert process.wait(timeout=HANGS) == 0


def test_modules_load_without_looking_for_cycles() -> None:
    with pytest.raises(ImportError), lifecycle.loading():
        assert not gc.isenabled()
        made = [[]]  # type: ignore[var-annotated]
        raise ImportError
    assert gc.isenabled(), "afterwards it looks again"
    assert not any(each is made for each in gc.get_objects()), "but not at what was loaded"
