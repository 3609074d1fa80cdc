"""The capacity and abilities of an engine that the scheduler needs to know."""

from dataclasses import dataclass
from math import ceil

BLOCK = 128
"""Tokens of a block of a prefix in host memory or on disk: some megabytes with the largest models.

The disk stores only whole blocks. The rest of a prefix is computed again in less than a second.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity of an engine.

    `batch_size` limits a step's tokens. `num_cells` limits the computed tokens of all sequences
    together. Mixing prefill and generating in a step pays up to `most_mixed` tokens. `num_holders`
    is the number of ids that cells can belong to; ids above the slots hold cached prefixes. If
    `can_share`, a cell can belong to several holders and a sequence can drop its last tokens.
    Recurrent, hybrid and sliding-window models can do neither.

    `checkpoint_gap` is for models without `can_share`: they share prefixes at checkpoints, which
    are at least this many tokens apart; 0 means that they share none. With a gap, `most_parked` is
    in bytes, and attention is offloaded in blocks of `block` cells of `cell_bytes`. Each
    checkpoint has a state of `state_bytes`. A restored checkpoint takes at least `window` cells,
    or as many as it has tokens, because layers with a window share none. With `copies_state` each
    checkpoint copies its small windows, which cannot be shared.

    `can_shift` says whether cells can move to other positions. Host memory holds up to
    `most_parked` cells of cached prefixes. With `is_compact` cached prefixes should be in host
    memory, since every cell in use costs time. A cell's state has `cell_bytes`; 0 means that
    copying is free. At most `max_draft` tokens are drafted for a sequence in a step; 0 if the
    model cannot drop rejected drafts. A step gives log-probabilities for at most `most_scored`
    prompt tokens, at least one per slot.

    With `num_streams` each slot has a cache of its own (a stream), and cached prefixes have the
    remaining streams; 0 means one cache for all. Streams whose parts of a batch differ in length
    are computed one after the other, so mixing prefill and generating gains nothing.
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
        """The size of a checkpoint's largest piece, in cells. A piece is copied at once."""
        if not self.checkpoint_gap:
            return 0
        return max(self.block, ceil(self.state_bytes / max(1, self.cell_bytes)))
