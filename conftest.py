"""A run is whole, or it fails: no worker died in it, and every test that was found has a result.

What is said after its end is said of it, too, so nothing is.

Nor does it look for cycles among what stays until its end, which was a third of finding the tests;
and then it looks seldom, as a balancer does.

pytest-xdist drops what a dead worker had not been given yet, and says nothing of one that dies with
nothing to do, such as at its end: all that is left passes.
"""

import gc
import sys
from collections.abc import Generator, Sequence

import pytest

MOST_NAMED = 20
YOUNG_OBJECTS = 50_000
"""So many new objects are looked at for cycles together."""


class WholeRun:
    """What the tests are that the workers found, which have results, and which workers died."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._reported: set[str] = set()
        self._dead: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._found.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object | None) -> None:
        if error:
            self._dead.append(f"{node} died: {error}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reported.add(report.nodeid)

    @property
    def _faults(self) -> list[str]:
        missing = sorted(self._found - self._reported)
        faults = [*self._dead, *(f"no result of {each}" for each in missing[:MOST_NAMED])]
        if len(missing) > MOST_NAMED:
            faults.append(f"nor of {len(missing) - MOST_NAMED} others")
        return faults

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode
    ) -> None:
        if self._faults and exitstatus != pytest.ExitCode.INTERRUPTED:
            terminalreporter.section("this run is not whole", red=True)
            for each in self._faults:
                terminalreporter.line(each, red=True)


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
    config.pluginmanager.register(WholeRun())
    config.add_cleanup(close_null_files)  # also after a worker that had to be interrupted


def close_null_files() -> None:
    """Close what llama-cpp-python opens on import and leaves to the interpreter's end.

    Where warnings are errors then, it is complained about after pytest's closing line.
    """
    if (utils := sys.modules.get("llama_cpp._utils")) is not None:
        utils.outnull_file.close()
        utils.errnull_file.close()
