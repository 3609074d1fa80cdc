"""A loaded model as balancers see it, and what an assignment changes of that."""

from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.engine.prompt_store.prompt_store import Ignored
from arriero.agent.served_model import ServedModel, model_files
from arriero.agent.settings import AgentSettings
from arriero.shared.lifecycle import StartupError
from arriero.shared.models.assignments import Assignment
from arriero.shared.sampling import SamplingChoices
from tests.agent.fakes import BYTES_INFO, byte_model
from tests.agent.stored import whole

ASSIGNMENT = Assignment(name="wished", source="file:///m.gguf")
EMBEDS = replace(byte_model("{% if %}"), info=replace(BYTES_INFO, tasks=("embed",)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    return file


def settings(model: Path = Path("m.gguf"), **others: object) -> AgentSettings:
    return AgentSettings.model_validate({"model": model, "slots": 3, **others})


def test_without_an_assignment_it_is_as_its_file_and_the_settings_say() -> None:
    served = ServedModel(settings(), byte_model(), None)
    assert (served.named_info, served.num_slots, served.issues) == (BYTES_INFO, 3, ())


def test_an_assignment_names_it_and_says_how_many_slots() -> None:
    served = ServedModel(settings(), byte_model(), replace(ASSIGNMENT, slots=2))
    assert (served.named_info.name, served.num_slots) == ("wished", 2)
    assert ServedModel(settings(), byte_model(), ASSIGNMENT).num_slots == 3


def test_another_assignment_is_used_only_when_it_is_said() -> None:
    served = ServedModel(settings(), byte_model(), ASSIGNMENT)
    other = replace(ASSIGNMENT, name="other", sampling=SamplingChoices(temperature=0.5))
    before, preparer = served.preparer, served.make_preparer(other)
    assert (served.preparer, served.info.name) == (before, "wished")
    served.use(other, preparer)
    assert (served.preparer, served.info.name) == (preparer, "other")


def test_a_wished_template_that_is_wrong_is_refused() -> None:
    served = ServedModel(settings(), byte_model(), ASSIGNMENT)
    with pytest.raises(StartupError, match=r"the assigned chat template.*line 1"):
        served.make_preparer(replace(ASSIGNMENT, chat_template="{% if %}"))


def test_a_template_of_the_model_s_that_is_wrong_is_an_issue() -> None:
    [issue] = ServedModel(settings(), byte_model("{% if %}"), None).issues
    assert issue.code == "chat_template"


def test_one_that_only_embeds_has_no_slots_no_issues_and_no_fingerprint(file: Path) -> None:
    served = ServedModel(settings(file), EMBEDS, replace(ASSIGNMENT, slots=2))
    assert (served.num_slots, served.issues, served.info.fingerprint) == (0, (), None)


def test_the_fingerprint_is_that_of_what_is_served(file: Path) -> None:
    served = ServedModel(settings(file), byte_model(), ASSIGNMENT)
    before = served.info.fingerprint
    changed = replace(ASSIGNMENT, chat_template="{{ messages[0].content }}!")
    served.use(changed, served.make_preparer(changed))
    assert None is not before != served.info.fingerprint


def test_of_a_model_in_several_files_each_makes_the_fingerprint(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(b"GGUF")
    second.write_bytes(b"weights")
    before = ServedModel(settings(first), byte_model(), None).info.fingerprint
    second.write_bytes(b"Weights")
    after = ServedModel(settings(first), byte_model(), None).info.fingerprint
    assert None is not before != after is not None


def test_the_files_of_a_model(tmp_path: Path) -> None:
    whole = tmp_path / "m.gguf"
    parts = [tmp_path / f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert model_files(whole) == [whole]
    for part in parts:
        part.touch()
    assert model_files(parts[0]) == parts
    parts[1].unlink()
    assert model_files(parts[0]) == [parts[0], parts[2]], "a name may look like one of several"
    odd = tmp_path / "m-00001-of-00000.gguf"
    assert model_files(odd) == [odd]


def test_without_its_file_it_has_no_fingerprint(caplog: pytest.LogCaptureFixture) -> None:
    assert ServedModel(settings(), byte_model(), None).info.fingerprint is None
    assert "cannot be continued by or from other agents" in caplog.text


def test_prompts_are_stored_where_there_is_a_folder_for_them(file: Path, tmp_path: Path) -> None:
    assert ServedModel(settings(file), byte_model(), None).store is None
    served = ServedModel(settings(file, cache_dir=tmp_path / "cache"), byte_model(), None)
    assert served.store is not None
    with pytest.raises(StartupError, match=r"--cache-dir .*m\.gguf cannot be used"):
        ServedModel(settings(file, cache_dir=file), byte_model(), None)


def test_a_stored_prompt_fits_the_cells_that_were_chosen(file: Path, tmp_path: Path) -> None:
    """`--fit` may choose another type of cells than the settings say."""
    plain = settings(file, cache_dir=tmp_path / "cache")
    wished = settings(file, cache_dir=tmp_path / "cache", cache_type_k="q8_0")
    fitted = replace(byte_model(), options=wished.load_options)
    stored = [
        ServedModel(plain, fitted, None).store,
        ServedModel(plain, byte_model(), None).store,
        ServedModel(wished, byte_model(), None).store,
    ]
    chosen, other, same = (store for store in stored if store is not None)
    chosen.save("key", prompt := whole((1, 2, 3), b"state"))
    assert isinstance(other.load("key"), Ignored)
    assert same.load("key") == prompt
