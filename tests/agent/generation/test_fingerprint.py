from dataclasses import replace

from arriero.agent.chat.templates.chat_templates import TemplateSource
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt_store.stored_prompt import ModelIdentity
from arriero.agent.generation.fingerprint import fingerprint
from arriero.agent.generation.preparer import Preparer
from arriero.shared.reports.model_info import MAX_FINGERPRINT
from arriero.shared.sampling import SamplingChoices
from tests.agent.fakes import ByteVocab, byte_model

MODEL = ModelIdentity(architecture="a", parameters=1, size_bytes=2, digest="d")
VOCAB = ByteVocab()
OPTIONS = LoadOptions(context_size=16)


class OtherEnd(ByteVocab):
    end_tokens = frozenset({255})


def of(preparer: Preparer, model: ModelIdentity = MODEL) -> str:
    return fingerprint(model, OPTIONS, VOCAB, preparer.traits)


def test_agents_alike_can_go_on_with_each_others_answers() -> None:
    one, other = Preparer(byte_model(), 16), Preparer(byte_model(), 16)
    assert of(one) == of(other)
    assert len(of(one)) <= MAX_FINGERPRINT


def test_whatever_changes_the_meaning_of_tokens_or_their_end_tells_them_apart() -> None:
    plain = Preparer(byte_model(), 16)
    others = [
        of(Preparer(byte_model("{{ messages }}"), 16)),
        of(Preparer(byte_model(), 16, template=TemplateSource("{{ bos_token }}"))),
        of(Preparer(byte_model(), 16, family="qwen")),
        fingerprint(MODEL, LoadOptions(context_size=17), VOCAB, plain.traits),
        of(Preparer(byte_model(), 16, defaults=SamplingChoices(temperature=0.5))),
        of(plain, replace(MODEL, digest="e")),
        fingerprint(MODEL, OPTIONS, OtherEnd(), plain.traits),
        fingerprint(MODEL, OPTIONS, VOCAB, (*plain.traits[:-1], "", plain.traits[-1])),
        fingerprint(MODEL, OPTIONS, VOCAB, plain.traits, "one arithmetic"),
        fingerprint(MODEL, OPTIONS, VOCAB, plain.traits, "another"),
    ]
    assert len({of(plain), *others}) == 1 + len(others)
