"""An attempt: what is under way, and when a failed one is made again."""

from dataclasses import replace

import pytest

from arriero.agent.models.model_file import ModelFile
from arriero.agent.models.retry_pauses import SOON
from arriero.agent.supervision.attempt import Attempt
from arriero.agent.supervision.decisions import CancelFetch, FetchId, FetchModel
from arriero.agent.supervision.engines import Engines, Load
from arriero.agent.supervision.room import Room
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assign, Assignment, MemoryPart

A = Assignment(name="a", source="file:///a.gguf")
FILE = ModelFile("a.gguf", 50)
MISSING = Issue(code="not_found", message="it is not there")
ONE, TWO = FetchId(1), FetchId(2)


def phase(attempt: Attempt, engines: Engines, desired: Assignment | None = A) -> str:
    return attempt.work(Assign(revision=1, assignment=desired), engines).phase


def test_its_phases_one_after_the_other() -> None:
    attempt, engines = Attempt(0.0), Engines(Room(100))
    assert phase(attempt, engines) == "waiting"
    assert attempt.begin(A) == FetchModel(ONE, A)
    assert phase(attempt, engines) == "fetching"
    attempt.end_fetch()
    attempt.load = Load(A, FILE)
    assert phase(attempt, engines) == "draining", "it waits for room"
    assert attempt.work(Assign(revision=1, assignment=A), engines).needed == 50
    assert attempt.is_under_way(engines)
    attempt.load = None
    engine = engines[engines.start(Load(A, FILE), "replacing").id]
    assert phase(attempt, engines) == "loading"
    assert attempt.is_under_way(engines)
    assert attempt.files(engines) == {FILE}
    engine.is_loaded, engine.role = True, "serving"
    assert phase(attempt, engines) == "serving"
    assert not attempt.is_under_way(engines)
    assert phase(attempt, engines, desired=None) == "draining"


def test_cancelled_at_whatever_it_is_at() -> None:
    attempt = Attempt(0.0)
    assert attempt.cancel() == []
    attempt.begin(A)
    assert attempt.cancel() == [CancelFetch(ONE)]
    attempt.load = Load(A, FILE)
    assert attempt.cancel() == []
    assert attempt.load is None
    assert attempt.begin(A) == FetchModel(TWO, A)


def test_pauses_grow_until_it_succeeds() -> None:
    attempt = Attempt(0.0)
    attempt.failed(MISSING, 10.0, may_retry=True)
    assert attempt.retry_at == 10.0 + SOON[0]
    assert not attempt.is_due(10.0) and attempt.is_due(10.0 + SOON[0])
    attempt.put_off(20.0)
    assert attempt.retry_at == 20.0 + SOON[0]
    attempt.failed(MISSING, 30.0, may_retry=True)
    assert attempt.retry_at == 30.0 + 2 * SOON[0]
    attempt.succeeded()
    attempt.failed(MISSING, 40.0, may_retry=True)
    assert attempt.retry_at == 40.0 + 4 * SOON[0], "a failure that is shown is not mended"
    attempt.failure = None
    attempt.succeeded()
    attempt.failed(MISSING, 50.0, may_retry=True)
    assert attempt.retry_at == 50.0 + SOON[0]


def test_one_that_would_cost_somebody_is_not_made_again() -> None:
    attempt = Attempt(0.0)
    attempt.failed(MISSING, 10.0, may_retry=False)
    assert (attempt.retry_at, attempt.failure) == (None, MISSING)
    attempt.forget_failure()
    assert attempt.failure is None


def test_two_at_once() -> None:
    attempt = Attempt(0.0)
    attempt.begin(A)
    attempt.check_integrity(is_loading=False)
    with pytest.raises(RuntimeError, match="two attempts"):
        attempt.check_integrity(is_loading=True)


def test_the_same_order_again_may_say_that_it_takes_what_is_left() -> None:
    attempt, engines = Attempt(0.0), Engines(Room(100))
    claims = (MemoryPart(device="GPU", bytes=20),)
    modest = replace(A, takes_what_is_left=True)
    attempt.reordered(modest)  # nothing waits
    attempt.load = Load(A, replace(FILE, claims=claims))
    work = attempt.work(Assign(revision=1, assignment=A), engines)
    assert work.claims == claims
    attempt.reordered(replace(modest, name="other"))
    assert not attempt.load.assignment.takes_what_is_left
    attempt.reordered(modest)
    assert attempt.load.assignment.takes_what_is_left
