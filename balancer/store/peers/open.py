"""The peers' side of a store, where several balancers may share it: on PostgreSQL."""

from ..open import OpenedStore
from ..url import StoreUrl
from .port import PeerStore


def peer_store_of(url: StoreUrl, opened: OpenedStore) -> PeerStore | None:
    """What lets balancers over `opened` find one another; `None` where there is one only."""
    if url.kind != "postgresql":
        return None
    from ..sql import SqlStore
    from .postgres import PostgresPeerStore

    if not isinstance(opened.state, SqlStore):
        raise TypeError("PostgreSQL is opened as an SqlStore")
    return PostgresPeerStore(url, opened.state)
