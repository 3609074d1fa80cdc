"""Small models of several architectures: each loads, and its answer depends on the whole prompt."""

from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp
import pytest

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sequence import NewSequence, SequenceId
from bench.small_models import ARCHITECTURES, PLAIN, RECURRENT, WINDOWED, write
from tests.agent.engine.llama.running import GREEDY, generate

PROMPT = tuple(range(300, 400))
OTHER = (7, *PROMPT[1:])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_answer_is_of_words_and_depends_on_the_first_token(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path / f"{name}.gguf")
    assert path.stat().st_size < 8 * 2**20
    options = LoadOptions(slots=2, context_size=256, threads=1, gpu_layers=0, host_cache=0)
    engine = load_engine(path, options)
    assert isinstance(engine, LlamaEngine)
    sequences = [
        NewSequence(id=SequenceId(number), prompt=Prompt(prompt), max_tokens=32, sampling=GREEDY)
        for number, prompt in enumerate((PROMPT, OTHER))
    ]
    ended, _ = generate(engine, sequences, slots=2, num_cells=512)
    (tokens, reason), (others, _) = ended[0], ended[1]
    assert reason == "length" and tokens != others
    vocab = engine.model.vocab
    text = b"".join(map(vocab.piece, tokens)).decode()
    assert vocab.tokenize(text, add_special=False, parse_special=False) == tokens
    engine.free()


def test_the_same_file_is_written_again(tmp_path: Path) -> None:
    one, other = (write("lfm2", tmp_path / name).read_bytes() for name in ("one", "other"))
    assert one == other


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_kinds_are_what_llama_cpp_says(name: str, tmp_path: Path) -> None:
    params = llama_cpp.llama_model_default_params()
    path = write(name, tmp_path / "model.gguf")
    model = llama_cpp.llama_model_load_from_file(bytes(path), params)
    is_recurrent = llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(
        model
    )
    has_window = llama_cpp.llama_model_n_swa(model) > 0
    llama_cpp.llama_model_free(model)
    assert (name in RECURRENT, name in WINDOWED) == (is_recurrent, has_window)
    assert (name in PLAIN) == (not is_recurrent and not has_window)
