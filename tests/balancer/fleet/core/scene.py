"""A fleet and a clock for the tests of the core."""

from dataclasses import replace

from arriero.balancer.access.identity import Identity
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import Decision, Finish, LinkId, Send
from arriero.balancer.fleet.limits import Limits
from arriero.shared.errors import RequestError
from arriero.shared.inference import Failed, RequestId
from arriero.shared.messages import Cancel, Hello, Item, Start, Welcome
from tests.balancer.fleet.builders import delivered, hello, output, request

LIMITS = Limits(
    max_buffered_requests=8,
    buffered_request_timeout=30.0,
    first_token_timeout=20.0,
    token_timeout=10.0,
    request_timeout=300.0,
    heartbeat_interval=1.0,
    heartbeat_timeout=5.0,
)
NO_HEARTBEATS = Limits(
    buffered_request_timeout=30.0,
    first_token_timeout=20.0,
    token_timeout=10.0,
    request_timeout=300.0,
    heartbeat_interval=1e6,
    heartbeat_timeout=1e6,
)
A, B = LinkId(1), LinkId(2)


class Scene:
    """A fleet and a clock; each event is checked for integrity."""

    def __init__(self, limits: Limits = NO_HEARTBEATS, *, ticket_secret: bytes = b"") -> None:
        self.secrets: dict[str, str] = {}
        """Of agents by their ids: what they prove with that they are the same."""
        self.fleet = Fleet(limits, version="9.9", ticket_secret=ticket_secret)
        self.now = 100.0

    def _checked(self, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            if isinstance(decision, Finish):
                self.fleet.settle(decision.ending, self.now)
        self.fleet.check_integrity()
        return decisions

    def open(
        self, *ids: str, model: str | None = None, tell_waiting: float | None = None
    ) -> list[Decision]:
        decisions: list[Decision] = []
        for id in ids:
            decisions += self.fleet.request_arrived(
                RequestId(id), request(model), self.now, tell_waiting=tell_waiting
            )
        return self._checked(decisions)

    def close(self, id: str) -> list[Decision]:
        return self._checked(self.fleet.close(RequestId(id), self.now))

    def cancel(self, *ids: str) -> list[Decision]:
        return self._checked(self.fleet.cancel([RequestId(id) for id in ids], self.now))

    def join(
        self,
        link: LinkId,
        hello: Hello,
        *,
        holder: Identity | None = None,
        is_same: bool = True,
    ) -> list[Decision]:
        """An agent dials; with `is_same` it shows the secret that the last one of its id got."""
        if is_same:
            hello = replace(hello, secret=self.secrets.get(hello.agent_id))
        decisions = self.fleet.agent_joined(link, hello, self.now, holder)
        for decision in decisions:
            message = decision.message if isinstance(decision, Send) else None
            if isinstance(message, Welcome) and message.secret is not None:
                self.secrets[hello.agent_id] = message.secret
        return self._checked(decisions)

    def say(self, link: LinkId, *items: Item) -> list[Decision]:
        return self._checked(self.fleet.agent_said(link, output(*items), self.now))

    def leave(self, link: LinkId, *, hung_up: bool = False) -> list[Decision]:
        return self._checked(self.fleet.agent_left(link, self.now, hung_up=hung_up))

    def after(self, seconds: float) -> list[Decision]:
        self.now += seconds
        return self._checked(self.fleet.tick(self.now))

    def drain(self, within: float) -> list[Decision]:
        return self._checked(self.fleet.drain(self.now, self.now + within))


def with_agent(
    slots: int = 1, limits: Limits = NO_HEARTBEATS, fingerprint: str | None = None
) -> Scene:
    scene = Scene(limits)
    scene.join(A, hello("a1", slots=slots, fingerprint=fingerprint))
    return scene


def start(id: str, model: str | None = None) -> Start:
    return Start(id=RequestId(id), request=request(model))


def cancel(id: str) -> Cancel:
    return Cancel(id=RequestId(id))


def failure(decisions: list[Decision], id: str) -> RequestError:
    [event] = [event for request, event in delivered(decisions) if request == id]
    assert isinstance(event, Failed)
    return event.error
