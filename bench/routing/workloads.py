"""What clients ask: chats, prompts that share a beginning, agents' loops, nothing in common.

A client sends its conversation's turns one after the other, each when the answer to the one before
has come and a pause is over. Everything is drawn from a seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from arriero.shared.inference import ChatMessage

WORDS = (
    *("llama", "mountain", "rope", "salt", "path", "wool", "river", "stone", "maize", "night"),
    *("condor", "bridge", "market", "drum", "snow", "herd", "valley", "trade", "bell", "mule"),
)
WORD_BYTES = 6
"""About; a token of text is counted as four bytes."""


@dataclass(frozen=True, slots=True)
class Turn:
    """`added` messages, then an answer of `num_tokens`, `pause` seconds after the one before."""

    added: tuple[ChatMessage, ...]
    num_tokens: int
    pause: float


@dataclass(slots=True)
class Conversation:
    """Turns that are sent with all that was before."""

    turns: tuple[Turn, ...]
    begins_at: float = 0.0
    messages: list[ChatMessage] = field(default_factory=list)


def _text(random: Random, num_tokens: int) -> str:
    return " ".join(random.choices(WORDS, k=max(1, num_tokens * 4 // WORD_BYTES)))


def _said(random: Random, num_tokens: int, role: str = "user") -> ChatMessage:
    return ChatMessage(role=role, content=_text(random, num_tokens))  # type: ignore[arg-type]


def chats(random: Random) -> list[Conversation]:
    """People who talk: a short instruction, and histories that grow by a hundred tokens a turn."""
    system = _said(random, 60, "system")

    def turns() -> tuple[Turn, ...]:
        first = Turn((system, _said(random, 200)), 40, 0.0)
        more = [Turn((_said(random, 100),), 40, random.expovariate(1 / 8)) for _ in range(7)]
        return (first, *more)

    return [Conversation(turns(), random.uniform(0, 30)) for _ in range(30)]


def shared(random: Random) -> list[Conversation]:
    """Twelve long instructions, more than a cache holds, and short questions to each."""
    systems = [_said(random, 1500, "system") for _ in range(12)]

    def turn() -> Turn:
        return Turn((random.choice(systems), _said(random, 30)), 20, 0.0)

    return _one_by_one(random, turn)


def _one_by_one(random: Random, turn: Callable[[], Turn]) -> list[Conversation]:
    """Questions that come by chance, over a minute."""
    return [Conversation((turn(),), random.uniform(0, 60)) for _ in range(120)]


def loops(random: Random) -> list[Conversation]:
    """Programs that call tools: the same tools, a task of each, results that come at once."""
    system = _said(random, 500, "system")

    def turns() -> tuple[Turn, ...]:
        first = Turn((system, _said(random, 1000)), 30, 0.0)
        more = [Turn((_said(random, 150),), 30, 0.2) for _ in range(19)]
        return (first, *more)

    return [Conversation(turns(), random.uniform(0, 30)) for _ in range(10)]


def unrelated(random: Random) -> list[Conversation]:
    """Prompts that have nothing in common."""
    return _one_by_one(
        random,
        lambda: Turn((_said(random, 200),), 30, 0.0),
    )


WORKLOADS: dict[str, Callable[[Random], list[Conversation]]] = {
    "chats": chats,
    "shared": shared,
    "loops": loops,
    "unrelated": unrelated,
}
"""Each is drawn from a source of chance."""
