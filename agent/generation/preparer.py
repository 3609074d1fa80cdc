"""Turns a request into tokens: template, tokeniser, context size, grammar and sampling.

Preparation takes milliseconds, and much more for a long text. So it runs on its own threads: never
on the event loop, never on the decode thread. A `Preparer` is immutable.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, takewhile
from typing import Any

from ...shared.errors import (
    InvalidRequest,
    NotSupported,
    PromptTooLong,
    RequestError,
)
from ...shared.inference import (
    ChatMessage,
    GenerateRequest,
    JsonSchemaGrammar,
    Notice,
    PromptInput,
)
from ...shared.inference.prefix_chain import chain_of
from ...shared.sampling import SamplingChoices
from ..adapter_table import AdapterTable
from ..chat.constraints.answer_grammar import AnswerFormat, must_call
from ..chat.constraints.constrain import ConstrainedAnswer, constrain
from ..chat.families.family import Family
from ..chat.output.transcript import Stops
from ..chat.parsing.tools import Tools
from ..chat.templates.chat_templates import ChatTemplates, TemplateSource
from ..chat.templates.user_text import RenderedText
from ..engine.grammar.grammars import SECONDS, Ended, Grammars
from ..engine.loaded_model import LoadedModel
from ..engine.prompt import Prompt, Span
from ..engine.prompt_store.prompt_store import Ignored, PromptStore, ignored
from ..engine.prompt_store.stored_prompt import StoredPrompt
from ..engine.sequence import ContextShift, NewSequence
from ..engine.withdrawal import check_wanted
from ..sequence_id import SequenceId
from .answers.prepared import Echo, Parsing, Prepared
from .answers.resumption import Resume, Resumed, resumed
from .pictures import Picture, Pictures, marked
from .sampling_resolver import SamplingDefaults, SamplingResolver

MIN_KEPT = 4
"""Tokens that a context shift always keeps: attention sinks (https://arxiv.org/abs/2309.17453)."""


_LATER = (ChatMessage(role="assistant", content="x"), ChatMessage(role="user", content="x"))
"""Messages that continue a conversation. They show where an answer begins."""


def _another(message: ChatMessage) -> ChatMessage:
    """Return a user message that differs from `message` from the first character on."""
    return ChatMessage(role="user", content="y" if message.text.lstrip().startswith("x") else "x")


class Preparer:
    """Prepares requests for one model.

    `context_size` is the maximum length of a sequence, in tokens.
    """

    def __init__(
        self,
        model: LoadedModel,
        context_size: int,
        *,
        template: TemplateSource | None = None,
        family: str = "auto",
        store: PromptStore | None = None,
        defaults: SamplingChoices | None = None,
        adapters: AdapterTable | None = None,
        grammar_timeout: float = SECONDS,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(32),
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Make a preparer. Raises `TemplateError` if the `given` template is broken.

        `given` replaces the model's template. `defaults` apply to fields that a request does not
        set. A grammar may be compiled for `grammar_timeout` seconds of CPU time.
        """
        self._vocab = model.vocab
        self._media = model.media
        self._longest_token = model.info.longest_token
        self._has_checkpoints = model.has_checkpoints
        self._context_size = context_size
        self._store = store
        self.adapters = AdapterTable() if adapters is None else adapters
        self._draw_seed = draw_seed
        self._defaults = SamplingDefaults(given := defaults or SamplingChoices())
        self._resolver = SamplingResolver(model.vocab)
        self._templates = ChatTemplates(model, template, clock=clock, family=family)
        self._source = self._templates.text
        self._family = self._templates.family
        eyes = () if model.media is None else (model.media.identity,)
        self.traits = (self._source, self._family.name, repr(given), *eyes)
        self.traits += self.adapters.traits
        """Everything except the model that can change the answer to a request."""
        self._shown = {
            has_tools: self.markers(self._family, has_tools=has_tools)
            for has_tools in (False, True)
        }
        tokens = model.grammar_tokens
        self._grammars = Grammars(tokens, seconds=grammar_timeout) if tokens else None

    @property
    def num_grammars(self) -> int:
        """The number of compiled grammars in the cache."""
        return len(self._grammars) if self._grammars else 0

    @property
    def template_issue(self) -> str | None:
        """Why conversations cannot be prepared; `None` if they can."""
        return self._templates.issue

    @property
    def template_text(self) -> str | None:
        """The source of the template for conversations without tools, if there is one."""
        return self._templates.general_text

    def prepare(
        self,
        id: SequenceId,
        request: GenerateRequest,
        scope: str | None = None,
        ended: Ended | None = None,
    ) -> Prepared:
        """Prepare `request` as the sequence `id`.

        Only requests of the same `scope` share computed prefixes. Compilation of a grammar stops
        once the request has `ended`. Raises a `RequestError` that names the field and says which
        values are right.
        """
        chain = chain_of(request)
        request = self._defaults.applied(request)
        if request.cache_key is not None and self._store is None:
            raise NotSupported(
                "`cache_key`: this agent stores no prompts (it runs without --cache-dir)",
                field="cache_key",
            )
        pictures = self._pictures(request)
        request = pictures.request
        rendered = self._rendered(request)
        text = rendered.text
        prompt = self._prompt(request, rendered, pictures, scope)
        sampling = self._resolver.sampling(request, self._draw_seed())
        loaded = self._load(request.cache_key, scope)
        held = constrain(request, self._answer_format(request, text), self._grammars, ended)
        sequence = NewSequence(
            id=id,
            prompt=prompt,
            max_tokens=request.max_tokens,
            sampling=sampling,
            priority=request.priority or 0,
            shift=self._shift(request, rendered, prompt),
            prefill_only=request.prefill_only,
            stored=None if isinstance(loaded, Ignored) else loaded,
            constraint=held.constraint if held else None,
            scores_prompt=bool(request.prompt_logprobs),
            marks=chain.positions(len(prompt)),
            borders=self._borders(request, rendered, prompt) if self._has_checkpoints else (),
        )
        return Prepared(
            sequence=sequence,
            stop=Stops(
                request.stop,
                tokens=frozenset(request.stop_token_ids),
                min_tokens=request.min_tokens,
                are_included=request.include_stop_str_in_output,
            ),
            notices=(*pictures.notices, *rendered.notices, *self._notices(request, loaded, held)),
            parsing=self._parsing(request, text),
            echo=_echo(request),
            schema=_checked_schema(request),
        )

    def resume(self, prepared: Prepared, resume: Resume) -> Resumed:
        """Return `prepared` continued after another agent's part.

        Raises `EngineFailed` if that is impossible.
        """
        return resumed(prepared, resume, self._vocab, self._context_size)

    def num_tokens(self, request: GenerateRequest) -> int:
        """Return the length of the prompt, even if it does not fit. Raises the errors of
        `prepare`.
        """
        pictures = self._pictures(request)
        return len(Prompt(*self._spans(self._rendered(pictures.request), pictures)))

    def _load(self, key: str | None, scope: str | None) -> StoredPrompt | Ignored | None:
        if key is None or self._store is None:
            return None
        loaded = self._store.load(key, scope)
        if isinstance(loaded, StoredPrompt) and len(loaded.prompt) > self._context_size:
            return ignored(
                f"the prompt that is stored has {len(loaded.prompt)} tokens, more than this "
                f"agent's context of {self._context_size}; it is ignored"
            )
        return loaded

    def _notices(
        self,
        request: GenerateRequest,
        loaded: StoredPrompt | Ignored | None,
        held: ConstrainedAnswer | None,
    ) -> tuple[Notice, ...]:
        notices = [loaded.notice] if isinstance(loaded, Ignored) else []
        if _tools(request) and (notice := self._templates.tools_notice):
            notices.append(notice)
        if held and held.notice:
            notices.append(held.notice)
        return tuple(notices)

    def _answer_format(self, request: GenerateRequest, text: str) -> AnswerFormat | None:
        if request.messages is None:
            return None
        markers = self._family.reasoning
        return AnswerFormat(
            family=self._family_for(request),
            is_told=self._is_told(request),
            template=self._source,
            is_thinking=self._is_thinking(text),
            may_think=markers is not None
            and markers.opening in self._source
            and not request.continue_final_message
            and not text.rstrip().endswith(markers.closing),
            control={marker.decode(): token for token, marker in self._shown[True].items()},
        )

    def _is_told(self, request: GenerateRequest) -> bool:
        """Return whether an instruction describes the tools, because the template ignores them."""
        return bool(_tools(request)) and self._templates.tools_notice is not None

    def _family_for(self, request: GenerateRequest) -> Family:
        """Return the family, with the notation in which the model is asked to write calls."""
        if self._is_told(request):
            return self._family.told(self._source)
        return self._family.forced(self._source) if must_call(request) else self._family

    def _is_thinking(self, text: str) -> bool:
        """Return whether the prompt `text` ends within reasoning."""
        markers = self._family.reasoning
        return markers is not None and text.rstrip().endswith(markers.opening)

    def _parsing(self, request: GenerateRequest, text: str) -> Parsing | None:
        if request.messages is None:
            return None
        family = self._family_for(request)
        if family.name == "plain" and not family.bare:
            return None
        tools = _tools(request)
        return Parsing(
            family=family,
            is_thinking=self._is_thinking(text),
            tools=Tools(tools) if tools else None,
            shown=self._shown[bool(tools)],
        )

    def markers(self, family: Family, *, has_tools: bool) -> dict[int, bytes]:
        """Return the control tokens among a family's markers, with their texts."""
        shown = {}
        for marker in family.markers(has_tools=has_tools):
            tokens = self._vocab.tokenize(marker, add_special=False, parse_special=True)
            if len(tokens) == 1 and not self._vocab.piece(tokens[0]):
                shown[tokens[0]] = marker.encode()
        return shown

    def _pictures(self, request: GenerateRequest) -> Pictures:
        return marked(request, self._media, secrets.token_hex(8))

    def _prompt(
        self,
        request: GenerateRequest,
        rendered: RenderedText,
        pictures: Pictures,
        scope: str | None,
    ) -> Prompt:
        field = "messages" if request.prompt is None else "prompt"
        adapter = self.adapters.key_for(request)
        if pictures:
            if request.truncate_prompt_tokens is not None:
                raise InvalidRequest(
                    "`truncate_prompt_tokens` cannot be used with pictures and sounds",
                    field="truncate_prompt_tokens",
                )
            self._check_text(request, rendered.text)
            prompt = Prompt(*self._spans(rendered, pictures), adapter=adapter, scope=scope)
        else:
            tokens = self._truncated(request, self._prompt_tokens(request, rendered))
            prompt = Prompt(tokens, adapter=adapter, scope=scope)
        if not len(prompt):
            raise InvalidRequest(f"`{field}`: it is empty", field=field)
        self._check_length(request, len(prompt))
        return prompt

    def _truncated(self, request: GenerateRequest, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Return the prompt's last tokens if the client limits the prompt, or else all tokens."""
        most = request.truncate_prompt_tokens
        if most is None:
            return tokens
        if most == -1:
            most = max(1, self._context_size - (request.max_tokens or 1))
        return tokens[-most:]

    def _spans(self, rendered: RenderedText, pictures: Pictures) -> Iterator[Span]:
        """Yield the prompt's spans, with pictures in place of their marks."""
        pictures.check_shown(rendered.text)
        for index, piece in enumerate(pictures.split(rendered.pieces)):
            if isinstance(piece, Picture):
                check_wanted()
                yield from piece.read(self._media)
            else:
                yield self._tokenized(piece, is_first=index == 0)

    def _check_text(self, request: GenerateRequest, text: str) -> None:
        """Raise `PromptTooLong` before tokenisation, which is slow, if the text cannot fit."""
        if not self._longest_token or request.truncate_prompt_tokens is not None:
            return  # some tokenisers have no bound
        num_tokens = len(text.encode(errors="replace")) // self._longest_token
        self._check_length(request, num_tokens, is_at_least=True)

    def _check_length(
        self, request: GenerateRequest, num_tokens: int, *, is_at_least: bool = False
    ) -> None:
        """Raise `PromptTooLong` if the prompt leaves no room for one token of the answer."""
        if num_tokens < self._context_size or request.n_discard is not None:
            return
        field = "messages" if request.prompt is None else "prompt"
        raise PromptTooLong.of(
            num_tokens, self._context_size - 1, is_at_least=is_at_least, field=field
        )

    def _rendered(self, request: GenerateRequest) -> RenderedText:
        if request.prompt is not None:
            return RenderedText(self._raw(request, request.prompt))
        tools = _tools(request)
        return self._templates.for_request(has_tools=bool(tools)).render(
            request.messages or (),
            tools=tools,
            thinking=request.thinking,
            options=request.chat_template_kwargs,
            add_generation_prompt=request.add_generation_prompt,
            goes_on=request.continue_final_message,
            reasoning=self._family.reasoning.opening if self._family.reasoning else "",
        )

    @staticmethod
    def _raw(request: GenerateRequest, prompt: PromptInput) -> str:
        for field in ("tools", "tool_choice", "thinking", "chat_template_kwargs"):
            if getattr(request, field) is not None:
                raise InvalidRequest(f"`{field}` needs `messages`, not `prompt`", field=field)
        return prompt if isinstance(prompt, str) else ""

    def _borders(
        self, request: GenerateRequest, rendered: RenderedText, prompt: Prompt
    ) -> tuple[int, ...]:
        """Return where the user's first and last messages and the answer begin, in tokens.

        Checkpoints are taken at these positions. Messages of the same role have the same opening,
        so the positions are behind the opening. Later prompts may lack part of the answer's
        opening: many templates omit reasoning in a history. A position is missing if the template
        refuses the trial messages.
        """
        messages = request.messages or ()
        if not messages or prompt.has_media or request.n_discard is not None:
            return ()
        if request.truncate_prompt_tokens is not None:
            return ()
        users = [place for place, each in enumerate(messages) if each.role == "user"]
        begins = [
            (*messages[:place], _another(messages[place])) for place in {*users[:1], *users[-1:]}
        ]
        if request.add_generation_prompt and not request.continue_final_message:
            begins.append((*messages, *_LATER))
        places = {self._num_tokens_of(request, each, rendered, prompt) for each in begins}
        return tuple(sorted(places - {0}))

    def _prompt_tokens(self, request: GenerateRequest, rendered: RenderedText) -> tuple[int, ...]:
        if isinstance(request.prompt, tuple) and request.truncate_prompt_tokens is None:
            self._check_length(request, len(request.prompt))
        if request.suffix is not None:
            self._check_text(request, rendered.text + request.suffix)
            return self._between(request.prompt or "", request.suffix)
        if isinstance(request.prompt, tuple):
            return self._given(request.prompt)
        self._check_text(request, rendered.text)
        return self._tokens(rendered)

    def _given(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        for place, token in enumerate(tokens):
            if token >= self._vocab.size:
                field = f"prompt[{place}]"
                raise InvalidRequest(
                    f"`{field}`: there is no token {token}; this model's ids go up to "
                    f"{self._vocab.size - 1}",
                    field=field,
                )
        return tokens

    def _between(self, prompt: PromptInput, suffix: str) -> tuple[int, ...]:
        """Return the fill-in-the-middle prompt for `prompt` and `suffix`."""
        fill_in = self._vocab.fill_in
        if fill_in is None:
            raise InvalidRequest(
                "`suffix`: this model has no tokens for filling in the middle", field="suffix"
            )
        before, after = (
            self._vocab.tokenize(part, add_special=False, parse_special=False)
            if isinstance(part, str)
            else self._given(part)
            for part in (prompt, suffix)
        )
        first = self._vocab.tokenize("", add_special=True, parse_special=False)
        return (*first, fill_in.before, *before, fill_in.after, *after, fill_in.between)

    def _tokens(self, rendered: RenderedText) -> tuple[int, ...]:
        """Tokenise a rendered text: only the template's own text can contain control tokens.

        A raw `prompt` can contain control tokens too. If a client wrote the text of a control
        token in a message, a cut in `rendered` keeps it plain text.
        """
        first, *others = rendered.pieces
        rest = (self._tokenized(each, is_first=False) for each in others)
        return (*self._tokenized(first, is_first=True), *chain.from_iterable(rest))

    def _tokenized(self, piece: str, *, is_first: bool) -> tuple[int, ...]:
        # Many templates write the beginning-of-sequence token themselves; twice confuses models.
        begins = bool(self._vocab.bos_text) and piece.startswith(self._vocab.bos_text)
        return self._vocab.tokenize(piece, add_special=is_first and not begins, parse_special=True)

    def _shift(
        self, request: GenerateRequest, rendered: RenderedText, prompt: Prompt
    ) -> ContextShift | None:
        if request.n_discard is None:
            return None
        num_kept = max(MIN_KEPT, self._head(request, rendered, prompt))
        return ContextShift(num_kept, request.n_discard)

    def _head(self, request: GenerateRequest, rendered: RenderedText, prompt: Prompt) -> int:
        """Return the number of tokens of `prompt` that come from the leading system messages."""
        messages = request.messages or ()
        system = tuple(takewhile(lambda each: each.role in ("system", "developer"), messages))
        return self._num_tokens_of(request, system, rendered, prompt) if system else 0

    def _num_tokens_of(
        self,
        request: GenerateRequest,
        messages: tuple[ChatMessage, ...],
        rendered: RenderedText,
        prompt: Prompt,
    ) -> int:
        """Return how many of the first tokens of `prompt` (`rendered`) belong to `messages`.

        Only the shorter part is tokenised: the text of the messages, or the text after it.
        """
        tools = _tools(request)
        try:
            other = self._templates.for_request(has_tools=bool(tools)).render(
                messages,
                tools=tools,
                thinking=request.thinking,
                options=request.chat_template_kwargs,
                add_generation_prompt=False,
            )
        except RequestError:  # a template may want a user's message after the system's
            return 0
        length, tokens = _num_common(rendered.text, other.text), prompt.tokens
        before, after = rendered.divided(length)
        if len(before.text) > len(after.text):
            pieces = (self._tokenized(piece, is_first=False) for piece in after.pieces)
            rest = tuple(chain.from_iterable(pieces))
            if len(rest) <= len(tokens) and tokens[len(tokens) - len(rest) :] == rest:
                return len(tokens) - len(rest)
        return _num_common(tokens, self._tokens(before))


def _num_common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the common prefix of two token lists."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        length = (least + most + 1) // 2
        if one[least:length] == other[least:length]:
            least = length
        else:
            most = length - 1
    return least


def _checked_schema(request: GenerateRequest) -> Mapping[str, Any] | None:
    """Return the schema to check the content against, if the grammar does not fully enforce it."""
    match request.grammar:
        case JsonSchemaGrammar(schema=schema, strict=False):
            return schema
        case _:
            return None


def _echo(request: GenerateRequest) -> Echo | None:
    if not request.prompt_logprobs:
        return None
    return Echo(request.prompt if isinstance(request.prompt, str) else None)


def _tools(request: GenerateRequest) -> tuple[dict[str, Any], ...] | None:
    return None if request.tool_choice == "none" else request.tools
