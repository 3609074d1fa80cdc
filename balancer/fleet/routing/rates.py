"""Learns the speeds of agents from their ended requests, and the averages of models.

Costs are sums and ratios of learnt values. Learnt values therefore stay finite and above zero,
whatever agents report. An agent without measurements counts as an average agent of its model.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from ....shared.inference import MAX_COUNT, Rates, Usage, within
from ....shared.inference.values import LEAST_RATE, MOST_RATE, MOST_SECONDS
from ..decisions import LinkId

MAX_MODELS = 1024
"""The maximum number of remembered models, because agents choose the names."""

MEMORY = 0.9
"""The factor by which each new measurement reduces the weight of all earlier measurements."""

PRIOR = 256.0
"""The weight of the assumption that all expected prefixes are cached, in tokens."""

MOST = 1e15
LEAST = 1e-9
"""The bounds of one measurement. A weight is never 0, so every average is finite."""

MOST_TOKENS_A_BYTE = 16.0
"""The maximum tokens per byte that are learnt. Chat templates add tokens to short prompts."""

DRIFT = 1.25
"""If a model's average speed changes by more than this factor, the ranks of its agents change."""


@dataclass(slots=True)
class Average:
    """A weighted average. Each new value reduces the weight of the older values."""

    amount: float = 0.0
    weight: float = 0.0

    def add(self, amount: float, weight: float = 1.0) -> None:
        if not 0.0 <= amount <= MOST:
            amount = within(amount, 0.0, MOST)
        if not LEAST <= weight <= MOST:
            weight = within(weight, LEAST, MOST)
        self.amount = self.amount * MEMORY + amount
        self.weight = self.weight * MEMORY + weight

    def value(self, default: float) -> float:
        """Return the average, or `default` if nothing was added."""
        return self.amount / self.weight if self.weight else default


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The expected speed of an agent.

    - `prefill`: the prompt tokens computed in a second.
    - `token_seconds`: the seconds for one token of an answer while `running` sequences are
      generated.
    - `slot_seconds`: the seconds for which a request keeps its slot.
    - `hit_rate`: the share of the tokens expected to be cached that are really cached.
    - `reuse`: the share of prompt tokens that were cached.
    """

    prefill: float
    token_seconds: float
    running: float
    slot_seconds: float
    hit_rate: float = 1.0
    reuse: float = 0.0

    def seconds_per_token(self, running: float) -> float:
        """Return the seconds for one token while `running` sequences are generated.

        The estimate assumes that half of the time of a step grows with the number of sequences.
        """
        return self.token_seconds * (1 + running) / (1 + self.running)


UNKNOWN = Speed(prefill=500.0, token_seconds=0.05, running=1.0, slot_seconds=5.0)
"""The speed that is assumed before any measurement."""


@dataclass(slots=True)
class _Measured:
    prefill: Average = field(default_factory=Average)
    token_seconds: Average = field(default_factory=Average)
    running: Average = field(default_factory=Average)
    slot_seconds: Average = field(default_factory=Average)
    hit_rate: Average = field(default_factory=lambda: Average(PRIOR, PRIOR))
    reuse: Average = field(default_factory=Average)
    answer: Average = field(default_factory=Average)
    computed: Average = field(default_factory=Average)
    tokens_per_byte: Average = field(default_factory=Average)
    known: Speed | None = None
    """The speed computed from the measurements; `None` after a new measurement."""

    @property
    def is_known(self) -> bool:
        return self.prefill.weight > 0 or self.token_seconds.weight > 0

    def speed(self, default: Speed) -> Speed:
        if self.known is None:
            self.known = Speed(
                prefill=self.prefill.value(default.prefill),
                token_seconds=self.token_seconds.value(default.token_seconds),
                running=self.running.value(default.running),
                slot_seconds=self.slot_seconds.value(default.slot_seconds),
                hit_rate=self.hit_rate.value(default.hit_rate),
                reuse=self.reuse.value(default.reuse),
            )
        return self.known


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurement of a request that kept its slot for `seconds`.

    The agent had `running` requests. `usage` has the token counts, and `rates` the engine's rates.
    """

    usage: Usage
    rates: Rates
    running: int
    seconds: float


class Speeds:
    """The speeds of agents by link, and of models by name."""

    def __init__(self) -> None:
        self._agents: dict[LinkId, _Measured] = {}
        self._models: OrderedDict[str, _Measured] = OrderedDict()
        self._references: dict[str, float] = {}

    def __len__(self) -> int:
        """Return the number of agents and models with measurements."""
        return len(self._agents) + len(self._models)

    def is_known(self, model: str) -> bool:
        """Return whether there is a measurement of the model."""
        return model in self._models and self._models[model].is_known

    def of(self, link: LinkId, model: str) -> Speed:
        """Return the expected speed of an agent that serves `model`."""
        mean = self._models.get(model)
        default = UNKNOWN if mean is None else mean.speed(UNKNOWN)
        agent = self._agents.get(link)
        return default if agent is None else agent.speed(default)

    def answer_tokens(self, model: str) -> float:
        """Return the mean number of tokens of an answer."""
        mean = self._models.get(model)
        return 100.0 if mean is None else mean.answer.value(100.0)

    def computed_tokens(self, model: str) -> float:
        """Return the mean number of prompt tokens that an agent has to compute."""
        mean = self._models.get(model)
        return 100.0 if mean is None else mean.computed.value(100.0)

    def tokens_per_byte(self, model: str) -> float:
        """Return the mean tokens per byte of a prompt; `PrefixChain` defines which bytes count."""
        mean = self._models.get(model)
        return 0.25 if mean is None else mean.tokens_per_byte.value(0.25)

    # ---- measurements

    def prompt_read(self, model: str, num_tokens: int, num_bytes: int) -> None:
        """Record that a prompt of `num_bytes` had `num_tokens`."""
        if num_bytes > 0:
            most = MOST_TOKENS_A_BYTE * num_bytes
            self._model(model).tokens_per_byte.add(min(num_tokens, most), num_bytes)

    def found(self, link: LinkId, *, expected: float, cached: int) -> None:
        """Record that an agent had `cached` of the `expected` tokens cached."""
        agent = self._agent(link)
        agent.hit_rate.add(min(cached, expected), expected)
        agent.known = None

    def ended(self, link: LinkId, model: str, end: Measurement) -> bool:
        """Record a request that ended without an error.

        Returns whether the expected speed of the model has changed.
        """
        for each in (self._agent(link), self._model(model)):
            _learn(each, end)
        mean = self._model(model)
        if not mean.is_known:
            return False
        speed = mean.speed(UNKNOWN)
        measure = speed.token_seconds / (1 + speed.running) + 1 / speed.prefill
        reference = self._references.get(model)
        if reference is not None and reference / DRIFT <= measure <= reference * DRIFT:
            return False
        self._references[model] = measure
        return True

    def forget(self, link: LinkId) -> None:
        """Forget an agent that left or changed its model."""
        self._agents.pop(link, None)

    # ---- inside

    def _agent(self, link: LinkId) -> _Measured:
        measured = self._agents.get(link)
        if measured is None:
            measured = self._agents[link] = _Measured()
        return measured

    def _model(self, model: str) -> _Measured:
        measured = self._models.get(model)
        if measured is None:
            measured = self._models[model] = _Measured()
        self._models.move_to_end(model)
        if len(self._models) > MAX_MODELS:
            gone, _ = self._models.popitem(last=False)
            self._references.pop(gone, None)
        return measured


def _learn(measured: _Measured, end: Measurement) -> None:
    usage, rates = end.usage, end.rates
    prompt = min(usage.prompt_tokens, MAX_COUNT)
    cached = min(max(usage.cached_tokens, 0), prompt)
    computed = prompt - cached
    if rates.prefill_tokens_per_second and computed > 0:
        measured.prefill.add(computed, computed / _usable(rates.prefill_tokens_per_second))
    if rates.decode_tokens_per_second:
        measured.token_seconds.add(1 / _usable(rates.decode_tokens_per_second))
        measured.running.add(end.running)
    if usage.completion_tokens > 0:
        measured.answer.add(min(usage.completion_tokens, MAX_COUNT))
    if prompt > 0:
        measured.computed.add(computed)
        measured.reuse.add(cached, prompt)
    measured.slot_seconds.add(within(end.seconds, 0.0, MOST_SECONDS))
    measured.known = None


def _usable(rate: float) -> float:
    return within(rate, LEAST_RATE, MOST_RATE)
