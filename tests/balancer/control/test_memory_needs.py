from arriero.balancer.control.members import AgentReport
from arriero.balancer.control.memory_needs import MAX_KNOWN, MemoryNeeds
from arriero.shared.models.assignments import Assignment, HostFacts, Work
from tests.balancer.control.builders import GIB, report, wished

MODEL = wished("m", slots=4).assignment


def told(assignment: Assignment, needed: int | None) -> AgentReport:
    return report("a", work=Work(revision=1, assignment=assignment, needed=needed))


def test_what_one_agent_estimated_holds_for_the_others() -> None:
    needs = MemoryNeeds()
    small = report("b", facts=HostFacts(memory=4 * GIB))
    assert needs.fits(MODEL, small)
    needs.learn(told(MODEL, 5 * GIB))
    assert needs.of(MODEL) == 5 * GIB
    assert not needs.fits(MODEL, small)
    assert needs.fits(MODEL, report("c", facts=HostFacts(memory=5 * GIB)))
    assert needs.fits(MODEL, report("d")), "an agent that does not say what it has may try"


def test_other_slots_are_another_need() -> None:
    needs = MemoryNeeds()
    needs.learn(told(MODEL, 5 * GIB))
    assert needs.of(wished("m", slots=8).assignment) is None
    assert needs.of(wished("m", slots=4, chat_template="t").assignment) == 5 * GIB


def test_it_remembers_so_many() -> None:
    needs = MemoryNeeds()
    for number in range(MAX_KNOWN + 1):
        needs.learn(told(wished("m", number).assignment, 1))
    needs.learn(told(MODEL, None))
    assert needs.of(wished("m", 0).assignment) is None
    assert needs.of(wished("m", MAX_KNOWN).assignment) == 1
