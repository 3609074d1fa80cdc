"""Processes that share the tests of a run (`--workers`), and how tests are collected.

A run fails if one of its workers died, or if a test that was collected has no result.

The garbage collector is off during the collection, which saves a third of it. Later it runs
seldom, as in a balancer.
"""

import gc
import marshal
import os
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from queue import SimpleQueue
from threading import Thread

import pytest

MOST_NAMED = 20
YOUNG_OBJECTS = 50_000
"""The garbage collector looks for cycles among this many new objects at once."""


class Workers:
    """Runs the tests in forked processes, a file at a time.

    Each worker is forked after the collection, so only one process imports and collects the tests.
    A worker takes the next file when it begins the last test of its current file.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._faults: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed:
            return None
        files = [list(items) for _, items in groupby(session.items, lambda item: item.path)]
        waiting, given = os.pipe()
        os.write(given, b"".join(number.to_bytes(2) for number in range(len(files))))
        os.close(given)
        workers: dict[int, int] = {}
        for _ in range(self._number):
            reports, ours = os.pipe()
            if (pid := os.fork()) == 0:
                for each in (reports, *workers.values()):
                    os.close(each)
                _work(session, _items(files, waiting), ours)
                os.close(waiting)
                return True
            os.close(ours)
            workers[pid] = reports
        try:
            self._collect(session, workers, waiting)
        except BaseException:
            for pid in workers:
                os.kill(pid, signal.SIGINT)
            raise
        finally:
            os.close(waiting)
        return True

    def _collect(self, session: pytest.Session, workers: dict[int, int], waiting: int) -> None:
        """Handle the reports of the workers until all workers have ended."""
        hook = session.config.hook
        told: SimpleQueue[tuple[int, dict[str, object] | str | None]] = SimpleQueue()
        threads = [Thread(target=_read, args=(*each, told)) for each in workers.items()]
        for thread in threads:
            thread.start()
        running = dict.fromkeys(workers, "no test")
        failed = set()
        reported = set()
        while workers:
            pid, said = told.get()
            if said is None:
                _, status = os.waitpid(pid, 0)
                code = os.waitstatus_to_exitcode(status)
                if code != (pytest.ExitCode.TESTS_FAILED if pid in failed else pytest.ExitCode.OK):
                    end = f"worker {pid} died: exit code {code}"
                    self._faults.append(f"{end}, after the start of {running[pid]}")
                del workers[pid]
            elif isinstance(said, str):
                running[pid] = said
            else:
                report = hook.pytest_report_from_serializable(config=session.config, data=said)
                hook.pytest_runtest_logreport(report=report)
                reported.add(report.nodeid)
                if report.failed:
                    failed.add(pid)
                if report.when == "teardown":
                    hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
            if session.shouldfail or session.shouldstop:
                os.read(waiting, 1 << 16)  # no worker begins another file
        for thread in threads:
            thread.join()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        missing = sorted({item.nodeid for item in session.items} - reported)
        self._faults += [f"no result of {each}" for each in missing[:MOST_NAMED]]
        if len(missing) > MOST_NAMED:
            self._faults.append(f"nor of {len(missing) - MOST_NAMED} others")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._faults:
            terminalreporter.section("this run is not whole", red=True)
            for each in self._faults:
                terminalreporter.line(each, red=True)


def _items(files: Sequence[list[pytest.Item]], waiting: int) -> Iterator[pytest.Item]:
    while number := os.read(waiting, 2):
        yield from files[int.from_bytes(number)]


def _work(session: pytest.Session, items: Iterator[pytest.Item], reports: int) -> None:
    """Run `items` in a worker. Its output goes nowhere; its reports go to `reports`."""
    config = session.config
    capture = config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None
    capture.stop_global_capturing()  # its files are those of all workers
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.__stdout__.fileno())  # type: ignore[union-attr]
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.pluginmanager.register(_Reports(config, reports))
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following


class _Reports:
    """Sends the reports of a worker, and the name of each test that begins."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._send(hook.pytest_report_to_serializable(config=self._config, report=report))

    def _send(self, message: object) -> None:
        data = memoryview(marshal.dumps(message))
        while data:
            data = data[os.write(self._pipe, data) :]


def _read(
    pid: int, reports: int, told: SimpleQueue[tuple[int, dict[str, object] | str | None]]
) -> None:
    """Put what a worker sends into `told`, and None at its end."""
    with open(reports, "rb") as pipe, suppress(EOFError, ValueError):
        while True:
            told.put((pid, marshal.load(pipe)))
    told.put((pid, None))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers", type=int, default=0, help="processes that share the tests, a file at a time"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None]:
    """Import all tests and what they test without the garbage collector, as daemons begin."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 10, 10)
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    if number := config.getoption("--workers"):
        config.pluginmanager.register(Workers(number))
    config.add_cleanup(close_null_files)  # also after a worker that had to be interrupted


def close_null_files() -> None:
    """Close what llama-cpp-python opens on import and leaves to the interpreter's end.

    Where warnings are errors then, it is complained about after pytest's closing line.
    """
    if (utils := sys.modules.get("llama_cpp._utils")) is not None:
        utils.outnull_file.close()
        utils.errnull_file.close()
