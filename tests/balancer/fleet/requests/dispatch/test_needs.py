"""Keys of requests that not every agent can serve."""

from arriero.balancer.fleet.requests.dispatch.needs import MAX_UNUSED, Needs
from arriero.balancer.fleet.requests.routing import Able, ByText
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.inference.abilities import ABILITIES

SCORED = GenerateRequest(prompt="a", model="m", logprobs=True)
PLAIN = GenerateRequest(prompt="a", model="m")
KEY = Able("m", ("logprobs",))
FEW = ABILITIES - {"logprobs", "gbnf"}
R = RequestId("r")


def test_as_long_as_all_agents_can_do_everything_there_are_no_keys() -> None:
    needs = Needs()
    assert not needs.seen(ABILITIES)
    assert needs.key_of(SCORED) is None


def test_a_request_has_a_key_for_what_some_agent_lacks() -> None:
    needs = Needs()
    assert needs.seen(FEW)
    assert not needs.seen(FEW)
    assert not needs.seen(ABILITIES)
    assert needs.key_of(SCORED) == KEY
    assert needs.key_of(PLAIN) is None


def test_agents_offer_the_keys_of_those_who_are_here() -> None:
    needs = Needs()
    needs.seen(FEW)
    assert needs.came(R, KEY)
    assert not needs.came(RequestId("r2"), KEY)
    assert needs.keys_for("m", ABILITIES) == (KEY,)
    assert needs.keys_for("m", FEW) == ()
    assert needs.keys_for("other", ABILITIES) == ()
    anyones = Able(None, ("logprobs",))
    assert needs.came(RequestId("r3"), anyones)
    assert needs.keys_for("other", ABILITIES) == (anyones,)
    needs.check_integrity()


def test_answers_that_go_on_by_text_are_offered_to_those_who_go_on_with_them() -> None:
    needs = Needs()
    by_text = ByText("m", ("prompt",), "f")
    assert needs.came(R, by_text)
    assert needs.keys_for("m", ABILITIES, lambda origin: origin == "f") == (by_text,)
    assert needs.keys_for("m", ABILITIES, lambda origin: origin == "g") == ()
    assert needs.keys_for("m", ABILITIES - {"prompt"}, lambda _: True) == ()
    assert needs.keys_for("other", ABILITIES, lambda _: True) == ()
    needs.check_integrity()


def test_only_so_many_keys_are_kept_that_nobody_needs() -> None:
    needs = Needs()
    needs.seen(frozenset())
    needs.came(R, KEY)
    for number in range(3 * MAX_UNUSED):
        needs.came(RequestId("other"), Able(f"m{number}", ("gbnf",)))
        needs.check_integrity()
    assert len(needs) <= MAX_UNUSED + 2
    assert needs.keys_for("m", ABILITIES) == (KEY,)
    needs.left(R)
    needs.left(R)
    needs.check_integrity()
