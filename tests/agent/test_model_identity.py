"""Models are known apart by what they are, not by where they lie."""

from dataclasses import replace
from pathlib import Path

import pytest

from arriero.agent.chat.templates.chat_templates import TemplateSource
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt_store.stored_prompt import ModelIdentity
from arriero.agent.generation.preparer import Preparer
from arriero.agent.model_identity import (
    NUM_SAMPLES,
    SAMPLE_BYTES,
    files_digest,
    fingerprint,
    identity_of,
    origin_of,
)
from arriero.shared.reports.model_info import MAX_FINGERPRINT, ModelInfo
from arriero.shared.sampling import SamplingChoices
from tests.agent.fakes import ByteVocab, byte_model


def digest_of(folder: Path, content: bytes) -> str:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return files_digest([path])


@pytest.mark.parametrize("size", [0, 1, SAMPLE_BYTES, SAMPLE_BYTES + 1, 3 * SAMPLE_BYTES])
def test_small_files_are_read_whole(tmp_path: Path, size: int) -> None:
    content = bytes(size)
    digest = digest_of(tmp_path, content)
    assert digest_of(tmp_path, content) == digest
    assert digest_of(tmp_path, content + b"\0") != digest
    for position in {0, size // 2, size - 1} if size else set():
        changed = bytearray(content)
        changed[position] = 1
        assert digest_of(tmp_path, bytes(changed)) != digest


def test_a_part_of_a_large_file_changes_it(tmp_path: Path) -> None:
    size = 2 * NUM_SAMPLES * SAMPLE_BYTES
    content = bytearray(size)
    digest = digest_of(tmp_path, bytes(content))
    for start in (0, size // 3, size // 2, size - 2 * SAMPLE_BYTES):
        content[start : start + 2 * SAMPLE_BYTES] = b"x" * (2 * SAMPLE_BYTES)
        before, digest = digest, digest_of(tmp_path, bytes(content))
        assert digest != before


def test_a_missing_file_has_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files_digest([tmp_path / "nothing"])


def test_every_file_of_a_split_model_counts(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("1", "2", "3")]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 4 * SAMPLE_BYTES)
    digests = {files_digest(paths)}
    for position in (0, -1):
        for path in paths:
            content = bytearray(path.read_bytes())
            content[position] = 9
            path.write_bytes(content)
            digests.add(files_digest(paths))
    paths[1].write_bytes(paths[1].read_bytes() + b"x")
    digests |= {files_digest(paths), files_digest(paths[:2]), files_digest(paths[::-1])}
    assert len(digests) == 10
    paths[2].unlink()
    with pytest.raises(FileNotFoundError):
        files_digest(paths)


def test_of_many_files_little_is_read(tmp_path: Path) -> None:
    """Both ends of each, at least: a header may be all that tells two apart."""
    paths = [tmp_path / str(number) for number in range(2 * NUM_SAMPLES)]
    for path in paths:
        path.write_bytes(b"header" + bytes(2 * SAMPLE_BYTES))
    digest = files_digest(paths)
    paths[-1].write_bytes(b"Header" + bytes(2 * SAMPLE_BYTES))
    assert files_digest(paths) != digest


OPTIONS = LoadOptions()
MODEL = ModelIdentity(architecture="a", parameters=1, size_bytes=2, digest="d")
INFO = ModelInfo(name="m", architecture="qwen3", parameters=7, size_bytes=14, context_size=4096)


def test_the_weights_count_and_not_the_place(tmp_path: Path) -> None:
    here, there, other = (tmp_path / name for name in ("here", "there", "other"))
    here.write_bytes(b"weights")
    there.write_bytes(b"weights")
    other.write_bytes(b"Weights")
    identity = identity_of(INFO, [here])
    assert identity_of(replace(INFO, name="n", context_size=16), [there]) == identity
    assert identity_of(INFO, [other]) != identity
    assert identity_of(replace(INFO, parameters=8), [here]) != identity


def test_cells_belong_to_a_model_an_engine_and_its_arithmetic() -> None:
    origin = origin_of(MODEL, OPTIONS, None)
    assert origin_of(replace(MODEL, digest="e"), OPTIONS, None) != origin
    exact = origin_of(MODEL, OPTIONS, "a")
    assert len({origin, exact, origin_of(MODEL, OPTIONS, "b")}) == 3
    assert origin.engine.startswith("llama-cpp-python 0.")


VOCAB = ByteVocab()
SHORT = LoadOptions(context_size=16)


class OtherEnd(ByteVocab):
    end_tokens = frozenset({255})


def of(preparer: Preparer, model: ModelIdentity = MODEL) -> str:
    return fingerprint(model, SHORT, VOCAB, preparer.traits)


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
        fingerprint(MODEL, SHORT, OtherEnd(), plain.traits),
        fingerprint(MODEL, SHORT, VOCAB, (*plain.traits[:-1], "", plain.traits[-1])),
        fingerprint(MODEL, SHORT, VOCAB, plain.traits, "one arithmetic"),
        fingerprint(MODEL, SHORT, VOCAB, plain.traits, "another"),
    ]
    assert len({of(plain), *others}) == 1 + len(others)
