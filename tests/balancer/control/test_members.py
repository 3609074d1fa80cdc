from dataclasses import replace

from arriero.balancer.control.members import Order, all_have_dialled, member_of
from arriero.shared.inference import AgentId
from arriero.shared.models.assignments import Device, HostFacts, Work
from tests.balancer.control.builders import GIB, report, wished

OLD = wished("m", 1).assignment
NEW = wished("m", 2).assignment


def order(revision: int = 2, interrupts: str | None = "m") -> Order:
    return Order(revision=revision, assignment=NEW, link=1, interrupts=interrupts)


def test_what_an_agent_was_told_counts_before_it_says_so() -> None:
    member = member_of(report("a", told=OLD), order())
    assert (member.assigned, member.is_changing, member.model) == (NEW, True, "m")
    assert member.interrupts == "m"


def test_without_an_order_the_agent_is_taken_at_its_word() -> None:
    member = member_of(report("a", told=OLD), None)
    assert (member.assigned, member.is_changing, member.interrupts) == (OLD, False, None)


def test_an_agent_that_loads_is_taken_for_one_that_was_interrupted_if_nobody_knows_better() -> None:
    loading = report("a", told=OLD, phase="loading")
    assert member_of(loading, None).interrupts == "m"
    assert member_of(loading, order(revision=1, interrupts=None)).interrupts is None


def test_an_agent_that_failed_counts_for_what_it_serves() -> None:
    member = member_of(report("a", told=NEW, phase="failed", serves="n"), None)
    assert (member.has_failed, member.model) == (True, "n")


def test_a_pinned_agent_counts_for_its_own_model_and_is_not_steered() -> None:
    pinned = report("a", facts=HostFacts(is_pinned=True), serves="m")
    assert member_of(pinned, None).model == "m"
    assert not pinned.is_steered
    assert not report("a", is_cordoned=True).is_steered


def test_an_agent_that_unloads_is_changing() -> None:
    work = Work(revision=3, assignment=None, phase="draining")
    assert member_of(report("a", work=work), None).is_changing


def test_memory_is_that_of_the_host_and_its_devices() -> None:
    devices = (Device(name="gpu", memory=8 * GIB),)
    assert report("a", facts=HostFacts(memory=4 * GIB, devices=devices)).memory == 12 * GIB


def test_all_agents_of_a_host_have_dialled_when_as_many_are_here_as_they_say() -> None:
    alone, first, second = (
        report("a"),
        replace(report("b"), host=AgentId("h")),
        replace(report("c"), host=AgentId("h"), num_places=2),
    )
    assert all_have_dialled([])
    assert all_have_dialled([alone, first])
    assert not all_have_dialled([alone, second])
    assert all_have_dialled([alone, second, first])
    assert not all_have_dialled([replace(alone, num_places=3), first])
