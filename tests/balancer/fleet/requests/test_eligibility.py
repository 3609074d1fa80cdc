from dataclasses import replace

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.requests.eligibility import (
    MAX_UNUSED,
    Able,
    ByText,
    Engine,
    Offer,
    UncommonNeeds,
    by_text_of,
    model_of,
)
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.token_estimate import charge_of
from arriero.shared.inference import ChatMessage, GenerateRequest, RequestId
from arriero.shared.inference.abilities import ABILITIES
from arriero.shared.inference.prefix_chain import chain_of
from tests.balancer.fleet.builders import request

ALICE = Caller("alice")


def made(sent: GenerateRequest, caller: Caller = ALICE) -> Request:
    return Request(RequestId("r"), sent, Limits(), 0.0, caller=caller)


def test_what_is_known_of_a_text() -> None:
    sent = request("llama")
    assert (made(sent).chain, made(sent).expected_charge) == (chain_of(sent), charge_of(sent))
    assert made(replace(sent, max_tokens=7)).most_answer == 7
    assert made(replace(sent, prefill_only=True)).most_answer == 0


def test_the_sign_of_the_priority_is_the_class() -> None:
    assert made(replace(request(), priority=-7)).kind == "batch"


def test_a_cache_key_is_of_one_caller_and_one_model() -> None:
    def key(caller: Caller = ALICE, **fields: str) -> int | None:
        return made(replace(request("llama"), **fields), caller).cache_key  # type: ignore[arg-type]

    assert key() is key(prompt_cache_key="") is None
    assert key(cache_key="manual") == key(prompt_cache_key="manual") == key(cache_key="manual")
    others = {
        key(cache_key="manual"),
        key(cache_key="guide"),
        key(cache_key="manual", model="alpaca"),
        key(Caller("bob"), cache_key="manual"),
        key(Caller(address="10.0.0.1"), cache_key="manual"),
        key(Caller(address="10.0.0.2"), cache_key="manual"),
    }
    assert len(others) == 6


def test_what_an_agent_offers() -> None:
    offer = Offer(model="llama", slots=1, fingerprint="abc")
    assert offer.keys == (None, "llama", Engine("llama", "abc"))
    assert replace(offer, fingerprint=None).keys == (None, "llama")
    assert replace(offer, model=None).keys == ()
    assert offer.is_able
    for useless in ({"model": None}, {"slots": 0}, {"is_accepting": False}):
        assert not replace(offer, **useless).is_able  # type: ignore[arg-type]


def test_an_answer_that_has_begun_wants_the_engine_that_began_it() -> None:
    begun = made(request("llama"))
    assert begun.queue_key == "llama"
    begun.bound_to = Engine("llama", "abc")
    assert begun.queue_key == Engine("llama", "abc")
    assert Engine("llama", "abc") != ("llama", "abd")


def test_who_goes_on_by_text_has_the_model_and_can_do_what_the_request_needs() -> None:
    text = by_text_of(replace(request(), top_k=3), "llama", "f")
    assert text == ByText("llama", ("prompt", "top_k"), "f")
    assert model_of(text) == "llama"
    chat = GenerateRequest(messages=(ChatMessage(role="user", content="hi"),), model="llama:a")
    assert by_text_of(chat, "llama", None) == ByText(
        "llama:a", ("continue_final_message", "messages"), None
    )


SCORED = GenerateRequest(prompt="a", model="m", logprobs=True)
PLAIN = GenerateRequest(prompt="a", model="m")
KEY = Able("m", ("logprobs",))
FEW = ABILITIES - {"logprobs", "gbnf"}


def test_as_long_as_all_agents_can_do_everything_there_are_no_keys() -> None:
    needs = UncommonNeeds()
    assert not needs.seen(ABILITIES)
    assert needs.key_of(SCORED) is None


def test_a_request_has_a_key_for_what_some_agent_lacks() -> None:
    needs = UncommonNeeds()
    assert needs.seen(FEW)
    assert not needs.seen(FEW)
    assert not needs.seen(ABILITIES)
    assert needs.key_of(SCORED) == KEY
    assert needs.key_of(PLAIN) is None


def test_agents_offer_the_keys_of_those_who_are_here() -> None:
    needs = UncommonNeeds()
    needs.seen(FEW)
    assert needs.came(KEY)
    assert not needs.came(KEY)
    assert needs.keys_for("m", ABILITIES) == (KEY,)
    assert needs.keys_for("m", FEW) == ()
    assert needs.keys_for("other", ABILITIES) == ()
    anyones = Able(None, ("logprobs",))
    assert needs.came(anyones)
    assert needs.keys_for("other", ABILITIES) == (anyones,)
    needs.check_integrity([KEY, KEY, anyones])


def test_answers_that_go_on_by_text_are_offered_to_those_who_go_on_with_them() -> None:
    needs = UncommonNeeds()
    by_text = ByText("m", ("prompt",), "f")
    assert needs.came(by_text)
    assert needs.keys_for("m", ABILITIES, lambda origin: origin == "f") == (by_text,)
    assert needs.keys_for("m", ABILITIES, lambda origin: origin == "g") == ()
    assert needs.keys_for("m", ABILITIES - {"prompt"}, lambda _: True) == ()
    assert needs.keys_for("other", ABILITIES, lambda _: True) == ()
    needs.check_integrity([by_text])


def test_only_so_many_keys_are_kept_that_nobody_needs() -> None:
    needs = UncommonNeeds()
    needs.seen(frozenset())
    needs.came(KEY)
    for number in range(3 * MAX_UNUSED):
        key = Able(f"m{number}", ("gbnf",))
        needs.came(key)
        needs.check_integrity([KEY, key])
        needs.left(key)
        needs.check_integrity([KEY])
    assert len(needs) <= MAX_UNUSED + 2
    assert needs.keys_for("m", ABILITIES) == (KEY,)
    needs.left(KEY)
    needs.left(None)
    needs.check_integrity([None])
