"""Keeps checking an upstream server: whether it is up, which model it has, what it can do.

The server's models are listed at intervals (`health`). Its abilities are tested once, and again
after it was away or its models changed.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...shared.messages import Issue
from ...shared.reports.model_info import ModelInfo
from .client import Client, KeyFileError
from .health import Health
from .protocol.bodies import Server
from .protocol.dialects import Dialect, dialect_of
from .protocol.failures import UpstreamFault, UpstreamLost, UpstreamRefusal, message_of
from .protocol.listing import ListedModel, NoSuchModel, choose, listed, shown_name
from .protocol.probes import (
    Probe,
    first_probe,
    going_on_probe,
    info_of,
    opening_probe,
    passes,
    probes_of,
    server_of,
    wants_new_names,
    with_new_names,
)

logger = logging.getLogger(__name__)

CHECK_WITHIN = 5.0
"""Maximum seconds for the list of models."""

TRY = 60.0
"""Maximum seconds for the answer to a probe."""


class CannotServe(Exception):
    """The server answers, but has none of the abilities that an agent needs."""


@dataclass(frozen=True, slots=True)
class Known:
    """The properties of a server that is up."""

    model: ListedModel
    server: Server
    info: ModelInfo


class Watch:
    """Watches one server. `name` is the model to serve, if set; clients call it `shown_as`.

    `on_change` is called when `known` or `issues` changed.
    """

    def __init__(
        self,
        client: Client,
        name: str | None,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        shown_as: str | None = None,
    ) -> None:
        self._client = client
        self._name = name
        self._shown_as = shown_as
        self._on_change = on_change
        self._clock = clock
        self._health = Health(clock())
        self._hurry = asyncio.Event()
        self.known: Known | None = None
        """The properties of the server when it was last up."""

    @property
    def server(self) -> Server | None:
        """The server; `None` while it is not up."""
        return self.known.server if self.known is not None and self._health.is_up else None

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The reason why the server is not up; empty while it is up."""
        return () if self._health.issue is None else (self._health.issue,)

    def suspect(self) -> None:
        """Check at once, because a request could not reach the server."""
        if self._health.is_up:
            self._health.suspected(self._clock())
            self._hurry.set()

    def served(self) -> None:
        """Note that the server accepted a request."""
        self._health.served()

    def refused(self, refusal: UpstreamRefusal) -> None:
        """Note that the server refused a request for reasons of its own, or asks for a pause."""
        was_up = self._health.is_up
        issue = self._as_told(_issue_of(refusal))
        if refusal.asks_for_pause:
            self._health.rests(issue, refusal.retry_after or 0.0, self._clock())
        else:
            self._health.refused(issue, self._clock())
        if was_up and not self._health.is_up:
            self._log()
            self._on_change()
            self._hurry.set()

    async def run(self) -> None:
        """Check repeatedly, until cancelled."""
        while True:
            await self.check()
            await self._until_next_check()

    async def _until_next_check(self) -> None:
        """Wait until the next check is due. The time of the check may change during the wait."""
        while (seconds := self._health.next_check - self._clock()) > 0:
            self._hurry.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._hurry.wait()
            except TimeoutError:
                return

    async def check(self) -> None:
        """Check the server now."""
        before = (self.known, self._health.issue)
        try:
            await self._client.read_key()
            await self._find()
        except (UpstreamLost, UpstreamRefusal, UpstreamFault) as error:
            self._turned_away(error)
        except (NoSuchModel, CannotServe) as error:
            self._failed(Issue(code="upstream_model", message=self._told(error)))
        except KeyFileError as error:
            self._failed(Issue(code="upstream_key", message=str(error)))
        else:
            self._health.answered(self._clock())
        if (self.known, self._health.issue) != before:
            self._log()
            self._on_change()

    def _turned_away(self, error: UpstreamLost | UpstreamRefusal | UpstreamFault) -> None:
        issue = _issue_of(error)
        self._failed(issue, is_certain=_is_certain(error))
        if isinstance(error, UpstreamRefusal) and error.asks_for_pause:
            self._health.rests(self._as_told(issue), error.retry_after or 0.0, self._clock())

    def _failed(self, issue: Issue, *, is_certain: bool = True) -> None:
        self._health.failed(self._as_told(issue), self._clock(), is_certain=is_certain)

    def _as_told(self, issue: Issue) -> Issue:
        return Issue(code=issue.code, message=self._told(issue.message), hint=issue.hint)

    def _told(self, what: object) -> str:
        host = f"the upstream server at {self._client.address.shown}"
        return text if host in (text := str(what)) else f"{host}: {text}"

    def _log(self) -> None:
        if self._health.issue is not None:
            logger.warning("%s", self._health.issue.message)
        elif self.known is not None:
            abilities = ", ".join(sorted(self.known.server.abilities))
            kind = self.known.server.dialect.kind
            logger.info("the upstream server (%s) is up; its abilities: %s", kind, abilities)

    # ---- properties

    async def _find(self) -> None:
        model = await self._model()
        if self.known is not None and self.known.model == model and not self._health.was_away:
            return
        server = await self._try(model)
        name = self._shown_as or shown_name(self._name or model.id)
        info = info_of(server, model, name, self._client.address.shown)
        if not info.tasks:
            await self._check_key(model)
            raise CannotServe(
                f"the model {model.id} supports neither chat, nor completion, nor embeddings"
            )
        self.known = Known(model, server, info)

    async def _check_key(self, model: ListedModel) -> None:
        """Raise `UpstreamRefusal` if the server lists models without a key but refuses the given
        key.
        """
        probe = first_probe(model.id)
        try:
            await self._client.post(self._client.address.api + probe.path, probe.body, within=TRY)
        except UpstreamRefusal as error:
            if error.status in (401, 403):
                raise

    async def _model(self) -> ListedModel:
        try:
            body = await self._client.get(self._client.address.api + "/models", within=CHECK_WITHIN)
        except UpstreamRefusal as error:
            if error.status in (404, 405) and self._name is not None:
                return ListedModel(id=self._name)  # some clouds do not list their models
            raise
        return choose(listed(body), self._name)

    async def _try(self, model: ListedModel) -> Server:
        dialect = dialect_of(model.owner)
        chats, words = await self._attempt(first_probe(model.id))
        has_new_names = not chats and wants_new_names(words)
        probes = probes_of(model.id, dialect)
        tried = map(with_new_names, probes) if has_new_names else probes
        shown = {each.shows for each in tried if (await self._attempt(each))[0]}
        if chats or has_new_names:
            shown.add("messages")
        if chats and await self._goes_on(model, dialect):
            shown.add("continue_final_message")
        return server_of(model, dialect, shown, has_new_names=has_new_names)

    async def _goes_on(self, model: ListedModel, dialect: Dialect) -> bool:
        """Return whether the server continues the beginning of its own answer."""
        if "continue_final_message" in dialect.abilities:
            return True
        opening = await self._answer(opening_probe(model.id))
        if isinstance(opening, str):
            return False
        probe = going_on_probe(model.id, dialect, opening)
        return probe is not None and (await self._attempt(probe))[0]

    async def _attempt(self, probe: Probe) -> tuple[bool, str]:
        """Return whether the server passes the probe, and its message if it does not."""
        answer = await self._answer(probe)
        if isinstance(answer, str):
            return False, answer
        return passes(probe, answer), ""

    async def _answer(self, probe: Probe) -> bytes | str:
        """Return the server's answer, or the message of its refusal."""
        try:
            url = self._client.address.api + probe.path
            return await self._client.post(url, probe.body, within=TRY)
        except (UpstreamRefusal, UpstreamLost) as error:
            if _is_passing(error):
                raise
            return str(error)


def _is_passing(error: UpstreamRefusal | UpstreamLost) -> bool:
    """Return whether the failure is temporary, so that the whole check has failed."""
    if isinstance(error, UpstreamLost):
        return error.is_certain
    return error.status in (401, 429, 502, 503, 504, 529)


def _is_certain(error: Exception) -> bool:
    return not isinstance(error, UpstreamLost) or error.is_certain


def _issue_of(error: UpstreamLost | UpstreamRefusal | UpstreamFault) -> Issue:
    if isinstance(error, UpstreamRefusal) and error.status in (401, 403):
        hint = "check --upstream-key-file"
        return Issue(code="upstream_key", message=message_of(error), hint=hint)
    if isinstance(error, UpstreamRefusal) and (error.status == 429 or error.asks_for_pause):
        hint = "raise its limits, or set fewer --slots; the agent tries again by itself"
        return Issue(code="upstream_limit", message=message_of(error), hint=hint)
    message = message_of(error) if isinstance(error, UpstreamRefusal) else str(error)
    hint = "start the server, or correct --upstream; the agent tries again by itself"
    return Issue(code="upstream_unreachable", message=message, hint=hint)
