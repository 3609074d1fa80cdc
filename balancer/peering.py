"""Other balancers over the same store, as the daemon wires them up: what news make it read."""

import uuid
from importlib.metadata import version

from .access.key_keeper import KeyKeeper
from .fleet.runtime.fleet_runtime import FleetRuntime
from .management.steering.drains import DrainKeeper
from .management.steering.keeper import DesiredStateKeeper
from .peers.peers import Peers
from .persistence import Persistence


def open_peers(
    name: str,
    persistence: Persistence,
    runtime: FleetRuntime,
    *,
    keeper: DesiredStateKeeper,
    drains: DrainKeeper,
    keys: KeyKeeper,
) -> Peers | None:
    """What keeps this balancer in touch with others; `None` where the store has only one."""
    if persistence.peers is None:
        return None
    store = persistence.store
    return Peers(
        persistence.peers,
        runtime,
        {
            "desired_state": lambda: keeper.look(store),
            "keys": keys.look,
            "cordons": drains.look,
        },
        run=uuid.uuid4().hex,
        name=name,
        version=version("arriero"),
    )
