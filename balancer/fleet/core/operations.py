"""What operators do to the fleet, what other balancers tell, and what a start remembers of it."""

from collections.abc import Collection, Iterable, Mapping

from ....shared.errors import NotFound
from ....shared.inference import AgentId, RequestId
from ....shared.messages import ReadLog, Withdraw
from ...control.demand import Demand
from ...control.desired_state import DesiredState
from ..decisions import Decision
from ..registry import Agent
from ..view import Cordon, ToldCordon
from .fleet_clock import FleetClock


class Operations(FleetClock):
    """Every method returns decisions, to be carried out in their order."""

    # ---- operators

    def wished(self, wish: DesiredState, now: float) -> list[Decision]:
        """The fleet should serve this from now on."""
        decisions = self._due(now)
        self._steering.wished(wish, now)
        return [*decisions, *self._renamed(now)]

    def restored(self, wish: DesiredState, now: float) -> list[Decision]:
        """The fleet should serve this, and did so before the balancer started."""
        decisions = self._due(now)
        self._steering.restored(wish, now)
        return [*decisions, *self._renamed(now)]

    def _renamed(self, now: float) -> list[Decision]:
        """What came before its alias follows it."""
        aliases = self._state.models.aliases
        requests = self._state.requests.renamed(aliases, now)
        return [*requests, *self._state.dispatcher.renamed(aliases, now)]

    def recall_models(self, names: Iterable[str], now: float) -> None:
        """These were served before the balancer started; no agent is here yet."""
        self._state.models.recalled(names, now)

    def restore_cordons(self, cordons: Iterable[Cordon]) -> None:
        """These were there before the balancer started, oldest first; no agent is here yet."""
        self._steering.cordons.restored(cordons)

    def cordon(self, id: AgentId, within: float | None, now: float) -> list[Decision]:
        """Give an agent no new work; what it still runs moves after `within` seconds, if given.

        Raises `NotFound`, as the others do.
        """
        agent = self._connected(id)
        deadline = None if within is None else now + within
        return [*self._due(now), *self._steering.cordon(agent, deadline, now)]

    def resume(self, id: AgentId, now: float) -> list[Decision]:
        """Give an agent work again."""
        agent = self._connected(id)
        return [*self._due(now), *self._steering.resume(agent, now)]

    def reload(self, id: AgentId, drain_timeout: float, now: float) -> list[Decision]:
        """Have an agent load its model anew; its requests may go on for `drain_timeout`."""
        agent = self._connected(id)
        return [*self._due(now), *self._steering.reload(agent, drain_timeout, now)]

    def read_log(
        self, id: RequestId, agent_id: AgentId, after: int, now: float, *, wait: bool = False
    ) -> list[Decision]:
        """Ask an agent for the lines of its log with numbers above `after`: a `ShowLog` follows.

        With `wait` it follows as soon as there are some. If the agent goes, a `LogLost` follows.
        Raises `NotFound`.
        """
        decisions = self._due(now)
        agent = self._connected(agent_id)
        self._state.log_readers.asked(id, agent.link)
        read = ReadLog(id=id, after=after, wait=wait)
        return [*decisions, self._state.registry.send(agent.link, read, now)]

    def stop_reading_log(self, id: RequestId, now: float) -> list[Decision]:
        """Nobody waits for these lines any more, if somebody did."""
        if (link := self._state.log_readers.ended(id)) is None:
            return []
        withdrawn = self._state.registry.send(link, Withdraw(id=id), now)
        return [*self._due(now), withdrawn]

    # ---- other balancers over the same store

    def lead(self, epoch: int, now: float) -> list[Decision]:
        """Give agents their orders from now on; see `control.order_numbers`."""
        self._steering.lead(epoch, now)
        return self._due(now)

    def follow(self) -> None:
        """Another balancer gives agents their orders, or none does."""
        self._steering.follow()

    def others(self, num_live: int, demands: Mapping[str, Demand], now: float) -> list[Decision]:
        """So many balancers live, this one among them, and others' requests wait for this."""
        self._admission.shared_by(num_live)
        self._steering.others_wait(demands, now)
        return self._due(now)

    def retry_agent(self, id: AgentId, now: float) -> list[Decision]:
        """An operator at another balancer wants an agent to try again; well if it is not here."""
        if (link := self._state.registry.link_of(id)) is not None:
            self._steering.retry(self._state.registry[link], now)
        return self._due(now)

    def take_up_cordons(self, told: Collection[ToldCordon], now: float) -> list[Decision]:
        """These are all that there are, as operators of other balancers want it."""
        return [*self._due(now), *self._steering.take_up_cordons(told, now)]

    # ---- inside

    def _connected(self, id: AgentId) -> Agent:
        link = self._state.registry.link_of(id)
        if link is None:
            raise NotFound(f"no agent `{id[:100]}` is connected")
        return self._state.registry[link]
