import pytest

from arriero.agent.gguf.split_files import files_of


def test_any_file_of_a_split_model_names_them_all() -> None:
    all_three = tuple(f"a/m-Q8_0-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    assert files_of("a/m-Q8_0-00001-of-00003.gguf") == all_three
    assert files_of("a/m-Q8_0-00003-of-00003.gguf") == all_three


@pytest.mark.parametrize("name", ["m.gguf", "m-1-of-3.gguf", "m-00001-of-00003.gguf.txt"])
def test_other_names_name_one_file(name: str) -> None:
    assert files_of(name) == (name,)


@pytest.mark.parametrize("numbers", ["00000-of-00002", "00003-of-00002", "00001-of-99999"])
def test_numbers_that_no_model_has_are_refused(numbers: str) -> None:
    with pytest.raises(ValueError, match="split model"):
        files_of(f"m-{numbers}.gguf")
