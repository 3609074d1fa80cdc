"""What is known of a server once it was tried: which requests it gets, and how they are sent."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ....shared.inference.abilities import ABILITIES, Ability
from ....shared.reports.model_info import ModelInfo, Task, Upstream
from .bodies import Server
from .continuing import fingerprint_of
from .dialects import Dialect
from .listing import ListedModel
from .probes import Probe

OLD_NAMES: Mapping[str, str] = {"max_tokens": "max_completion_tokens"}
"""What newer models of OpenAI call fields."""

_TOKENS: frozenset[Ability] = frozenset(("tokenize", "detokenize"))
_COUNTS: frozenset[Ability] = frozenset(("count_tokens",))


def wants_new_names(message: str) -> bool:
    """Whether a server's refusal says that it calls `max_tokens` otherwise."""
    return OLD_NAMES["max_tokens"] in message


def with_new_names(probe: Probe) -> Probe:
    """The same probe, in the words of such a server."""
    body = {OLD_NAMES.get(name, name): value for name, value in probe.body.items()}
    return replace(probe, body=body)


def server_of(
    model: ListedModel, dialect: Dialect, shown: Collection[str], *, has_new_names: bool
) -> Server:
    """The server, of which probes have `shown` something."""
    return Server(
        dialect=dialect,
        model=model.id,
        abilities=_abilities(dialect, shown),
        counts_at_end="counts" in shown,
        renamed=OLD_NAMES if has_new_names else {},
        refused=frozenset() if "seed" in shown else frozenset(("seed",)),
        embeds="embed" in shown,
    )


def _abilities(dialect: Dialect, shown: Collection[str]) -> frozenset[Ability]:
    tried = frozenset(each for each in ABILITIES if each in shown)
    tokens = _TOKENS if dialect.tokenizer is not None else frozenset()
    counts = _COUNTS if dialect.counter is not None else frozenset()
    return tried | dialect.abilities | tokens | counts


def info_of(server: Server, model: ListedModel, name: str, address: str) -> ModelInfo:
    """What balancers hear: the model under the `name` that clients use."""
    tasks: tuple[Task, ...] = ()
    if server.abilities & {"messages", "prompt"}:
        tasks += ("generate",)
    if server.abilities >= {"messages", "vision"}:
        tasks += ("vision",)
    if server.abilities >= {"messages", "audio"}:
        tasks += ("audio",)
    if server.embeds:
        tasks += ("embed",)
    return ModelInfo(
        name=name,
        architecture=server.dialect.kind,
        parameters=0,
        size_bytes=0,
        context_size=model.context_size,
        tasks=tasks,
        fingerprint=fingerprint_of(server, model),
        upstream=Upstream(
            kind=server.dialect.kind, address=address, abilities=tuple(sorted(server.abilities))
        ),
    )
