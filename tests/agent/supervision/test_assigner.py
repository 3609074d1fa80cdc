import signal
from dataclasses import replace

import pytest

from arriero.agent.models.model_file import AdapterOnHost, ModelFile
from arriero.agent.models.retry_pauses import SOON
from arriero.agent.supervision.assigner import Assigner
from arriero.agent.supervision.decisions import (
    CancelFetch,
    ChangeEngine,
    Decision,
    DialBalancers,
    EndEngine,
    EngineId,
    Exit,
    FetchId,
    FetchModel,
    RecallEngine,
    RestartEngine,
    RetireEngine,
    StartEngine,
)
from arriero.agent.supervision.engines import LeftOut
from arriero.agent.supervision.restarts import Quit
from arriero.agent.supervision.room import Room
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assign, Assignment, DesiredAdapter, Download, Reload
from arriero.shared.models.engine_options import EngineOptions
from arriero.shared.sampling import SamplingChoices

MEMORY = 100
A = Assignment(name="a", source="file:///a.gguf")
B = Assignment(name="b", source="file:///b.gguf")
C = Assignment(name="c", source="file:///c.gguf")
HALF, MOST = ModelFile("x.gguf", 50), ModelFile("x.gguf", 90)
REFUSED = Issue(code="chat_template", message="no end")
MISSING = Issue(code="not_found", message="x.gguf is not there")
FIRST, SECOND, THIRD = EngineId(1), EngineId(2), EngineId(3)


class Host:
    """An assigner, and short words for what happens to it."""

    def __init__(self, **settings: bool) -> None:
        self.assigner = Assigner(slots=4, room=Room(MEMORY), **settings)
        self.revision = 0

    def assign(self, assignment: Assignment | None, drain_timeout: float = 7.0) -> list[Decision]:
        self.revision += 1
        order = Assign(revision=self.revision, assignment=assignment, drain_timeout=drain_timeout)
        return self.assigner.ordered(order)

    def fetched(
        self, number: int, file: ModelFile = HALF, available: int | None = None
    ) -> list[Decision]:
        return self.assigner.fetched(FetchId(number), file, available, 0.0)

    def without(self, number: int, file: ModelFile, *issues: Issue) -> list[Decision]:
        """It came without some adapters."""
        return self.assigner.fetched(FetchId(number), file, None, 0.0, issues=issues)

    def joined(self, id: EngineId) -> list[Decision]:
        return [*self.assigner.loaded(id, 0.0), *self.assigner.joined(id, 0.0)]

    def ended(
        self, id: EngineId, code: int = 0, reason: str | None = None, available: int | None = None
    ) -> list[Decision]:
        return self.assigner.ended(id, Quit(code), reason, available, 0.0)

    def serve(self, assignment: Assignment, file: ModelFile = HALF) -> None:
        """The first assignment, and all goes well."""
        self.assign(assignment)
        self.fetched(1, file)
        self.joined(FIRST)

    @property
    def phase(self) -> str | None:
        return self.assigner.work and self.assigner.work.phase

    @property
    def codes(self) -> list[str]:
        return [issue.code for issue in self.assigner.issues]


def hosts_of(decision: Decision) -> tuple[str, ...]:
    assert isinstance(decision, FetchModel)
    return decision.assignment.http_hosts


def test_an_idle_agent_gets_a_model() -> None:
    host = Host()
    assert host.assigner.start() == []
    assert (host.assigner.work, host.assigner.is_standing_in) == (None, True)
    assert host.assign(A) == [FetchModel(FetchId(1), A)]
    assert host.phase == "fetching"
    assert host.fetched(1, HALF) == [StartEngine(FIRST, A, HALF)]
    assert host.phase == "loading"
    assert host.assigner.loaded(FIRST, 0.0) == [DialBalancers(FIRST, takes_over=True)]
    assert (host.phase, host.assigner.is_standing_in) == ("serving", True)
    assert host.assigner.joined(FIRST, 0.0) == []
    assert (host.phase, host.assigner.is_standing_in) == ("serving", False)


def test_says_how_far_it_is() -> None:
    host = Host()
    host.assign(A)
    download = Download(file="a.gguf", bytes=5)
    host.assigner.progressed(FetchId(1), download)
    work = host.assigner.work
    assert work is not None
    assert (work.revision, work.assignment, work.download) == (1, A, download)
    host.fetched(1, HALF)
    work = host.assigner.work
    assert work is not None
    assert (work.download, work.needed) == (None, 50)


class TestRecall:
    def test_what_drains_serves_again(self) -> None:
        host = Host()
        host.serve(A, MOST)
        host.assign(B)
        assert host.fetched(2, MOST) == [RetireEngine(FIRST, 7.0)]
        assert (host.phase, host.assigner.is_standing_in) == ("draining", True)
        assert host.assign(A) == [RecallEngine(FIRST)]
        assert (host.phase, host.assigner.is_standing_in) == ("serving", True)
        assert host.assigner.is_making_way
        assert host.assigner.joined(FIRST, 0.0) == []
        assert (host.phase, host.assigner.is_standing_in) == ("serving", False)
        host.assign(B)
        assert host.fetched(3, MOST) == [RetireEngine(FIRST, 7.0)], "as often as it may be"
        assert host.ended(FIRST) == [StartEngine(SECOND, B, MOST)]

    def test_so_does_what_was_to_make_room_for_another_place(self) -> None:
        host = Host()
        host.serve(A)
        assert host.assign(None) == [RetireEngine(FIRST, 7.0)]
        assert host.assign(A) == [RecallEngine(FIRST)]

    def test_it_changes_as_any_engine_does(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(None)
        fewer = replace(A, slots=2)
        assert host.assign(fewer) == [RecallEngine(FIRST), ChangeEngine(FIRST, fewer)]
        host.assign(None)
        other = replace(A, source="file:///new.gguf")
        assert host.assign(other) == [FetchModel(FetchId(2), other)], "this is another file"

    def test_one_that_had_ended_is_loaded_again(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(None)
        host.assign(A)
        assert host.ended(FIRST) == [FetchModel(FetchId(2), A)]
        assert host.fetched(2, HALF) == [StartEngine(SECOND, A, HALF)]

    def test_what_was_taken_over_from_is_not_needed_any_more(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        host.fetched(2, HALF)
        assert host.joined(SECOND) == [
            DialBalancers(SECOND, takes_over=True),
            RetireEngine(FIRST, 7.0),
        ]
        assert host.assign(A) == [FetchModel(FetchId(3), A)]

    def test_what_was_about_to_take_over_ends(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        host.fetched(2, HALF)
        host.assign(None)
        assert host.assign(A) == [RecallEngine(FIRST)]
        assert host.ended(SECOND) == []


class TestOnlyRealChanges:
    def test_the_newest_orders_hosts_hold(self) -> None:
        """They are no part of what is served; a file comes from those that are allowed now."""
        host = Host()
        old, new = (replace(A, http_hosts=hosts) for hosts in (("old.lan",), ("new.lan",)))
        host.assign(old)
        cancelled, begun = host.assign(new)
        assert cancelled == CancelFetch(FetchId(1))
        assert hosts_of(begun) == ("new.lan",)
        assert host.assign(new) == [], "nothing is begun anew for the same"
        host.assigner.fetch_failed(FetchId(2), MISSING, 0.0)
        [begun] = host.assign(old)
        assert hosts_of(begun) == ("old.lan",)
        host.fetched(3)
        host.joined(FIRST)
        assert host.assign(new) == [], "what is served stays"
        [begun] = host.assigner.ordered(Reload())
        assert hosts_of(begun) == ("new.lan",)

    def test_the_same_again_is_nothing(self) -> None:
        host = Host()
        host.serve(A)
        assert host.assign(A) == []
        work = host.assigner.work
        assert work is not None and (work.revision, work.phase) == (2, "serving")

    def test_an_older_revision_is_ignored(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        assert host.assigner.ordered(Assign(revision=1, assignment=None)) == []
        assert host.assigner.work and host.assigner.work.assignment == B

    @pytest.mark.parametrize(
        "new",
        [
            replace(A, name="other"),
            replace(A, chat_template="{{ x }}"),
            replace(A, sampling=SamplingChoices(temperature=0.5)),
            replace(A, slots=3),
            replace(A, slots=4),
        ],
    )
    def test_without_a_reload(self, new: Assignment) -> None:
        host = Host()
        host.serve(A)
        assert host.assign(new) == [ChangeEngine(FIRST, new)]
        assert host.phase == "loading"
        assert host.assigner.changed(FIRST, new, None, 0.0) == []
        assert host.phase == "serving"

    @pytest.mark.parametrize(
        "new",
        [
            replace(A, slots=5),
            replace(A, context_size=64),
            replace(A, engine=EngineOptions(threads=1)),
            replace(A, source="file:///other.gguf"),
            replace(A, sha256="0" * 64),
        ],
    )
    def test_with_a_reload(self, new: Assignment) -> None:
        host = Host()
        host.serve(A)
        assert host.assign(new) == [FetchModel(FetchId(2), new)]

    def test_fewer_slots_and_back_again(self) -> None:
        host = Host()
        host.serve(A)
        fewer = replace(A, slots=1)
        host.assign(fewer)
        host.assigner.changed(FIRST, fewer, None, 0.0)
        assert host.assign(A) == [ChangeEngine(FIRST, A)]

    def test_a_change_that_is_refused(self) -> None:
        host = Host()
        host.serve(A)
        broken = replace(A, chat_template="{%")
        host.assign(broken)
        assert host.assigner.changed(FIRST, broken, REFUSED, 0.0) == []
        assert (host.phase, host.codes) == ("failed", ["chat_template"])
        assert host.assign(A) == [], "it serves that already"
        assert (host.phase, host.codes) == ("serving", [])

    def test_a_change_before_it_has_loaded(self) -> None:
        host = Host()
        host.assign(A)
        host.fetched(1)
        new = replace(A, name="other")
        assert host.assign(new) == []
        assert host.assigner.loaded(FIRST, 0.0) == [
            DialBalancers(FIRST, takes_over=True),
            ChangeEngine(FIRST, new),
        ]

    def test_a_change_that_a_crash_swallowed(self) -> None:
        host = Host()
        host.serve(A)
        new = replace(A, name="other")
        host.assign(new)
        assert host.assigner.crashed(FIRST, -signal.SIGABRT, None, 0.0) == []
        assert ChangeEngine(FIRST, new) in host.assigner.loaded(FIRST, 0.0)


CALM, LOUD = (
    AdapterOnHost(f"file:///{name}.gguf", f"/{name}.gguf", 10) for name in ("calm", "loud")
)


def with_adapters(*adapters: AdapterOnHost, scale: float = 1.0) -> Assignment:
    found = (
        DesiredAdapter(name=each.path[1:-5], source=each.source, scale=scale) for each in adapters
    )
    return replace(A, adapters=tuple(found))


NO_CALM, NO_LOUD = (
    Issue(code="adapter", message=f"adapter `{name}`: it is broken") for name in ("calm", "loud")
)


class TestAdapters:
    """They come and go while the model stays."""

    def test_a_new_one_is_fetched_and_loaded_by_the_engine_that_runs(self) -> None:
        host = Host()
        host.serve(A)
        desired = with_adapters(CALM)
        assert host.assign(desired) == [FetchModel(FetchId(2), desired, HALF)]
        assert (host.phase, host.assigner.is_standing_in) == ("fetching", False)
        told = host.fetched(2, HALF.with_adapters((CALM,)))
        assert told == [ChangeEngine(FIRST, desired, (CALM.path,))]
        assert host.assigner.files == {HALF, CALM}
        assert host.phase == "loading"
        assert host.assigner.changed(FIRST, desired, None, 0.0) == []
        assert host.phase == "serving"
        assert host.assigner.work and host.assigner.work.needed == 60
        assert host.assigner.adapters_of(FIRST) == (CALM.path,)

    def with_both(self) -> Host:
        host = Host()
        host.serve(with_adapters(CALM, LOUD), HALF.with_adapters((CALM, LOUD)))
        return host

    def test_what_is_here_already_is_not_fetched(self) -> None:
        host = self.with_both()
        fewer = with_adapters(LOUD, scale=0.5)
        assert host.assign(fewer) == [ChangeEngine(FIRST, fewer, (LOUD.path,))]
        assert host.assigner.files == {HALF, CALM, LOUD}, "it may be refused"
        host.assigner.changed(FIRST, fewer, None, 0.0)
        assert host.assigner.files == {HALF, LOUD}
        assert host.assign(with_adapters(CALM)) == [
            FetchModel(FetchId(2), with_adapters(CALM), HALF.with_adapters((LOUD,)))
        ]

    def test_one_that_cannot_be_had_leaves_the_rest_as_it_was(self) -> None:
        host = Host()
        host.serve(A)
        desired = with_adapters(CALM)
        host.assign(desired)
        assert host.assigner.fetch_failed(FetchId(2), MISSING, 0.0) == []
        assert (host.phase, host.assigner.issues) == ("failed", (MISSING,))
        deadline = host.assigner.next_deadline()
        assert deadline is not None
        assert host.assigner.tick(deadline) == [FetchModel(FetchId(3), desired, HALF)]
        host.fetched(3, HALF.with_adapters((CALM,)))
        host.assigner.changed(FIRST, desired, None, 0.0)
        assert (host.phase, host.codes) == ("serving", [])

    def test_one_that_the_engine_refuses_is_tried_again_when_it_is_told_again(self) -> None:
        host = Host()
        host.serve(A)
        desired = with_adapters(CALM)
        host.assign(desired)
        host.fetched(2, HALF.with_adapters((CALM,)))
        assert host.assigner.changed(FIRST, desired, REFUSED, 0.0) == []
        assert (host.phase, host.assigner.issues) == ("failed", (REFUSED,))
        assert host.assigner.next_deadline() is None
        assert host.assigner.files == {HALF}
        assert host.assign(desired) == [FetchModel(FetchId(3), desired, HALF)]

    def test_too_large_beside_the_model(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(with_adapters(CALM))
        large = replace(CALM, bytes=51)
        assert host.fetched(2, HALF.with_adapters((large,))) == []
        assert (host.phase, host.codes) == ("failed", ["too_large"])

    def test_they_wait_for_one_that_leaves_where_memory_is_short(self) -> None:
        host = Host()
        host.serve(B)
        host.assign(A)
        host.fetched(2)
        host.joined(SECOND)
        desired = with_adapters(CALM)
        host.assign(desired)
        file = HALF.with_adapters((CALM,))
        assert host.fetched(3, file) == []
        assert host.ended(FIRST) == [ChangeEngine(SECOND, desired, (CALM.path,))]

    def test_while_the_model_is_loading(self) -> None:
        host = Host()
        host.assign(A)
        host.fetched(1)
        desired = with_adapters(CALM)
        assert host.assign(desired) == [FetchModel(FetchId(2), desired, HALF)]
        assert host.fetched(2, HALF.with_adapters((CALM,))) == []
        assert host.assigner.loaded(FIRST, 0.0) == [
            DialBalancers(FIRST, takes_over=True),
            ChangeEngine(FIRST, desired, (CALM.path,)),
        ]

    def test_the_model_cannot_be_loaded_for_which_they_are_fetched(self) -> None:
        host = Host()
        host.assign(A)
        host.fetched(1)
        host.assign(with_adapters(CALM))
        assert host.ended(FIRST, code=1) == [CancelFetch(FetchId(2))]
        assert (host.phase, host.codes) == ("failed", ["load_failed"])

    def test_a_crash_while_they_change_gives_them_up(self) -> None:
        host = Host()
        host.serve(A)
        desired = with_adapters(CALM)
        host.assign(desired)
        host.fetched(2, HALF.with_adapters((CALM,)))
        assert host.assigner.crashed(FIRST, -signal.SIGSEGV, None, 0.0) == []
        assert (host.phase, host.codes) == ("failed", ["adapter"])
        assert host.assigner.loaded(FIRST, 0.0) == [DialBalancers(FIRST, takes_over=True)]
        assert host.assigner.files == {HALF}

    def test_the_first_load_does_without_one_that_cannot_be_had(self) -> None:
        host = Host()
        desired, there = with_adapters(CALM, LOUD), with_adapters(LOUD)
        host.assign(desired)
        file = HALF.with_adapters((LOUD,))
        assert host.without(1, file, NO_CALM) == [StartEngine(FIRST, there, file)]
        assert (host.phase, host.codes) == ("loading", [])
        host.joined(FIRST)
        assert (host.phase, host.assigner.issues) == ("failed", (NO_CALM,))
        deadline = host.assigner.next_deadline()
        assert deadline is not None
        assert host.assigner.tick(deadline) == [FetchModel(FetchId(2), desired, file)], "calm alone"
        both = HALF.with_adapters((CALM, LOUD))
        assert host.fetched(2, both) == [ChangeEngine(FIRST, desired, (CALM.path, LOUD.path))]
        host.assigner.changed(FIRST, desired, None, 0.0)
        assert (host.phase, host.codes) == ("serving", [])

    def test_the_first_load_does_without_one_that_cannot_be_loaded(self) -> None:
        host = Host()
        desired, there = with_adapters(CALM, LOUD), with_adapters(LOUD)
        host.assign(desired)
        host.fetched(1, HALF.with_adapters((CALM, LOUD)))
        left_out = LeftOut(("calm",), (NO_CALM,))
        assert host.assigner.loaded(FIRST, 0.0, left_out) == [DialBalancers(FIRST, takes_over=True)]
        assert host.assigner.adapters_of(FIRST) == (LOUD.path,)
        host.assigner.joined(FIRST, 0.0)
        assert (host.phase, host.assigner.issues) == ("failed", (NO_CALM,))
        assert host.assigner.next_deadline() is None, "the same file would fail again"
        assert host.assign(desired) == [ChangeEngine(FIRST, desired, (CALM.path, LOUD.path))]
        host.assigner.changed(FIRST, desired, REFUSED, 0.0)
        assert host.assign(there) == [], "that is what it serves"
        assert (host.phase, host.codes) == ("serving", [])

    def test_all_that_are_missing_are_named(self) -> None:
        host = Host()
        host.assign(with_adapters(CALM, LOUD))
        host.without(1, HALF.with_adapters((LOUD,)), NO_CALM)
        host.assigner.loaded(FIRST, 0.0, LeftOut(("loud",), (NO_LOUD,)))
        host.assigner.joined(FIRST, 0.0)
        assert host.assigner.issues == (NO_CALM, NO_LOUD)
        host.assign(with_adapters(LOUD))
        assert host.assigner.issues == ()

    def test_a_wish_that_came_meanwhile_lacks_nothing(self) -> None:
        host = Host()
        host.assign(with_adapters(CALM, LOUD))
        host.without(1, HALF.with_adapters((LOUD,)), NO_CALM)
        assert host.assign(with_adapters(LOUD)) == []
        host.joined(FIRST)
        assert (host.phase, host.codes) == ("serving", [])

    def test_what_is_served_is_not_replaced_by_the_same_with_fewer(self) -> None:
        small = ModelFile("x.gguf", 25)
        both = small.with_adapters((CALM, LOUD))
        for is_fetched in (False, True):
            host = Host()
            host.serve(with_adapters(CALM, LOUD), both)
            host.assign(replace(with_adapters(CALM, LOUD), context_size=99))
            if not is_fetched:
                assert host.without(2, small.with_adapters((LOUD,)), NO_CALM) == []
            else:
                host.fetched(2, both)
                left_out = LeftOut(("calm",), (NO_CALM,))
                assert host.assigner.loaded(SECOND, 0.0, left_out) == [EndEngine(SECOND)]
            assert (host.phase, host.assigner.issues) == ("failed", (NO_CALM,))
            assert host.assigner.adapters_of(FIRST) == (CALM.path, LOUD.path)

    def test_after_a_crash_the_model_does_without_one_that_is_broken_now(self) -> None:
        host = self.with_both()
        host.assigner.crashed(FIRST, -signal.SIGSEGV, None, 0.0)
        host.assigner.loaded(FIRST, 0.0, LeftOut(("calm",), (NO_CALM,)))
        assert (host.phase, host.assigner.issues) == ("failed", (NO_CALM,))
        assert host.assigner.adapters_of(FIRST) == (LOUD.path,)

    def test_what_ran_before_comes_back_even_with_fewer(self) -> None:
        host = self.with_both()
        host.assign(replace(B, context_size=99))
        host.fetched(2, MOST)
        host.ended(FIRST)
        host.ended(SECOND, code=1)
        told = host.assigner.loaded(THIRD, 0.0, LeftOut(("calm",), (NO_CALM,)))
        assert told == [DialBalancers(THIRD, takes_over=True)]

    def test_answers_that_come_late(self) -> None:
        host = self.with_both()
        first, second = with_adapters(CALM), with_adapters(LOUD)
        for desired in (first, second, first):
            host.assign(desired)
        host.assigner.changed(FIRST, first, None, 0.0)
        host.assigner.changed(FIRST, second, None, 0.0)
        assert host.assigner.adapters_of(FIRST) == (LOUD.path,)
        host.assigner.changed(FIRST, first, None, 0.0)
        assert host.assigner.files == {HALF, CALM}

    def test_what_is_loaded_again_has_those_that_were_served(self) -> None:
        host = self.with_both()
        host.assign(with_adapters(LOUD))
        host.assigner.changed(FIRST, with_adapters(LOUD), None, 0.0)
        host.assign(B)
        assert host.fetched(2, MOST) == [RetireEngine(FIRST, 7.0)]
        host.ended(FIRST)
        file = HALF.with_adapters((LOUD,))
        assert host.ended(SECOND, code=1) == [StartEngine(THIRD, with_adapters(LOUD), file)]


class TestBeside:
    def test_the_old_goes_when_the_new_has_joined(self) -> None:
        host = Host()
        host.serve(A)
        assert host.assign(B) == [FetchModel(FetchId(2), B)]
        assert host.fetched(2, HALF, available=50) == [StartEngine(SECOND, B, HALF)]
        assert host.assigner.loaded(SECOND, 0.0) == [DialBalancers(SECOND, takes_over=True)]
        assert host.assigner.joined(SECOND, 0.0) == [RetireEngine(FIRST, 7.0)]
        assert host.phase == "serving"
        assert host.ended(FIRST) == []

    def test_a_load_that_fails_leaves_the_old_alone(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        host.fetched(2)
        assert host.ended(SECOND, 1, "wrong tensor") == []
        [issue] = host.assigner.issues
        assert (issue.code, issue.message) == ("load_failed", "wrong tensor")
        assert issue.hint
        assert host.phase == "failed"
        assert host.assigner.next_deadline() is None, "trying again would cost who is served"

    def test_a_crash_while_it_loads_is_a_failure(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        host.fetched(2)
        assert host.assigner.crashed(SECOND, -signal.SIGKILL, None, 0.0) == [EndEngine(SECOND)]
        assert host.codes == ["too_large"]

    def test_the_old_crashes_meanwhile(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        host.fetched(2)
        host.assigner.crashed(FIRST, -signal.SIGABRT, None, 0.0)
        assert host.assigner.is_standing_in
        assert host.joined(SECOND) == [DialBalancers(SECOND, takes_over=True), EndEngine(FIRST)]


class TestAfter:
    @pytest.mark.parametrize(
        ("file", "available"),
        [(MOST, None), (HALF, 49), (ModelFile("x.gguf"), None)],
        ids=["together too large", "others take the memory", "nobody knows how large"],
    )
    def test_the_old_goes_first(self, file: ModelFile, available: int | None) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        assert host.fetched(2, file, available) == [RetireEngine(FIRST, 7.0)]
        assert (host.phase, host.assigner.is_standing_in) == ("draining", True)
        assert host.ended(FIRST) == [StartEngine(SECOND, B, file)]
        assert host.phase == "loading"

    def test_a_load_that_fails_brings_the_old_back(self) -> None:
        host = Host()
        host.serve(A, MOST)
        host.assign(B)
        host.fetched(2, MOST)
        host.ended(FIRST)
        assert host.ended(SECOND, 1, "wrong tensor") == [StartEngine(THIRD, A, MOST)]
        assert host.joined(THIRD) == [DialBalancers(THIRD, takes_over=True)]
        assert (host.phase, host.codes) == ("failed", ["load_failed"])
        assert host.assigner.next_deadline() is None

    def test_it_comes_back_with_what_changed_since_it_was_loaded(self) -> None:
        host = Host()
        host.serve(A, MOST)
        new = replace(A, name="other")
        host.assign(new)
        host.assigner.changed(FIRST, new, None, 0.0)
        host.assign(B)
        host.fetched(2, MOST)
        host.ended(FIRST)
        assert host.ended(SECOND, 1) == [StartEngine(THIRD, new, MOST)]

    def test_the_old_does_not_load_any_more_either(self) -> None:
        host = Host()
        host.serve(A, MOST)
        host.assign(B)
        host.fetched(2, MOST)
        host.ended(FIRST)
        host.ended(SECOND, 1, "wrong tensor")
        assert host.ended(THIRD, 1, "gone") == []
        assert [issue.message for issue in host.assigner.issues] == ["wrong tensor"]
        deadline = host.assigner.next_deadline()
        assert deadline is not None
        assert host.assigner.tick(deadline) == [FetchModel(FetchId(3), B)]

    def test_the_next_wish_cannot_be_fetched(self) -> None:
        host = Host()
        host.serve(A, MOST)
        host.assign(B)
        host.fetched(2, MOST)
        host.ended(FIRST)
        assert host.assign(C) == [EndEngine(SECOND), FetchModel(FetchId(3), C)]
        host.ended(SECOND)
        back = host.assigner.fetch_failed(FetchId(3), MISSING, 0.0)
        assert back == [StartEngine(THIRD, A, MOST)], "what ran comes back"
        # While it is being loaded, another attempt waits.
        deadline = host.assigner.next_deadline()
        assert deadline is not None
        assert host.assigner.tick(deadline) == []
        host.joined(THIRD)
        deadline = host.assigner.next_deadline()
        assert deadline is not None
        assert host.assigner.tick(deadline) == [FetchModel(FetchId(4), C)]

    def test_the_old_is_wished_for_again(self) -> None:
        host = Host()
        host.serve(A, MOST)
        host.assign(B)
        host.fetched(2, MOST)
        longer = replace(A, context_size=64)
        assert host.assign(longer) == [FetchModel(FetchId(3), longer)], "not as it is loaded"
        assert host.fetched(3, MOST) == [], "there is no room yet"
        assert host.ended(FIRST) == [StartEngine(SECOND, longer, MOST)]

    def test_waits_for_all_who_leave(self) -> None:
        host = Host()
        host.assign(A)
        host.fetched(1, HALF)
        host.assign(B)
        host.fetched(2, HALF)
        host.assign(C)
        assert host.fetched(3, MOST) == []
        assert host.ended(FIRST) == []
        assert host.ended(SECOND) == [StartEngine(THIRD, C, MOST)]


class TestTheNewestWins:
    def test_over_a_fetch(self) -> None:
        host = Host()
        host.assign(A)
        assert host.assign(B) == [CancelFetch(FetchId(1)), FetchModel(FetchId(2), B)]
        assert host.fetched(1) == [], "too late"
        assert host.assigner.fetch_failed(FetchId(1), MISSING, 0.0) == []
        assert host.phase == "fetching"

    def test_over_a_load(self) -> None:
        host = Host()
        host.assign(A)
        host.fetched(1)
        assert host.assign(B) == [EndEngine(FIRST), FetchModel(FetchId(2), B)]
        assert host.assigner.loaded(FIRST, 0.0) == [], "too late"

    def test_over_a_wait_for_room(self) -> None:
        host = Host()
        host.serve(A, MOST)
        host.assign(B)
        host.fetched(2, MOST)
        assert host.assign(C) == [FetchModel(FetchId(3), C)]
        assert host.ended(FIRST) == []
        assert host.fetched(3, MOST) == [StartEngine(SECOND, C, MOST)]

    def test_nothing_is_wished_for(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        assert host.assign(None) == [CancelFetch(FetchId(2)), RetireEngine(FIRST, 7.0)]
        assert (host.phase, host.assigner.is_standing_in) == ("draining", True)
        assert host.ended(FIRST) == []
        assert host.phase == "waiting"


class TestFetchesThatFail:
    def test_are_made_again_after_growing_pauses(self) -> None:
        host = Host()
        host.assign(A)
        assert host.assigner.fetch_failed(FetchId(1), MISSING, 1.0) == []
        assert (host.phase, host.assigner.issues) == ("failed", (MISSING,))
        assert host.assigner.next_deadline() == 1.0 + SOON[0]
        assert host.assigner.tick(1.0) == []
        assert host.assigner.tick(9.0) == [FetchModel(FetchId(2), A)]
        assert (host.phase, host.codes) == ("failed", ["not_found"]), "until it is mended"
        host.assigner.fetch_failed(FetchId(2), MISSING, 9.0)
        assert host.assigner.next_deadline() == 9.0 + 2 * SOON[0]
        assert host.assigner.tick(99.0) == [FetchModel(FetchId(3), A)]
        assert host.fetched(3) == [StartEngine(FIRST, A, HALF)]
        assert (host.phase, host.codes) == ("loading", [])

    def test_are_made_again_when_the_order_comes_again(self) -> None:
        host = Host()
        host.assign(A)
        host.assigner.fetch_failed(FetchId(1), MISSING, 1.0)
        assert host.assign(A) == [FetchModel(FetchId(2), A)]
        assert host.codes == ["not_found"], "until it is mended"
        assert host.assign(A) == [], "it is at it"
        host.assigner.fetch_failed(FetchId(2), MISSING, 2.0)
        assert host.assigner.next_deadline() == 2.0 + 2 * SOON[0], "its own pauses go on growing"

    def test_come_again_at_other_times_than_other_agents(self) -> None:
        host = Host()
        host.assigner = Assigner(slots=4, room=Room(MEMORY), jitter=0.5)
        host.assign(A)
        host.assigner.fetch_failed(FetchId(1), MISSING, 1.0)
        assert host.assigner.next_deadline() == 1.0 + 0.75 * SOON[0]

    def test_leave_alone_what_runs(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        assert host.assigner.fetch_failed(FetchId(2), MISSING, 0.0) == []
        assert host.phase == "failed"

    def test_a_model_that_this_host_cannot_hold(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        assert host.fetched(2, ModelFile("b.gguf", 110, least=101)) == []
        assert host.codes == ["too_large"]
        work = host.assigner.work
        assert work is not None
        assert (work.needed, work.least) == (110, 101), "so no other host of this size has to try"

    def test_one_that_its_header_says_this_host_cannot_hold(self) -> None:
        host = Host()
        host.assign(B)
        unfit = ModelFile("b.gguf", 110, least=101)
        large = Issue(code="too_large", message="it needs more")
        assert host.assigner.fetch_failed(FetchId(1), large, 0.0, unfit=unfit) == []
        work = host.assigner.work
        assert work is not None
        assert (work.phase, work.needed, work.least) == ("failed", 110, 101)
        host.assign(A)
        work = host.assigner.work
        assert work is not None
        assert (work.phase, work.needed) == ("fetching", None)

    def test_a_new_wish_ends_it(self) -> None:
        host = Host()
        host.assign(A)
        host.assigner.fetch_failed(FetchId(1), MISSING, 0.0)
        assert host.assign(None) == []
        assert (host.phase, host.codes) == ("waiting", [])
        assert host.assigner.next_deadline() is None


class TestReloads:
    def test_a_reload_loads_the_same_anew(self) -> None:
        host = Host()
        host.serve(A)
        assert host.assigner.ordered(Reload(drain_timeout=1.0)) == [FetchModel(FetchId(2), A)]
        assert host.fetched(2) == [StartEngine(SECOND, A, HALF)]
        assert host.joined(SECOND)[-1] == RetireEngine(FIRST, 1.0)

    def test_one_is_enough(self) -> None:
        host = Host()
        host.serve(A)
        host.assigner.ordered(Reload())
        assert host.assigner.ordered(Reload()) == []

    def test_tries_again_at_once_what_failed(self) -> None:
        host = Host()
        host.assign(A)
        host.assigner.fetch_failed(FetchId(1), MISSING, 0.0)
        assert host.assigner.ordered(Reload()) == [FetchModel(FetchId(2), A)]

    def test_without_a_model_it_is_nothing(self) -> None:
        assert Host().assigner.ordered(Reload()) == []


class TestAPinnedAgent:
    def test_serves_its_own_model(self) -> None:
        host = Host(is_pinned=True)
        assert host.assigner.start() == [StartEngine(FIRST, None, None)]
        assert not host.assigner.is_standing_in
        assert host.assigner.loaded(FIRST, 0.0) == [DialBalancers(FIRST, takes_over=False)]
        host.assigner.joined(FIRST, 0.0)
        assert host.assign(B) == []
        assert host.assigner.work is None

    def test_a_reload_restarts_its_engine(self) -> None:
        host = Host(is_pinned=True)
        host.assigner.start()
        host.assigner.loaded(FIRST, 0.0)
        host.assigner.joined(FIRST, 0.0)
        assert host.assigner.ordered(Reload(drain_timeout=1.0)) == [RestartEngine(FIRST, 1.0)]
        assert host.assigner.is_standing_in
        assert host.assigner.loaded(FIRST, 1.0) == [DialBalancers(FIRST, takes_over=True)]
        host.assigner.joined(FIRST, 1.0)
        assert not host.assigner.is_standing_in

    def test_a_stop_ends_a_reload(self) -> None:
        host = Host(is_pinned=True)
        host.assigner.start()
        host.assigner.loaded(FIRST, 0.0)
        host.assigner.joined(FIRST, 0.0)
        host.assigner.ordered(Reload())
        assert host.assigner.stop() == [RetireEngine(FIRST, None)]
        assert host.assigner.ordered(Reload()) == []
        assert host.assigner.ended(FIRST, Quit(0), None, None, 0.0) == [Exit(0)]

    def test_stands_in_after_a_crash(self) -> None:
        host = Host(is_pinned=True)
        host.assigner.start()
        host.joined(FIRST)
        assert host.assigner.crashed(FIRST, -signal.SIGABRT, None, 0.0) == []
        assert host.assigner.is_standing_in
        assert host.assigner.loaded(FIRST, 0.0) == [DialBalancers(FIRST, takes_over=True)]
        host.assigner.joined(FIRST, 0.0)
        assert not host.assigner.is_standing_in

    def test_ends_with_it(self) -> None:
        host = Host(is_pinned=True)
        host.assigner.start()
        assert host.ended(FIRST, 1) == [Exit(1)]


class TestTheEnd:
    def test_of_an_idle_agent(self) -> None:
        assert Host().assigner.stop() == [Exit(0)]

    def test_while_it_fetches(self) -> None:
        host = Host()
        host.assign(A)
        assert host.assigner.stop() == [CancelFetch(FetchId(1)), Exit(0)]

    def test_waits_for_all_engines(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        host.fetched(2)
        host.joined(SECOND)
        assert host.assigner.stop() == [RetireEngine(SECOND, None)]
        assert host.ended(SECOND) == [], "the one before it still answers"
        assert host.ended(FIRST) == [Exit(0)]

    def test_says_how_the_engine_ended(self) -> None:
        host = Host()
        host.serve(A)
        host.assigner.stop()
        quit = Quit(134, "it crashed")
        assert host.assigner.ended(FIRST, quit, None, None, 0.0) == [Exit(134, "it crashed")]

    def test_takes_no_order_any_more(self) -> None:
        host = Host()
        host.serve(A)
        host.assigner.stop()
        assert host.assign(B) == []

    def test_an_engine_that_ends_by_itself(self) -> None:
        host = Host()
        host.serve(A)
        host.assign(B)
        host.fetched(2)
        assert host.ended(FIRST) == [EndEngine(SECOND)]
        assert host.ended(SECOND) == [Exit(0)]
