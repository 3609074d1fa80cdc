"""Refuses prompts that are longer than every context of the fleet, before they wait for a slot.

Token ids are counted. A text has at least as many tokens as its bytes divided by the longest token
of the vocabulary, where the tokenizer keeps every byte. What a chat template makes of `messages` is
known to agents only, so they are never refused here; nor is a prompt that may be shortened
(`n_discard`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from ....shared.errors import PromptTooLong
from ....shared.inference import GenerateRequest
from ....shared.reports.model_info import ModelInfo


@dataclass(frozen=True, slots=True)
class PromptRoom:
    """The longest prompts that fit: in tokens, and in bytes of a text (`inf` where unknown).

    A context that holds `num_tokens` has room for one more, which is for the answer.
    """

    num_tokens: float = inf
    num_bytes: float = inf
    longest_token: int = 1
    """Bytes of the longest token, from which `num_bytes` was computed."""


def room_of(infos: Iterable[ModelInfo]) -> PromptRoom:
    """What fits into the largest context among these models; anything if there is none."""
    return largest(_room(info) for info in infos if "generate" in info.tasks)


def largest(rooms: Iterable[PromptRoom]) -> PromptRoom:
    """What fits into any of these; anything if there is none."""
    all_rooms = list(rooms)
    if not all_rooms:
        return PromptRoom()
    by_bytes = max(all_rooms, key=lambda room: room.num_bytes)
    num_tokens = max(room.num_tokens for room in all_rooms)
    return PromptRoom(num_tokens, by_bytes.num_bytes, by_bytes.longest_token)


def check_length(request: GenerateRequest, room: PromptRoom) -> PromptTooLong | None:
    """The error for a prompt that fits nowhere."""
    prompt = request.prompt
    if prompt is None or request.n_discard is not None:
        return None
    if not isinstance(prompt, str):
        return _too_long(len(prompt), room) if len(prompt) > room.num_tokens else None
    num_bytes = len(prompt) if prompt.isascii() else len(prompt.encode("utf-8", "replace"))
    if num_bytes <= room.num_bytes:
        return None
    return _too_long(-(-num_bytes // room.longest_token), room, is_at_least=True)


def _room(info: ModelInfo) -> PromptRoom:
    if info.upstream is not None and not info.context_size:
        return PromptRoom()  # not every server tells
    num_tokens = max(info.context_size - 1, 0)
    longest = info.longest_token
    return PromptRoom(num_tokens, num_tokens * longest if longest else inf, longest or 1)


def _too_long(num_tokens: int, room: PromptRoom, *, is_at_least: bool = False) -> PromptTooLong:
    return PromptTooLong.of(
        num_tokens, int(room.num_tokens), is_at_least=is_at_least, field="prompt"
    )
