from dataclasses import replace

from arriero.balancer.control.members import Member, member_of
from arriero.balancer.control.whereabouts import Obstacle, placement_in_words
from arriero.shared.inference import AgentId
from arriero.shared.models.assignments import HostFacts
from tests.balancer.control.builders import GIB, report


def host(name: str, gib: int = 8, *, host: str | None = None) -> Member:
    told = replace(report(name, facts=HostFacts(memory=gib * GIB)), host=host and AgentId(host))
    return member_of(told, None)


def said(
    chosen: list[Member],
    *others: tuple[Member, Obstacle],
    needed: int | None = None,
    failed_with: dict[str, str] | None = None,
) -> str:
    members = {each.id: each for each in (*chosen, *(member for member, _ in others))}
    return placement_in_words(
        chosen,
        {member.id: obstacle for member, obstacle in others},
        members,
        needed=needed,
        failed_with={AgentId(id): code for id, code in (failed_with or {}).items()},
    )


def test_where_it_is() -> None:
    assert said([host("a")]) == "on a"
    assert said([host("a"), host("b")], needed=9 * GIB) == "on a and b (9.0 GiB)"
    many = [host(name) for name in "abcde"]
    assert said(many) == "on a, b, c and 2 more"


def test_why_it_is_nowhere() -> None:
    assert said([]) == "on no agent"
    small = [(host("a", 8), "memory"), (host("b", 6), "memory")]
    assert said([], *small, needed=9 * GIB) == (  # type: ignore[arg-type]
        "on no agent (9.0 GiB); not on a and b, each of which has at least 1.0 GiB too little"
    )


def test_why_it_is_not_elsewhere() -> None:
    assert said(
        [host("tower", 24)],
        (host("laptop"), "memory"),
        (host("attic"), "failed"),
        (host("cellar"), "failed"),
        (host("office"), "labels"),
        needed=9 * GIB,
        failed_with={"attic": "does_not_fit", "cellar": "too_large", "gone": "x"},
    ) == (
        "on tower (9.0 GiB); not on laptop, which has 1.0 GiB too little; not on attic and cellar, "
        "where it failed (does_not_fit, too_large); not on office, without its labels"
    )


def test_the_agents_of_a_host_are_one() -> None:
    serving, spare = host("a", host="h"), host("a", host="h")
    spare = replace(spare, report=replace(spare.report, id=AgentId("spare")))
    assert said([serving], (spare, "busy")) == "on a"
    assert said([], (serving, "key"), (spare, "key")) == (
        "on no agent; not on a, whose key does not allow it"
    )
