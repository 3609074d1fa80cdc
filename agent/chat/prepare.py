"""From a request to tokens: the template, the tokeniser, the ceiling, the sampling asked for.

This takes milliseconds, and with a long text much more, so it runs on a thread of its own: never on
the event loop, never on the decode thread. A `Preparer` changes nothing after it was made.
"""

import secrets
from collections.abc import Callable
from datetime import datetime

from ...shared.errors import InvalidRequest, NotSupported, PromptTooLong
from ...shared.inference import GenerateRequest
from ..engine.loaded_model import LoadedModel
from ..engine.sampling import Sampling
from .prepared import Prepared
from .template import ChatTemplate, TemplateError

_SAMPLING_FIELDS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)


class Preparer:
    """Prepares requests for one model. `context_size` is each slot's ceiling in tokens."""

    def __init__(
        self,
        model: LoadedModel,
        context_size: int,
        *,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(32),
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._vocab = model.vocab
        self._context_size = context_size
        self._draw_seed = draw_seed
        self._template: ChatTemplate | None = None
        self.template_issue: str | None = None
        """Why conversations cannot be prepared, where they cannot."""
        if model.chat_template is None:
            self.template_issue = "the model has no chat template; send `prompt` instead"
            return
        try:
            self._template = ChatTemplate(
                model.chat_template,
                bos_text=model.vocab.bos_text,
                eos_text=model.vocab.eos_text,
                clock=clock,
            )
        except TemplateError as error:
            self.template_issue = str(error)

    def prepare(self, request: GenerateRequest) -> Prepared:
        """Raises `RequestError` that names the field and says what would be right."""
        if request.cache_key is not None:
            raise NotSupported(
                "`cache_key`: this agent stores no prompts (it runs without --cache-dir)",
                field="cache_key",
            )
        return Prepared(
            prompt=self._prompt(request),
            sampling=self._sampling(request),
            max_tokens=request.max_tokens,
            stop=request.stop,
        )

    def _prompt(self, request: GenerateRequest) -> tuple[int, ...]:
        field = "messages" if request.prompt is None else "prompt"
        tokens = self._tokens(self._text(request))
        if not tokens:
            raise InvalidRequest(f"`{field}`: there is no text in it", field=field)
        if len(tokens) >= self._context_size:
            raise PromptTooLong(
                f"`{field}`: the prompt is {len(tokens)} tokens long; at most "
                f"{self._context_size - 1} fit into this agent's context of "
                f"{self._context_size}, which the answer shares",
                field=field,
            )
        return tokens

    def _text(self, request: GenerateRequest) -> str:
        if request.prompt is not None:
            return self._raw(request, request.prompt)
        if self._template is None:
            raise NotSupported(f"`messages`: {self.template_issue}", field="messages")
        return self._template.render(
            request.messages or (), tools=request.tools, thinking=request.thinking
        )

    @staticmethod
    def _raw(request: GenerateRequest, prompt: str) -> str:
        for field in ("tools", "thinking"):
            if getattr(request, field) is not None:
                raise InvalidRequest(f"`{field}` needs `messages`, not `prompt`", field=field)
        return prompt

    def _tokens(self, text: str) -> tuple[int, ...]:
        # Many templates write the beginning-of-sequence token themselves; twice confuses models.
        begins = bool(self._vocab.bos_text) and text.startswith(self._vocab.bos_text)
        return self._vocab.tokenize(text, add_special=not begins, parse_special=True)

    def _sampling(self, request: GenerateRequest) -> Sampling:
        asked = {name: getattr(request, name) for name in _SAMPLING_FIELDS}
        return Sampling(
            **{name: value for name, value in asked.items() if value is not None},
            seed=self._draw_seed() if request.seed is None else request.seed,
            logit_bias=self._logit_bias(request),
            ignore_eos=request.ignore_eos,
        )

    def _logit_bias(self, request: GenerateRequest) -> tuple[tuple[int, float], ...]:
        biases = tuple((int(token), bias) for token, bias in (request.logit_bias or {}).items())
        for token, _ in biases:
            if token >= self._vocab.size:
                raise InvalidRequest(
                    f"`logit_bias`: there is no token {token}; this model's ids go up to "
                    f"{self._vocab.size - 1}",
                    field="logit_bias",
                )
        return biases
