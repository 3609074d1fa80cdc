"""Another value of an option of the engine, whatever option that is."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError

from arriero.agent.engine.load_options import LoadOptions
from demo.conversations import DRAFT


def changed(options: LoadOptions, name: str) -> LoadOptions:
    """`options`, but for a value of the option `name` that is different, and allowed."""
    return next(changes(options, name))


def changes(options: LoadOptions, name: str) -> Iterator[LoadOptions]:
    """The same with several such values, at least one."""
    count = 0
    for other in _values(LoadOptions.model_fields[name].annotation, getattr(options, name)):
        try:
            found = LoadOptions.model_validate({**dict(options), name: other})
        except ValidationError:
            continue
        if found != options:
            count += 1
            yield found
    if not count:
        raise AssertionError(f"no other value of `{name}` is known here")


def _values(annotation: Any, value: object) -> Iterator[object]:
    """Values of a type, some of which may be out of bounds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        for each in arguments:
            yield from _values(each, value)
    elif origin is Annotated:
        yield from _values(arguments[0], value)
    elif origin is Literal:
        yield from arguments
    elif annotation is bool:
        yield not value
    elif annotation is int:
        yield from (0, 2 * value if isinstance(value, int) else 0, 64, 10_000, 1)
    elif annotation is float:
        yield from (0.125, 0.25)
    elif annotation is str:
        yield from ("none", "3,1", "exps=CPU", "a.b=int:1", "host:50052")
    elif annotation is not type(None):
        yield DRAFT
