"""The two servers of a comparison as processes: the same model, slots, context and threads."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench import peer
from bench.client import Client
from bench.dialects import LLAMA_SERVER, NATIVE
from integration_tests.daemons import BIN, Daemon, Fleet


@dataclass(frozen=True, slots=True)
class Load:
    """What is served. `context_size` is the ceiling of one slot, in tokens."""

    model: Path
    slots: int
    context_size: int
    threads: int


@dataclass(frozen=True, slots=True)
class Side:
    """One server that is ready, and the processes it consists of."""

    client: Client
    daemons: tuple[Daemon, ...]
    url: str

    @property
    def commands(self) -> list[str]:
        """The command lines, to be stored with the results."""
        return [" ".join(daemon.command) for daemon in self.daemons]


async def start_ours(
    stack: AsyncExitStack, load: Load, *, programs: Path = BIN, **settings: object
) -> Side:
    """Balancer and agent, with further `settings`; the client talks to the balancer.

    `programs` is the folder of both daemons' programs.
    """
    fleet = Fleet(stack, programs)
    balancer = await fleet.start_balancer()
    agent = await fleet.start_agent(
        model=load.model,
        slots=load.slots,
        context_size=load.context_size,
        threads=load.threads,
        **settings,
    )
    host, _, port = balancer.ready["inference"].rpartition(":")
    return Side(Client(host, int(port), NATIVE), (balancer, agent), fleet.inference)


async def start_theirs(
    stack: AsyncExitStack, load: Load, *, repacks: bool = True, options: Sequence[str] = ()
) -> Side:
    """llama-server with its defaults and `options`; its context is that of all slots together.

    One that does not repack weights is the one that users of processors with AMX have to run: the
    stock build crashes there otherwise.
    """
    daemon = await Daemon.start(
        str(peer.built()),
        *("--model", str(load.model)),
        *("--parallel", str(load.slots)),
        *("--ctx-size", str(load.slots * load.context_size)),
        *("--threads", str(load.threads)),
        *("--host", "127.0.0.1", "--port", "0"),
        *(() if repacks else ("--no-repack",)),
        *options,
    )
    stack.push_async_callback(daemon.close)
    line = await daemon.until_line(daemon.stderr, "listening on ")
    url = urlsplit(line.rpartition("listening on ")[2].strip())
    if url.hostname is None or url.port is None:
        raise RuntimeError(f"llama-server does not say where it listens: {line}")
    client = Client(url.hostname, url.port, LLAMA_SERVER)
    return Side(client, (daemon,), f"http://{url.netloc}")
