"""Any order of wishes, joins, losses, failures, loads and restarts comes to rest in the wished
state or in a stated issue, and no order takes the last serving agent of a model away while another
one is on its way to serve it.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from arriero.balancer.control.controller import SETTLE, Controller, GiveOrder
from arriero.balancer.control.demand import MIN_TURN, Demand
from arriero.balancer.control.desired_state import DesiredModel, DesiredState
from arriero.balancer.control.placement import HOLD, REDIAL
from arriero.shared.models.assignments import Assignment, needs_reload
from tests.balancer.control.builders import SimulatedAgent, state, wished

NAMES = ("a", "b", "c", "d")
MODELS = ("m", "n", "o")


@st.composite
def wishes(draw: st.DrawFn) -> DesiredState:
    names = draw(st.lists(st.sampled_from(MODELS), unique=True, max_size=3))
    return state(*(draw(models(name)) for name in names))


@st.composite
def models(draw: st.DrawFn, name: str) -> DesiredModel:
    return wished(
        name,
        draw(st.integers(1, 2)),
        replicas=draw(st.sampled_from(["all", "all", 1, 2, 0])),
        labels=draw(st.sampled_from([{}, {}, {"gpu": "yes"}])),
        preload=draw(st.sampled_from([True, True, False])),
        idle_timeout=draw(st.sampled_from([None, None, 40.0])),
        chat_template=draw(st.sampled_from([None, "t"])),
    )


class ControllerMachine(RuleBasedStateMachine):
    @initialize(wish=wishes(), num_agents=st.integers(1, 4), has_room=st.booleans())
    def start(self, wish: DesiredState, num_agents: int, has_room: bool) -> None:
        self.now = self.settled_at = 100.0
        self.controller = Controller(drain_timeout=30.0)
        self.agents: dict[str, SimulatedAgent] = {}
        self.demands: dict[str, Demand] = {}
        self.bad: set[str] = set()
        self.wish = wish
        self.controller.desire(wish)
        for number, name in enumerate(NAMES[:num_agents]):
            labels = {"gpu": "yes"} if number % 2 else {}
            self.agents[name] = SimulatedAgent(name, labels=labels, has_room=has_room)
        self.forced: set[str] = set()
        self.known: set[str] = set()
        self.missed_at = float("-inf")
        self._come_to_rest()

    # ---- what happens

    @rule(wish=wishes())
    def somebody_wishes(self, wish: DesiredState) -> None:
        self.wish = wish
        self.controller.desire(wish)

    @rule(number=st.integers(0, 2), version=st.integers(1, 2))
    def model_changes(self, number: int, version: int) -> None:
        models = list(self.wish.models)
        if number < len(models):
            source = f"file:///{models[number].name}-{version}.gguf"
            models[number] = replace(models[number], source=source)
            self.somebody_wishes(state(*models))

    @rule(
        name=st.sampled_from(NAMES),
        has_gpu=st.booleans(),
        has_room=st.booleans(),
        allowed=st.none() | st.lists(st.sampled_from(MODELS), unique=True, min_size=1),
    )
    def agent_joins(
        self, name: str, has_gpu: bool, has_room: bool, allowed: list[str] | None
    ) -> None:
        if name not in self.agents:
            labels = {"gpu": "yes"} if has_gpu else {}
            self.agents[name] = SimulatedAgent(
                name, labels=labels, has_room=has_room, allowed=allowed
            )

    @rule(name=st.sampled_from(NAMES))
    def agent_leaves(self, name: str) -> None:
        self.agents.pop(name, None)

    @rule(model=st.sampled_from(MODELS))
    def all_agents_of_a_model_leave(self, model: str) -> None:
        self.agents = {n: one for n, one in self.agents.items() if one.report().serves != model}

    @rule(name=st.sampled_from(NAMES))
    def agent_dials_again(self, name: str) -> None:
        """What was on its way is lost."""
        if (agent := self.agents.get(name)) is not None:
            agent.link += 1
            agent.inbox.clear()

    @rule(name=st.sampled_from(NAMES))
    def agent_does_what_it_is_told(self, name: str) -> None:
        if (agent := self.agents.get(name)) is not None:
            agent.hear()
            agent.finish(self.bad)

    @rule(name=st.sampled_from(NAMES))
    def agent_hears(self, name: str) -> None:
        if (agent := self.agents.get(name)) is not None:
            agent.hear()

    @rule(name=st.sampled_from(NAMES))
    def agent_finishes(self, name: str) -> None:
        if (agent := self.agents.get(name)) is not None:
            agent.finish(self.bad)

    @rule(name=st.sampled_from(NAMES))
    def engine_crashes(self, name: str) -> None:
        if (agent := self.agents.get(name)) is not None:
            agent.crash()

    @rule(name=st.sampled_from(NAMES), is_cordoned=st.booleans())
    def agent_is_cordoned_or_resumed(self, name: str, is_cordoned: bool) -> None:
        if (agent := self.agents.get(name)) is not None:
            agent.is_cordoned = is_cordoned

    @rule(name=st.sampled_from(NAMES), num_running=st.integers(0, 2))
    def requests_run(self, name: str, num_running: int) -> None:
        if (agent := self.agents.get(name)) is not None:
            agent.num_running = num_running

    @rule(model=st.sampled_from(MODELS), version=st.integers(1, 2), is_bad=st.booleans())
    def file_breaks_or_is_mended(self, model: str, version: int, is_bad: bool) -> None:
        source = f"file:///{model}-{version}.gguf"
        (self.bad.add if is_bad else self.bad.discard)(source)

    @rule(model=st.sampled_from(MODELS), is_waiting=st.booleans())
    def requests_wait(self, model: str, is_waiting: bool) -> None:
        if is_waiting:
            self.demands.setdefault(model, Demand(1, self.now))
        else:
            self.demands.pop(model, None)

    @rule(seconds=st.sampled_from([0.5, 2.0, 7.0, 35.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=st.sampled_from(NAMES))
    def operator_wants_another_try(self, name: str) -> None:
        if (agent := self.agents.get(name)) is not None:
            self.controller.retry(agent.report().id, self.now)
            self.forced.add(name)

    @rule()
    def balancer_is_restarted(self) -> None:
        self.controller = Controller(drain_timeout=30.0)
        self.controller.restored(self.wish, self.now)
        self.settled_at = self.now + SETTLE
        for agent in self.agents.values():
            agent.link += 1
            agent.inbox.clear()

    # ---- looks

    @invariant()
    def balancer_looks(self) -> None:
        if hasattr(self, "controller"):
            self.look()
            self.controller.check_integrity()

    def look(self) -> list[GiveOrder]:
        reports = [agent.report() for agent in self.agents.values()]
        before = {report.id: report for report in reports}
        if self.known - before.keys():
            self.missed_at = self.now
        self.known = set(before)
        demands = {
            model.name: self.demands[model.name]
            for model in self.wish.models
            if model.name in self.demands
        }
        told = self.controller.reconcile(reports, demands, self.now)
        assert len({each.agent for each in told}) == len(told), "told twice"
        for each in told:
            agent = self.agents[each.agent]
            assert before[each.agent].is_steered, "told somebody who decides for himself"
            wanted = each.order.assignment
            assert wanted is None or before[each.agent].may_serve(wanted.name), "its key forbids it"
            assert each.order.revision > agent.revision
            is_again = agent.phase == "failed" and agent.told == each.order.assignment
            is_same = agent.told == each.order.assignment and not agent.inbox
            assert not is_same or is_again or agent.link, "told what it does already"
        self._judge(told)
        self._judge_spare(told)
        for each in told:
            self._judge_failures(each)
            self.agents[each.agent].inbox.append(each.order)
            self.forced.discard(each.agent)
        return told

    def _judge(self, told: list[GiveOrder]) -> None:
        orders: dict[str, Assignment | None] = {each.agent: each.order.assignment for each in told}
        for model in self.wish.models:
            able = [
                agent
                for agent in self.agents.values()
                if not agent.is_cordoned and agent.report().serves == model.name
            ]
            left = [agent for agent in able if not self._is_interrupted(agent, orders)]
            if not able or left:
                continue
            taken = [agent for agent in able if agent.name in orders]
            if not taken:
                continue
            if self._is_unwanted(model):
                continue
            if all(agent.inbox or agent.phase == "loading" for agent in taken):
                continue  # what an earlier order took already
            assert len(able) == 1, f"{model.name} lost all of its agents"
            others = [
                agent.name
                for agent in self.agents.values()
                if agent not in able
                and not agent.is_cordoned
                and self._comes(agent, orders) == model.name
            ]
            assert not others, f"{model.name} lost its agent while another was loading it"

    def _judge_spare(self, told: list[GiveOrder]) -> None:
        """What nobody serves or loads waits for nobody who has gone while another is spare."""
        if self.now < max(self.settled_at, self.missed_at + REDIAL):
            return
        orders: dict[str, Assignment | None] = {each.agent: each.order.assignment for each in told}
        for model in self.wish.models:
            issues = self.controller.statuses[model.name].issues
            if self._is_unwanted(model) or issues:
                continue  # what an agent failed to do may not be tried again
            reports = [agent.report() for agent in self.agents.values()]
            if any(report.serves == model.name for report in reports):
                continue
            if model.name in {self._comes(agent, orders) for agent in self.agents.values()}:
                continue
            spare = [
                agent.name
                for agent in self.agents.values()
                if self._is_spare(agent, model) and agent.name not in orders
            ]
            assert not spare, f"{model.name} waits while {spare} are spare"

    def _is_spare(self, agent: SimulatedAgent, model: DesiredModel) -> bool:
        """Whether it has nothing to do and could serve the model."""
        report = agent.report()
        return (
            report.is_steered
            and report.may_serve(model.name)
            and model.agents.labels.items() <= report.labels.items()
            and not agent.inbox
            and agent.told is agent.runs is None
        )

    def _comes(self, agent: SimulatedAgent, orders: dict[str, Assignment | None]) -> str | None:
        """The model that it is about to serve."""
        target = agent.told if agent.phase == "loading" else None
        if agent.inbox:
            target = agent.inbox[-1].assignment
        target = orders.get(agent.name, target)
        return None if target is None else target.name

    def _judge_failures(self, told: GiveOrder) -> None:
        """What another agent failed to load is not given to one that serves."""
        agent = self.agents[told.agent]
        target = told.order.assignment
        if target is None or not agent.is_serving or agent.phase != "serving" or agent.inbox:
            return
        if agent.runs is None or not needs_reload(agent.runs, target, loaded_slots=4):
            return
        if agent.runs.name not in {model.name for model in self.wish.models}:
            return
        failed = [
            other.name
            for other in self.agents.values()
            if other.phase == "failed" and other.told == target and not self.forced
        ]
        assert not failed, f"{told.agent} is given what {failed} could not load"

    def _is_interrupted(self, agent: SimulatedAgent, orders: dict[str, Assignment | None]) -> bool:
        """Whether it stops serving at worst: by this order, or one on its way."""
        if agent.name in orders:
            target = orders[agent.name]
        elif agent.inbox:
            target = agent.inbox[-1].assignment
        else:
            return agent.phase == "loading"
        runs = agent.runs
        if target is None or runs is None:
            return True
        return (target.source, target.name) != (runs.source, runs.name)

    def _is_unwanted(self, model: DesiredModel) -> bool:
        """Whether the wish allows that nobody serves it."""
        return not model.preload or model.idle_timeout is not None or model.agents.replicas == 0

    # ---- rest

    def teardown(self) -> None:
        if not hasattr(self, "controller"):
            return
        self.demands.clear()
        for agent in self.agents.values():
            agent.num_running = 0
        self.now += SETTLE + HOLD + MIN_TURN
        self._come_to_rest()
        self._check_rest()

    def _come_to_rest(self) -> None:
        for _ in range(60):
            is_busy = bool(self.look())
            for agent in self.agents.values():
                agent.hear()
                is_busy |= agent.phase == "loading"
                agent.finish(self.bad)
            if not is_busy:
                return
            self.now += 0.1
        raise AssertionError("it does not come to rest")

    def _check_rest(self) -> None:
        wished = {model.name: model for model in self.wish.models}
        for agent in self.agents.values():
            if agent.is_cordoned or agent.runs is None or agent.told is None:
                continue
            if agent.phase == "serving":
                assert agent.runs.name in wished, "serves what nobody wishes"
        for model in self.wish.models:
            self._check_model(model)

    def _check_model(self, model: DesiredModel) -> None:
        status = self.controller.statuses[model.name]
        serving = [
            agent
            for agent in self.agents.values()
            if not agent.is_cordoned and agent.runs == model.assignment and agent.is_serving
        ]
        behind = [
            agent
            for agent in self.agents.values()
            if not agent.is_cordoned
            and agent.runs is not None
            and agent.is_serving
            and agent.runs.name == model.name
            and agent.runs != model.assignment
        ]
        if behind:
            assert status.issues, f"{model.name} is not what is wished for, and nobody says why"
        if not model.preload or model.idle_timeout is not None:
            return
        wanted = 1 if model.agents.replicas == "all" else model.agents.replicas
        if len(serving) < wanted:
            assert status.issues, f"{model.name} has too few agents, and nobody says why"
        if model.agents.replicas != "all":
            assert len(serving) + len(behind) <= wanted, f"{model.name} has too many agents"


ControllerMachine.TestCase.settings = settings(stateful_step_count=40)
TestControllerMachine = ControllerMachine.TestCase
