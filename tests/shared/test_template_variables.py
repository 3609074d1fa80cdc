import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.template_variables import MAX_VARIABLES, RESERVED, TemplateVariables

adapter: TypeAdapter[TemplateVariables] = TypeAdapter(TemplateVariables)


def test_any_value_goes_under_a_free_name() -> None:
    variables = {"enable_thinking": False, "documents": [{"text": "x"}], "Effort2": None}
    assert adapter.validate_python(variables) == variables


@pytest.mark.parametrize("name", ["", "_meter", "9a", "a-b", "ä", "a" * 65, "a\n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="must be named with letters"):
        adapter.validate_python({name: 1})


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_what_templates_know_by_themselves_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="must not be a name that templates define"):
        adapter.validate_python({name: 1})


def test_their_number_is_bounded() -> None:
    with pytest.raises(ValidationError, match="at most 64"):
        adapter.validate_python({f"v{number}": 1 for number in range(MAX_VARIABLES + 1)})
