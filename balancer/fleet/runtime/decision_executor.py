"""Carries out what the core decides: at streams, query handles, agents' sockets and the recorder.

Invariant: a sink or a query handle is here exactly as long as its request has not ended; a peer
exactly as long as the core knows its link. Nothing waits, so decisions are carried out in order.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

from ....shared.inference import Done, Event, Failed, RequestId
from ..core.fleet import Fleet
from ..decisions import (
    Decision,
    Deliver,
    DeliverTokens,
    Disconnect,
    Finish,
    FirstToken,
    LinkId,
    LogBad,
    LogLost,
    Moved,
    Refuse,
    Send,
    Settle,
    ShowLog,
)
from ..queries.query_handle import QueryHandle
from ..recorder import Ending, Recorder
from .log_reads import LogReads
from .peer import Backlog, Peer
from .request_log import log_bad, log_end, log_move
from .stream import Sink


class DecisionExecutor:
    """Knows where each request's events go, and each link's socket."""

    def __init__(
        self, fleet: Fleet, recorder: Recorder, log_reads: LogReads, clock: Callable[[], float]
    ) -> None:
        self._fleet = fleet
        self._recorder = recorder
        self._log_reads = log_reads
        self._clock = clock
        self._sinks: dict[RequestId, Sink] = {}
        self._query_handles: dict[RequestId, QueryHandle] = {}
        self._peers: dict[LinkId, Peer] = {}

    def add_sink(self, sink: Sink) -> None:
        """The events of the request of its id go to `sink`."""
        self._sinks[sink.id] = sink

    def add_query(self, handle: QueryHandle) -> None:
        """The outcome of the query of its id goes to `handle`."""
        self._query_handles[handle.id] = handle

    def add_peer(self, link: LinkId, peer: Peer) -> None:
        """What is sent over `link` goes to `peer`."""
        self._peers[link] = peer

    def forget(self, id: RequestId) -> None:
        """A request or query that was refused, or whose reader has gone."""
        self._sinks.pop(id, None)
        self._query_handles.pop(id, None)

    def forget_peer(self, link: LinkId) -> None:
        """An agent whose socket is closed."""
        self._peers.pop(link, None)

    @property
    def waited_for(self) -> tuple[list[RequestId], list[RequestId]]:
        """The requests, and the queries, whose clients wait. Costs their number."""
        return list(self._sinks), list(self._query_handles)

    def backlog(self) -> Backlog:
        """What waits for all agents. Costs in proportion to their number."""
        waiting = [peer.backlog() for peer in self._peers.values()]
        return Backlog(
            sum(each.num_messages for each in waiting), sum(each.num_bytes for each in waiting)
        )

    def carry_out(self, decisions: Iterable[Decision]) -> None:
        """All of them, in order, except that `Refuse` is for who asked."""
        for decision in decisions:
            match decision:
                case Deliver(request=id, event=event):
                    self._deliver(id, event)
                case DeliverTokens():
                    self._deliver_tokens(decision)
                case FirstToken(seconds=seconds, origin=origin):
                    self._recorder.first_token(seconds, origin)
                case Moved():
                    self._recorder.moved(decision.reason, decision.origin)
                    log_move(decision)
                case Send(link=link, message=message):
                    self._peers[link].send(message)
                case Disconnect(link=link, reason=reason):
                    self._peers.pop(link).disconnect(reason)
                case Finish(ending=ending):
                    self._finish(ending)
                case Settle(query=id, outcome=outcome):
                    self._query_handles.pop(id).settle(outcome)
                case ShowLog(message=message):
                    self._log_reads.read(message)
                case LogBad():
                    log_bad(decision)
                case LogLost(ids=ids):
                    self._log_reads.lost(ids)
                case Refuse():
                    pass
                case _:
                    assert_never(decision)

    def _deliver(self, id: RequestId, event: Event) -> None:
        sink = self._sinks[id]
        sink.put(event)
        if isinstance(event, Done | Failed):
            del self._sinks[id]

    def _deliver_tokens(self, delivery: DeliverTokens) -> None:
        sinks = self._sinks
        for id, token in delivery.tokens:
            sinks[id].put(token)
        self._recorder.tokens(delivery.num_tokens, delivery.origin)
        self._recorder.between_tokens(delivery.gaps, delivery.origin)

    def _finish(self, ending: Ending) -> None:
        self._fleet.settle(ending, self._clock())
        self._recorder.ended(ending)
        log_end(ending)
