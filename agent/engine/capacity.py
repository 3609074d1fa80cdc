"""The capacity and abilities of an engine that the scheduler needs to know."""

from dataclasses import dataclass
from math import ceil

BLOCK = 128
"""Tokens of a block of a prefix in host memory or on disk: some megabytes with the largest models.

On disk are whole blocks. A shorter rest of a prefix is computed again in less than a second.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity of an engine.

    `batch_size` limits a step's tokens, `num_cells` the computed tokens of all sequences together.
    Mixing prefill and generating in a step pays up to `most_mixed` tokens. `num_holders` is the
    number of ids that cells can belong to; ids above the slots hold cached prefixes. `can_share`
    says whether cells can belong to several holders, and whether a sequence can drop its last ones:
    not for recurrent and hybrid models, nor with sliding windows.

    With a `checkpoint_gap` such models share prefixes at checkpoints, at least that many tokens
    apart; 0 means that they cannot. Then `most_parked` is in bytes, attention is offloaded in
    blocks of `block` cells of `cell_bytes`, and each checkpoint has a state of `state_bytes`. A
    restored checkpoint takes at least `window` cells, or as many as it has tokens: layers with a
    window share none of them. With `copies_state` the windows are small and cannot be shared: each
    checkpoint copies its own.

    `can_shift` says whether cells can move to other positions. Up to `most_parked` cells of cached
    prefixes can be in host memory, and with `is_compact` should be, since every cell in use costs
    time. A cell's state has `cell_bytes`; 0 means that copying it is free. At most `max_draft`
    tokens are drafted for a sequence in a step, and it can drop that many: 0 if it cannot. A step
    gives log-probabilities for at most `most_scored` prompt tokens, at least one per slot.

    With `num_streams` each slot has a stream, a cache of its own, and cached prefixes have the
    remaining ones; 0 means one cache for all. Streams whose parts of a batch differ in length are
    computed one after the other, so mixing prefill and generating gains nothing.
    """

    batch_size: int
    most_mixed: int
    num_cells: int
    num_holders: int
    can_share: bool
    can_shift: bool
    most_parked: int
    checkpoint_gap: int = 0
    block: int = BLOCK
    state_bytes: int = 0
    window: int = 0
    copies_state: bool = False
    is_compact: bool = False
    max_draft: int = 0
    most_scored: int = 64
    cell_bytes: int = 0
    num_streams: int = 0

    @property
    def largest_piece(self) -> int:
        """The cells' worth of a checkpoint's largest piece, which is copied at once."""
        if not self.checkpoint_gap:
            return 0
        return max(self.block, ceil(self.state_bytes / max(1, self.cell_bytes)))
