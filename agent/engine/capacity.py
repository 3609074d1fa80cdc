"""What an engine can hold and do, as far as the scheduler has to know."""

from dataclasses import dataclass

BLOCK = 128
"""Cells of a checkpoint that are parked together: with the largest models some megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """`batch_size` bounds a step's tokens, `num_cells` all sequences' computed tokens together.

    A step with prefill beside generating pays while it has at most `most_mixed` tokens.
    `num_holders` counts the numbers that cells can belong to; those that are no slots hold cached
    prefixes. `can_share` says whether cells can belong to several holders, and whether a sequence
    can give up its last ones: not so for recurrent and hybrid models, nor with sliding windows.
    With a `checkpoint_gap` such models share what a sequence had at checkpoints, that many tokens
    apart or more; 0 says that they cannot. Then `most_parked` is in bytes, attention is parked in
    blocks of `block` cells of `cell_bytes`, and each checkpoint has a state of `state_bytes`. One
    that comes back takes `window` cells at least, or as many as it has tokens: layers with a window
    share none of them. With `copies_state` the windows are small and cannot be shared: each
    checkpoint copies its own.
    `can_shift` says whether cells can move to other positions. Of cached prefixes `most_parked`
    cells can be in host memory, and with `is_compact` should be, since every cell in use costs
    time. The state of a cell has `cell_bytes`; 0 says that copying it costs nothing. That of a
    sequence has `fixed_bytes` besides, where it cannot be had in pieces. At most `max_draft` tokens
    are drafted for a sequence in a step, and it can give up as many: none where it cannot. A step
    gives log-probabilities of at most `most_scored` prompt tokens, at least one a slot.

    With `num_streams` each slot has a cache of its own, a stream, and so have cached prefixes as
    many as that leaves; 0 stands for one cache for all. Streams whose parts of a batch differ in
    length are computed one after the other, so prefill beside generating gains nothing.
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
    fixed_bytes: int = 0
    num_streams: int = 0

    @property
    def can_keep(self) -> bool:
        """Whether prefixes can be kept, and states copied in pieces."""
        return self.can_share or bool(self.checkpoint_gap)
