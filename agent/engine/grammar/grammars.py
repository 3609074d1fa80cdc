"""Compiles grammars for one vocabulary, and caches the last few: clients repeat themselves.

What a grammar may cost is bounded here: its size, the work of compiling it, the work of a single
token, and how many are cached.
"""

import re
import threading
from collections import OrderedDict

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from .constraint import Constraint, ConstraintError, Numbers, check, panics_raised

MAX_CACHED = 64
"""Compiled grammars that are cached; the least recently used is evicted."""

MAX_TEXT = 512 * 1024
"""Characters of a grammar, all its parts included."""

LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=25_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
"""llguidance counts work in its own units: these are about 20 ms to compile, and 15 ms a token."""


_SCHEMA = re.compile(r'"json_schema":\s*\{')


class Grammars:
    """Safe from any thread."""

    def __init__(self, tokenizer: LLTokenizer, *, max_cached: int = MAX_CACHED) -> None:
        self._tokenizer = tokenizer
        self._max_cached = max_cached
        self._cached: OrderedDict[str, Constraint] = OrderedDict()
        self._lock = threading.Lock()
        self._numbers = Numbers(tokenizer)

    def __len__(self) -> int:
        return len(self._cached)

    def compile(self, grammar: str) -> Constraint:
        """`grammar` as llguidance takes it. Raises `ConstraintError` where it cannot be served."""
        if len(grammar) > MAX_TEXT:
            raise ConstraintError(
                f"it is {len(grammar)} characters long; at most {MAX_TEXT} are allowed"
            )
        with self._lock:
            if (cached := self._cached.get(grammar)) is not None and not cached.is_broken:
                self._cached.move_to_end(grammar)
                return cached
        constraint = self._compiled(grammar)
        with self._lock:
            self._cached[grammar] = constraint
            if len(self._cached) > self._max_cached:
                self._cached.popitem(last=False)
        return constraint

    def complaint(self, grammar: str) -> str | None:
        """What is wrong with `grammar` itself, whatever the vocabulary; `None` if nothing is."""
        try:
            with panics_raised():
                return LLMatcher.validate_grammar(grammar, limits=LIMITS) or None
        except ConstraintError as error:
            return str(error)

    def _compiled(self, grammar: str) -> Constraint:
        with panics_raised():
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LIMITS)
            check(matcher)
        return Constraint(
            matcher,
            self._tokenizer.vocab_size,
            self._tokenizer.eos_tokens,
            warnings=matcher.get_grammar_warnings(),
            numbers=self._numbers if _SCHEMA.search(grammar) else None,
        )
