import pytest

from arriero.agent.engine.model_error import DOES_NOT_FIT, does_not_fit, missing_in


@pytest.mark.parametrize("missing", [1, 2**20, 5 * 2**30 + 1, 2**40])
def test_what_is_missing_is_read_as_it_was_said(missing: int) -> None:
    message = does_not_fit(missing, "failed to allocate")
    assert message.startswith(DOES_NOT_FIT)
    found = missing_in(message)
    assert found is not None
    assert missing <= found <= missing + 0.01 * 2**30 + 1


def test_what_is_not_known_is_not_said() -> None:
    message = does_not_fit(0, "failed to allocate")
    assert message == f"{DOES_NOT_FIT}, and nothing less can be chosen: failed to allocate"
    assert missing_in(message) is None
    assert missing_in("no such file") is None


def test_the_sentence() -> None:
    assert does_not_fit(3 * 2**29, "x") == (
        f"{DOES_NOT_FIT}, which has about 1.50 GiB too little, and nothing less can be chosen: x"
    )
