from arriero.agent.generation.port import Ticket
from arriero.agent.link.decisions import (
    CancelGeneration,
    Close,
    Decision,
    DiscardGeneration,
    GiveUp,
)


def test_look_alikes_are_different() -> None:
    look_alikes: list[Decision] = [CancelGeneration(Ticket(1)), DiscardGeneration(Ticket(1))]
    assert len(set(look_alikes)) == 2
    ends: list[Decision] = [Close("x"), GiveUp("x")]
    assert len(set(ends)) == 2
