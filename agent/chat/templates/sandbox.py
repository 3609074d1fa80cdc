"""Hugging Face's Jinja dialect, for which chat templates are written, in a sandbox with limits.

A template comes with the model file, so it is untrusted code. Attributes that lead out of the
sandbox are refused. A render may take `MAX_SECONDS` of its thread's CPU time, checked in loops and
at calls, and write `MAX_RENDERED` characters. Operators may not compute larger texts or lists, nor
very large numbers. Not limited: the time and memory of a single built-in filter or Python method.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SECONDS = 10.0
"""Maximum CPU time of one render, in seconds. The longest conversations take a tenth of this time.
"""

MAX_RENDERED = 32 * 1024 * 1024
"""Maximum characters that one render may write; twice the longest body a client may send."""

_MAX_BITS = 4096
"""Maximum bits of a number that a template computes."""

_TICKS = 256
"""Loop iterations and calls between two checks of the time."""

_METER = "_meter"
_COUNTED = "_counted"
_JOINED = "_joined"

Clock = Callable[[], datetime]
Timer = Callable[[], float]


class Refusal(jinja2.TemplateError):
    """The template called `raise_exception`, or exceeded a limit."""


class LimitExceeded(Refusal):
    """The template exceeded a limit that rearranged messages would exceed too."""


class Meter:
    """The time limit of one render. `timer` gives the thread's CPU time in seconds."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._until = timer() + MAX_SECONDS
        self._num_ticks = 0

    def tick(self) -> None:
        """Count an iteration or call. Raises `LimitExceeded` if the time is over."""
        self._num_ticks += 1
        if self._num_ticks % _TICKS == 0 and self._timer() > self._until:
            raise LimitExceeded(f"it took more than {MAX_SECONDS:.0f} seconds")


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles templates. `clock` gives the local time to templates that ask for it."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self, clock: Clock) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        self.filters["tojson"] = _to_json
        self.filters[_COUNTED] = _counted
        self.filters[_JOINED] = _joined
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: clock().strftime(pattern)

    def compiled(self, source: str) -> jinja2.Template:
        """Compile `source`. Raises the exceptions of Jinja and Python for invalid source."""
        return self.from_string(_Bounds().visit(self.parse(source)))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow `append` and `pop` on lists, which are safe: variables are copies."""
        if isinstance(obj, list) and attr in ("append", "pop"):
            return True
        return super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Count the call like a loop iteration: recursive macros may take exponential time."""
        __context[_METER].tick()
        if isinstance(__obj, LoopContext):  # a recursive loop's next level
            args = tuple(_counted(__context, each) for each in args)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse large results of operators."""
        if _is_too_large(operator, left, right):
            raise LimitExceeded(f"the result of `{operator}` would be too large")
        return super().call_binop(context, operator, left, right)


def rendered(template: jinja2.Template, variables: dict[str, Any], timer: Timer) -> str:
    """Return the text that `template` writes. Raises the exceptions of faults in the template."""
    kept, length = [], 0
    for part in template.generate({**variables, _METER: Meter(timer)}):
        length += len(part)
        if length > MAX_RENDERED:
            raise LimitExceeded(f"it wrote more than {MAX_RENDERED} characters")
        kept.append(part)
    return "".join(kept)


# ---- what templates expect


class _Generation(Extension):
    """Parses `{% generation %}`, which marks assistant text for training; its body is a scope."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Convert to JSON without the HTML escapes of Jinja's own filter, which models never saw."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_listed,
    )


def _listed(value: object) -> list[object]:
    """Return iterators of `map` and `select` as lists, like other implementations of Jinja."""
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _raise_exception(message: str) -> NoReturn:
    raise Refusal(message)


# ---- limits


class _Bounds(NodeTransformer):
    """Wraps the iterables of loops in our filter, and replaces `~` by a filter."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        node.iter = _filtered(node.iter, _COUNTED)
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@jinja2.pass_context
def _counted(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    meter = context[_METER]
    for item in items:
        meter.tick()
        yield item


@jinja2.pass_context
def _joined(_context: Context, items: list[Any]) -> str:
    texts = [str(item) for item in items]
    if sum(map(len, texts)) > MAX_RENDERED:
        raise LimitExceeded("the result of `~` would be too large")
    return "".join(texts)


def _is_too_large(operator: str, left: Any, right: Any) -> bool:
    """Return whether the result exceeds `MAX_RENDERED` items, or `_MAX_BITS` if a number."""
    if operator == "+":
        both = isinstance(left, Sequence) and isinstance(right, Sequence)
        return both and len(left) + len(right) > MAX_RENDERED
    if isinstance(right, Sequence):
        left, right = right, left
    if not isinstance(right, int):
        return False
    if operator == "*" and isinstance(left, Sequence):
        return len(left) * right > MAX_RENDERED
    if not isinstance(left, int):
        return False
    num_bits = left.bit_length() + right.bit_length()
    return (num_bits if operator == "*" else left.bit_length() * right) > _MAX_BITS
