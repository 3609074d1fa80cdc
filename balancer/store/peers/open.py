"""The peers' side of a store, where several balancers may share it: on PostgreSQL."""

from ..open import OpenedStore
from ..url import StoreUrl
from .port import NewsHub, PeerStore


def peer_store_of(
    url: StoreUrl, opened: OpenedStore, hub: NewsHub | None = None
) -> PeerStore | None:
    """What lets balancers over `opened` find one another; `None` where there is one only.

    `hub` does so for workers over one SQLite file.
    """
    if url.kind != "postgresql" and hub is None:
        return None
    from ..sql import SqlStore
    from .postgres import PostgresPeerStore

    if not isinstance(opened.state, SqlStore):
        raise TypeError("a database is opened as an SqlStore")
    if url.kind != "postgresql" and hub is not None:
        opened.state.on_news = hub.spread
        return hub
    return PostgresPeerStore(url, opened.state)
