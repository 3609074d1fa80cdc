"""Two agents are drawn, and the one with the smaller share of taken slots gets the request."""

from collections import Counter

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.policies.two_choices import TwoChoices
from arriero.balancer.fleet.routing.policy import Load
from arriero.shared.inference.prefix_chain import NO_CHAIN

SLOTS = 100
LINKS = [LinkId(number) for number in range(10)]


def load(running: int) -> Load:
    return Load(running=running, slots=SLOTS, has_free_slot=running < SLOTS)


def fleet(models: dict[LinkId, str | None]) -> TwoChoices:
    made = TwoChoices()
    for link, model in models.items():
        made.agent_is(link, model, 1000)
        made.check_integrity()
    return made


def chosen(made: TwoChoices, loads: dict[LinkId, Load], free: LinkId | None) -> LinkId | None:
    choice = made.choose(NO_CHAIN, load_of=loads.get, free=free)
    return None if choice is None else choice.link


def test_idle_agents_are_drawn_alike() -> None:
    made = fleet(dict.fromkeys(LINKS, "m"))
    idle = dict.fromkeys(LINKS, load(0))
    counts = Counter(chosen(made, idle, LINKS[0]) for _ in range(1000))
    assert counts.keys() == set(LINKS)
    assert max(counts.values()) < 2 * min(counts.values())


def test_the_less_busy_of_two_is_taken() -> None:
    made = fleet(dict.fromkeys(LINKS, "m"))
    loads = {link: load(number) for number, link in enumerate(LINKS)}
    counts = Counter(chosen(made, loads, LINKS[0]) for _ in range(1000))
    assert counts[LINKS[-1]] == 0
    assert counts[LINKS[0]] > 2 * counts[LINKS[5]] > 0


def test_what_is_given_in_turn_stays_even() -> None:
    """One random draw would leave about 30 between the most and the least busy."""
    made = fleet(dict.fromkeys(LINKS, "m"))
    running = dict.fromkeys(LINKS, 0)
    for _ in range(500):
        link = chosen(made, {link: load(num) for link, num in running.items()}, LINKS[0])
        assert link is not None
        running[link] += 1
    assert max(running.values()) - min(running.values()) <= 5


def test_the_free_one_is_taken_if_those_drawn_have_no_slot_or_are_not_eligible() -> None:
    made = fleet(dict.fromkeys(LINKS, "m"))
    full = {**dict.fromkeys(LINKS, load(SLOTS)), LINKS[3]: load(99)}
    assert {chosen(made, full, LINKS[3]) for _ in range(100)} == {LINKS[3]}
    assert {chosen(made, {LINKS[3]: load(99)}, LINKS[3]) for _ in range(100)} == {LINKS[3]}
    assert chosen(made, full, None) is None


def test_only_agents_of_the_same_model_are_drawn() -> None:
    a, b, c, d = LINKS[:4]
    made = fleet({a: "m", b: "m", c: "n", d: None})
    idle = dict.fromkeys(LINKS, load(0))
    assert {chosen(made, idle, a) for _ in range(100)} == {a, b}
    assert chosen(made, idle, c) == c
    made.agent_is(b, "n", 1000)
    assert chosen(made, idle, a) == a
    assert {chosen(made, idle, c) for _ in range(100)} == {b, c}
    made.agent_left(c)
    made.agent_left(d)
    made.check_integrity()
    assert chosen(made, idle, b) == b
