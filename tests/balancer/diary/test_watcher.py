"""What is told of a fleet that changes, and when."""

from dataclasses import replace

from arriero.balancer.diary.watcher import RETURN, SETTLE, Observed, Watcher
from arriero.balancer.fleet.view import (
    AgentState,
    AgentView,
    Departure,
    ServedView,
    SlotsView,
)
from arriero.balancer.store.records import MAX_HOSTS, SavedHost
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import HostFacts
from tests.balancer.fleet.builders import model_info

FULL = Issue(code="disk_full", message="no room")


def agent(name: str, number: int = 1, **more: object) -> AgentView:
    view = AgentView(
        id=AgentId(f"{name}-{number}"),
        name=name,
        labels={"zone": "a"},
        version="1.0",
        state="ready",
        slots=SlotsView(total=2, busy=0),
        model=model_info("llama"),
        issues=(),
        statistics=None,
        num_tokens=0,
        connected_seconds=1.0,
        facts=HostFacts(cores=8, memory=2**34),
    )
    return replace(view, **more)  # type: ignore[arg-type]


class Scene:
    def __init__(self) -> None:
        self.watcher = Watcher()
        self.now = 1000.0

    def come(self, *agents: AgentView) -> list[str]:
        return told(self.watcher.agents(agents, {}, self.now))

    def go(self, id: str, why: Departure = "lost") -> list[str]:
        return told(self.watcher.agents((), {AgentId(id): why}, self.now))

    def after(self, seconds: float) -> list[str]:
        self.now += seconds
        deadline = self.watcher.next_deadline()
        return [] if deadline is None or self.now < deadline else told(self.watcher.due(self.now))

    def state_of(self, name: str) -> str:
        return self.watcher.hosts[name].state


def told(observed: Observed) -> list[str]:
    return [f"{each.kind} {each.subject}: {each.message}" for each in observed.entries]


CAME = "version 1.0, 8 cores, 16 GiB of memory"


def test_a_host_comes_goes_and_comes_again() -> None:
    scene = Scene()
    assert scene.come(agent("box")) == [
        f"host_came box: it connected for the first time: {CAME}",
        "model_loaded llama: box serves it",
    ]
    assert scene.come(agent("box")) == []
    assert scene.go("box-1", "stopped") == ["host_went box: it was stopped"]
    assert scene.state_of("box") == "stopped"
    scene.now += 50
    assert scene.come(agent("box", 2))[0] == f"host_came box: it connected: {CAME}"
    host = scene.watcher.hosts["box"]
    assert (host.state, host.first_seen, host.since) == ("here", 1000.0, 1050.0)
    assert '"cores":8' in host.document


def test_a_host_whose_connection_broke_is_lost_a_while_later() -> None:
    scene = Scene()
    scene.come(agent("box"))
    assert scene.go("box-1") == []
    assert scene.after(SETTLE - 1) == []
    assert scene.state_of("box") == "here"
    assert scene.after(1) == ["host_went box: its connection was lost"]
    host = scene.watcher.hosts["box"]
    assert (host.state, host.last_seen, host.since) == ("lost", 1000.0, 1000.0)


def test_an_adapter_is_told_of_as_a_model_is() -> None:
    scene = Scene()
    scene.come(agent("box"))
    adapted = replace(model_info("llama"), adapters=("support",))
    assert scene.come(agent("box", model=adapted)) == ["model_loaded llama:support: box serves it"]
    assert scene.come(agent("box", model=adapted)) == []


def test_one_that_dials_again_went_nowhere() -> None:
    scene = Scene()
    scene.come(agent("box"))
    scene.go("box-1")
    scene.after(1)
    assert scene.come(agent("box", 2)) == ["model_loaded llama: box serves it"]
    assert scene.after(SETTLE) == []
    assert scene.state_of("box") == "here"


def test_a_host_is_here_while_one_of_its_agents_is() -> None:
    scene = Scene()
    scene.come(agent("box"), agent("box", 2))
    assert scene.go("box-1", "drained") == []
    assert scene.watcher.is_here("box")
    assert scene.go("box-2", "drained") == ["host_went box: it was drained before"]


def test_after_a_restart_hosts_come_back_or_are_lost() -> None:
    scene = Scene()
    here = SavedHost(
        name="box", state="here", since=1.0, first_seen=1.0, last_seen=900.0, document="{}"
    )
    others = replace(here, name="other"), replace(here, name="gone", state="drained")
    scene.watcher.restore([here, *others], scene.now)
    assert scene.come(agent("box")) == ["model_loaded llama: box serves it"]
    assert scene.after(RETURN) == ["host_went other: its connection was lost"]
    assert (scene.state_of("other"), scene.state_of("gone")) == ("lost", "drained")
    assert scene.watcher.hosts["other"].last_seen == 900.0


def test_issues_begin_at_once_and_end_when_they_stay_away() -> None:
    scene = Scene()
    scene.come(agent("box"))
    assert scene.come(agent("box", issues=(FULL,))) == ["issue_began box: no room (disk_full)"]
    assert scene.come(agent("box")) == []
    scene.after(SETTLE - 1)
    assert scene.come(agent("box", issues=(FULL,))) == [], "it flickers"
    assert scene.after(SETTLE) == []
    scene.come(agent("box"))
    assert scene.after(SETTLE) == ["issue_ended box: no room (disk_full)"]
    scene.come(agent("box", issues=(FULL,)))
    scene.go("box-1", "stopped")
    assert scene.after(SETTLE) == [], "whether it ended is not known"


def test_a_model_is_loaded_and_fails() -> None:
    scene = Scene()
    scene.come(agent("box", model=None, state="idle"))
    assert scene.come(agent("box")) == ["model_loaded llama: box serves it"]
    assert scene.come(agent("box", state="failed")) == []
    assert scene.come(agent("box")) == ["model_loaded llama: box serves it"]
    watcher = scene.watcher
    assert told(watcher.failed({"qwen": FULL}, 1.0)) == ["model_failed qwen: no room"]
    assert told(watcher.failed({"qwen": FULL}, 2.0)) == []
    assert told(watcher.failed({}, 3.0)) == []
    assert told(watcher.failed({"qwen": FULL}, 4.0)) == ["model_failed qwen: no room"]


def test_so_many_hosts_are_known() -> None:
    scene = Scene()
    for number in range(MAX_HOSTS + 5):
        scene.now += 1
        scene.come(agent(f"h{number}"))
        scene.go(f"h{number}-1", "stopped")
    scene.come(agent("last"))
    assert len(scene.watcher.hosts) == MAX_HOSTS
    assert "h0" not in scene.watcher.hosts
    assert "last" in scene.watcher.hosts


def test_what_others_forgot_is_forgotten_unless_it_is_here() -> None:
    scene = Scene()
    scene.come(agent("box"), agent("old"))
    scene.go("old-1", "stopped")
    known = replace(scene.watcher.hosts["old"], name="theirs")
    scene.watcher.know([known])
    assert sorted(scene.watcher.hosts) == ["box", "theirs"]
    scene.watcher.forget("theirs")
    assert [each.name for each in scene.watcher.seen(2000.0)] == ["box"]
    assert scene.watcher.hosts["box"].last_seen == 2000.0


def test_each_model_of_a_host_is_noted_when_it_is_loaded() -> None:
    def served(name: str, state: AgentState = "ready", *, is_loaded: bool = True) -> ServedView:
        info = model_info(name) if is_loaded else None
        return ServedView(name=name, state=state, slots=SlotsView(total=1, busy=0), info=info)

    scene = Scene()
    scene.come(agent("box", models=(served("llama"),)))
    coming = served("titles", "loading", is_loaded=False)
    assert scene.come(agent("box", models=(served("llama"), coming))) == []
    both = agent("box", models=(served("llama"), served("titles")))
    assert scene.come(both) == ["model_loaded titles: box serves it"]
    assert scene.come(both) == []
    failed = agent("box", models=(served("llama"), served("titles", "failed")))
    assert scene.come(failed) == []
    assert scene.come(both) == ["model_loaded titles: box serves it"], "it is loaded again"
    assert scene.come(agent("box", models=(served("llama"),))) == []
