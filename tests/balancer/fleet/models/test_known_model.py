"""What follows from the reports on one model."""

from dataclasses import replace

from arriero.balancer.fleet.models.known_model import KnownModel, Report, adapted, unknown
from arriero.shared.reports.model_info import ModelInfo
from tests.balancer.fleet.builders import model_info

LLAMA = replace(model_info("llama"), tasks=("generate",))
SEEING = replace(LLAMA, tasks=("generate", "vision"), context_size=LLAMA.context_size + 1)


def known(*reports: Report) -> KnownModel:
    model = KnownModel(reports[-1])
    for each in reports:
        model.reports.add(each, 1)
    return model


def loaded(info: ModelInfo = LLAMA) -> Report:
    return Report(info, is_loaded=True)


def test_one_that_is_loaded_is_told_of_before_those_that_load() -> None:
    loading = Report(replace(LLAMA, architecture="other"), is_loaded=False)
    assert known(loading).facts.view.status == "loading"
    view = known(loading, loaded()).facts.view
    assert (view.status, view.info) == ("loaded", LLAMA)


def test_of_one_that_nobody_has_the_last_report_holds() -> None:
    view = KnownModel(loaded()).facts.view
    assert (view.status, view.info) == ("unloaded", LLAMA)


def test_what_one_agent_can_do_the_model_can() -> None:
    facts = known(loaded(), loaded(SEEING)).facts
    assert facts.tasks == {"generate", "vision"}
    assert facts.view.info == replace(LLAMA, tasks=("generate", "vision"))
    assert facts.room.num_tokens == LLAMA.context_size


def test_an_adapter_is_a_model_that_only_generates() -> None:
    info = replace(SEEING, tasks=("generate", "embed", "vision"), adapters=("terse", "rude"))
    plain, terse, rude = adapted(loaded(info))
    assert plain.info == info
    assert (terse.info.name, rude.info.name) == ("llama:terse", "llama:rude")
    assert terse.info.tasks == ("generate", "vision") and terse.info.adapters == ()


def test_of_one_that_is_only_wished_for_the_name_is_known() -> None:
    view = unknown("llama")
    assert (view.info.name, view.info.tasks, view.status) == ("llama", (), "unloaded")
