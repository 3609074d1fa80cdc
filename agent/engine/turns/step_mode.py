"""Whether the next step generates, reads prompts, or does both at once.

A mixed step reads the weights once instead of twice, which pays while there is little to read. On
CPUs it no longer pays where a batch is large enough for llama.cpp's tiled attention: that computes
all queries of a tile against all cells that any of them needs, so rows of different sequences are
computed against each other's cells. A chunk of 64 tokens beside 7 streams takes 523 ms so, one
after the other 481; one of 32 takes 278 and 319. Where a mixed step does not pay, steps that
generate and steps that read take turns.

A tile that is not full costs as much as a full one, and what fills none is dearer still the further
back its attention reaches: 60 tokens at position 1,200 take 850 ms, at the start 360. So what is
left over is read first, and whole tiles to the end.

Where each sequence has a cache of its own, llama.cpp computes parts of a batch that differ in
length one after the other: then a mixed step never pays.
"""


class StepMode:
    """Both at once up to `most_mixed` tokens, if it `can_mix` at all."""

    def __init__(self, most_mixed: int, *, can_mix: bool = True) -> None:
        self._most_mixed = most_mixed
        self._can_mix = can_mix

    def reads_alone(
        self, num_generating: int, num_prompt_tokens: int, *, is_media: bool = False
    ) -> bool:
        """Whether so many prompt tokens are read in a step of their own, and not beside streams.

        Media always are: llama.cpp takes them in batches of their own. Who waits while prompts are
        read is next (`adapter_turns`).
        """
        if not num_generating or not num_prompt_tokens:
            return False
        is_dear = num_generating + num_prompt_tokens > self._most_mixed
        return is_dear or is_media or not self._can_mix

    def chunk(self, most: int, num_wanted: int) -> int:
        """How many of the `num_wanted` tokens of a prompt to read where time allows `most`."""
        tile = self._most_mixed + 1
        if not tile <= most < num_wanted:
            return most
        return most - (most - num_wanted) % tile
