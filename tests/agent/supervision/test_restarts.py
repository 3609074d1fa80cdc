import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.supervision.restarts import STEADY_PAUSES, Quit, Restart, Restarts
from arriero.shared.messages import Issue

ABORTED = -signal.SIGABRT


def crashed(restarts: Restarts, code: int = ABORTED, reason: str | None = None) -> float:
    verdict = restarts.ended(code, reason, is_stopping=False)
    assert isinstance(verdict, Restart)
    return verdict.pause


def worked() -> Restarts:
    restarts = Restarts()
    restarts.loaded(0.0)
    assert restarts.ready()
    return restarts


def message(restarts: Restarts) -> str:
    [issue] = restarts.issues
    assert issue.code == "engine_crashed"
    return issue.message


class TestPauses:
    def test_double_up_to_the_last(self) -> None:
        restarts = worked()
        pauses = [crashed(restarts) for _ in range(9)]
        assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]

    def test_grow_although_it_served_in_between(self) -> None:
        restarts = worked()
        assert crashed(restarts) == 0.5
        restarts.loaded(10.0)
        assert crashed(restarts) == 1.0

    def test_start_over_after_a_time_of_health(self) -> None:
        restarts = worked()
        crashed(restarts)
        crashed(restarts)
        restarts.loaded(100.0)
        assert restarts.next_deadline() == 100.0 + STEADY_PAUSES * 1.0
        restarts.tick(119.9)
        assert restarts.issues
        restarts.tick(120.0)
        assert restarts.issues == ()
        assert restarts.next_deadline() is None
        assert crashed(restarts) == 0.5

    def test_a_crash_ends_the_time_of_health(self) -> None:
        restarts = worked()
        crashed(restarts)
        restarts.loaded(100.0)
        crashed(restarts)
        assert restarts.next_deadline() is None
        restarts.tick(1000.0)
        assert restarts.issues

    def test_without_failures_there_is_nothing_to_wait_for(self) -> None:
        assert worked().next_deadline() is None
        assert worked().issues == ()


class TestIssue:
    def test_names_the_signal_and_what_comes(self) -> None:
        restarts = worked()
        crashed(restarts)
        assert restarts.issues == (
            Issue(
                code="engine_crashed",
                message="the engine process was ended by SIGABRT; "
                "it starts again after a pause of 500ms",
            ),
        )

    def test_counts_and_says_when_it_is_back(self) -> None:
        restarts = worked()
        crashed(restarts)
        crashed(restarts, -signal.SIGSEGV)
        restarts.loaded(0.0)
        assert message(restarts) == (
            "the engine process was ended by SIGSEGV (2 times in a row); it was started again"
        )

    def test_the_system_kills_who_takes_too_much_memory(self) -> None:
        restarts = worked()
        crashed(restarts, -signal.SIGKILL)
        assert "SIGKILL (the system may be short of memory)" in message(restarts)

    def test_last_words(self) -> None:
        restarts = worked()
        crashed(restarts, 1, "model file m.gguf is not a GGUF file")
        assert "exit code 1: model file m.gguf is not a GGUF file;" in message(restarts)
        crashed(restarts, ABORTED, "GGML_ASSERT(x) failed")
        assert "ended by SIGABRT: GGML_ASSERT(x) failed (2 times in a row);" in message(restarts)

    def test_a_process_that_was_ended_since_it_stalled(self) -> None:
        restarts = worked()
        reason = "no step of the engine ended within 5m"
        restarts.ended(-signal.SIGKILL, reason, is_stopping=False, has_stalled=True)
        (issue,) = restarts.issues
        assert issue.code == "engine_stalled"
        assert issue.message.startswith(f"the engine process was ended by SIGKILL: {reason}; ")
        crashed(restarts)
        assert restarts.issues[0].code == "engine_crashed"

    def test_a_signal_without_a_name(self) -> None:
        restarts = worked()
        crashed(restarts, -200)
        assert "was ended by signal 200" in message(restarts)


class TestTheEnd:
    @pytest.mark.parametrize("code", [1, 2, 70])
    def test_what_never_worked_and_says_why_is_not_tried_again(self, code: int) -> None:
        assert Restarts().ended(code, "no", is_stopping=False) == Quit(code)

    def test_a_crash_while_loading_is_a_crash(self) -> None:
        assert crashed(Restarts()) == 0.5

    @pytest.mark.parametrize("code", [1, 2, 70])
    def test_what_worked_is_tried_again(self, code: int) -> None:
        assert crashed(worked(), code) == 0.5

    def test_somebody_else_stopped_it(self) -> None:
        assert worked().ended(0, None, is_stopping=False) == Quit(0)

    @pytest.mark.parametrize(
        ("code", "verdict"),
        [
            (0, Quit(0)),
            (1, Quit(1)),
            # A signal to the whole service can come before the process listens to any.
            (-signal.SIGTERM, Quit(0)),
            (-signal.SIGINT, Quit(0)),
            (
                -signal.SIGSEGV,
                Quit(139, "while stopping, the engine process was ended by SIGSEGV"),
            ),
        ],
    )
    def test_while_stopping(self, code: int, verdict: Quit) -> None:
        assert worked().ended(code, None, is_stopping=True) == verdict


def test_readiness_is_news_once() -> None:
    restarts = worked()
    crashed(restarts)
    restarts.loaded(0.0)
    assert not restarts.ready()


@given(st.lists(st.tuples(st.sampled_from(["crash", "load", "wait"]), st.floats(0, 700))))
def test_any_history(events: list[tuple[str, float]]) -> None:
    restarts, now, pauses = worked(), 0.0, [0.0]
    for event, seconds in events:
        if event == "crash":
            pauses.append(crashed(restarts))
            assert pauses[-1] in (0.5, min(30.0, pauses[-2] * 2))
        elif event == "load":
            restarts.loaded(now)
        else:
            now += seconds
            restarts.tick(now)
        restarts.check_integrity()
        deadline = restarts.next_deadline()
        assert deadline is None or deadline > now
