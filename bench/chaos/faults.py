"""The kinds of faults: whom each strikes, how long it lasts, and what it may cost a client."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

Target = str
"""`agent`, `agents`, `balancer`, `client`, `rogue`, `clock` or `disk`."""


class Need(Enum):
    """What a kind needs of the machine; the values are what is said where it is missing."""

    NETWORK = "network namespaces and /dev/net/tun (root, or user namespaces)"
    DISK = "a file system of its own (root, or user namespaces)"
    CLOCK = "a C compiler (cc)"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault.

    `shortest`, `longest`: how long it lasts, in seconds; both 0 for a blow.
    `pause`, `pause_rate`: the silence that it may add to a client's answer, in seconds, and for
    each second that it lasts.
    `errors`: codes with which a request may end that it touched.
    `breaks`: connections of clients may break, or be refused.
    `loses`: so many times a request may lose its agent by it.
    """

    name: str
    target: Target
    what: str
    shortest: float = 0.0
    longest: float = 0.0
    pause: float = 0.0
    pause_rate: float = 0.0
    errors: frozenset[str] = frozenset()
    breaks: bool = False
    loses: int = 0
    needs: Need | None = None

    def allowed_pause(self, lasted: float) -> float:
        """The silence that it may add when it lasted so long."""
        return self.pause + self.pause_rate * lasted


HEARTBEAT_TIMEOUT = 1.5
"""After so long a silence the balancer of a run takes an agent for lost."""

DETECTED = HEARTBEAT_TIMEOUT + 1.0
"""A silent agent is noticed, and its requests run on other agents, with prompt and tokens
computed."""

LEAVING = frozenset(["shutting_down"])
NETWORK, DISK, CLOCK = Need.NETWORK, Need.DISK, Need.CLOCK

KINDS = (
    Kind("kill-engine", "agent", "SIGKILL to the engine process", pause=1.0, loses=1),
    Kind("kill-agent", "agent", "SIGKILL to supervisor and engine", pause=1.0, loses=1),
    Kind(
        *("kill-all", "agents", "SIGKILL to all agents at once; they start again"),
        *(0.2, 1.5),
        pause=12.0,
        pause_rate=1.0,
        loses=2,
    ),
    Kind(
        *("stop-agent", "agent", "SIGSTOP to both processes, then SIGCONT", 0.3, 4.0),
        pause=DETECTED,
        loses=1,
    ),
    Kind(
        *("stop-engine", "agent", "SIGSTOP to the engine process, then SIGCONT", 0.3, 4.0),
        pause=DETECTED,
        loses=1,
    ),
    Kind(
        *("stop-supervisor", "agent", "SIGSTOP to the supervisor, then SIGCONT", 0.3, 4.0),
        pause=0.0,
        loses=1,
    ),
    Kind("term-agent", "agent", "SIGTERM; started again after its end", pause=1.0, loses=1),
    Kind("term-storm", "agent", "five SIGTERMs at once; started again", pause=1.0, loses=1),
    Kind(
        *("rolling", "agents", "SIGTERM to one agent after the other, each started again"),
        pause=1.0,
        loses=3,
    ),
    Kind(
        *("restart-balancer", "balancer", "SIGTERM; started again after its end"),
        pause=1.0,
        pause_rate=1.0,
        errors=LEAVING,
        breaks=True,
    ),
    Kind(
        *("kill-balancer", "balancer", "SIGKILL; started again"),
        pause=1.0,
        pause_rate=1.0,
        errors=LEAVING,
        breaks=True,
    ),
    Kind(
        *("stop-balancer", "balancer", "SIGSTOP, then SIGCONT", 0.3, 4.0),
        pause=1.0,
        pause_rate=1.0,
        loses=1,
    ),
    Kind("vanish", "client", "a client closes, resets or half-closes in its answer"),
    Kind("stop-reading", "client", "a client reads nothing more of a long answer", 6.0, 8.0),
    Kind(
        *(
            "rogue-client",
            "client",
            "clients that flood sockets and send what is costly to read, compile or hold",
            1.0,
            4.0,
        ),
        pause=0.5,
    ),
    Kind(
        *("rogue-agent", "rogue", "an agent that keeps silent, lies or floods", 1.0, 4.0),
        pause=DETECTED,
        pause_rate=1.0,
        loses=1,
    ),
    Kind("ghost", "client", "a client's host is gone without a word", needs=NETWORK),
    Kind(
        *("part-client", "client", "no packet to or from the clients", 0.3, 2.0),
        pause=1.0,
        pause_rate=2.0,
        needs=NETWORK,
    ),
    Kind(
        *("partition", "agent", "no packet between an agent and the balancer", 0.5, 4.0),
        pause=DETECTED,
        loses=1,
        needs=NETWORK,
    ),
    Kind(
        *("partition-to", "agent", "no packet to an agent, all from it", 0.5, 4.0),
        pause=DETECTED,
        loses=1,
        needs=NETWORK,
    ),
    Kind(
        *("partition-from", "agent", "no packet from an agent, all to it", 0.5, 4.0),
        pause=DETECTED,
        loses=1,
        needs=NETWORK,
    ),
    Kind(
        *("power-off", "agent", "an agent's host is gone without a word, and comes back", 0.5, 3.0),
        pause=DETECTED,
        loses=1,
        needs=NETWORK,
    ),
    Kind(
        *("delay", "agent", "50 to 400 ms each way", 1.0, 4.0),
        pause=DETECTED,
        loses=1,
        needs=NETWORK,
    ),
    Kind(
        *("loss", "agent", "2 to 20 % of packets each way", 1.0, 4.0),
        pause=DETECTED,
        loses=1,
        needs=NETWORK,
    ),
    Kind(
        *("bandwidth", "agent", "4 to 30 kB/s each way", 1.0, 4.0),
        pause=DETECTED,
        loses=1,
        needs=NETWORK,
    ),
    Kind(
        *("disk-full", "disk", "no byte left for --state and --cache-dir", 1.0, 4.0),
        pause=0.5,
        needs=DISK,
    ),
    Kind(
        *("clock", "clock", "the wall clock of all daemons jumps by up to a day", 0.5, 2.0),
        needs=CLOCK,
    ),
    Kind(
        *("files", "balancer", "the balancer may open no more files", 0.5, 4.0),
        pause=1.0,
        pause_rate=1.0,
        errors=frozenset(["overloaded"]),
        breaks=True,
    ),
    Kind(
        *("memory", "agent", "the engine process may take no more memory", 0.5, 2.0),
        pause=1.5,
        errors=frozenset(["engine_failed", "internal_error"]),
        loses=1,
    ),
)
"""All kinds; the order is that of tables."""

BY_NAME = {kind.name: kind for kind in KINDS}


def chosen(names: Iterable[str]) -> tuple[Kind, ...]:
    """The kinds of these names. Raises `ValueError` that names one that there is not."""
    found = []
    for name in names:
        if name not in BY_NAME:
            raise ValueError(f"there is no fault {name!r}; there are {', '.join(BY_NAME)}")
        found.append(BY_NAME[name])
    return tuple(found)


def possible(kinds: Iterable[Kind], has: frozenset[Need]) -> tuple[Kind, ...]:
    """Those that a machine with what it `has` can try."""
    return tuple(kind for kind in kinds if kind.needs is None or kind.needs in has)
