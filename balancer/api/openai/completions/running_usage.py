"""Running token counts of all choices for each chunk of a stream, as in vLLM."""

from dataclasses import replace

from .....shared.inference import Begun, Done, Event, Token, Usage
from ..answer_types import OpenAIUsage


class RunningUsage:
    """Counts by choice; `num_choices` in a row share a prompt, which counts once."""

    def __init__(self, num_choices: int) -> None:
        self._num_choices = num_choices
        self._usages: dict[int, Usage] = {}

    def take(self, number: int, event: Event) -> None:
        """Counts `event` of the choice `number`."""
        usage = self._usages.get(number, Usage())
        match event:
            case Begun():
                usage = replace(
                    usage, prompt_tokens=event.prompt_tokens, cached_tokens=event.cached_tokens
                )
            case Token():
                thought = len(event.tokens) if event.kind == "reasoning" else 0
                usage = replace(
                    usage,
                    completion_tokens=usage.completion_tokens + len(event.tokens),
                    reasoning_tokens=usage.reasoning_tokens + thought,
                )
            case Done():
                usage = event.usage
        self._usages[number] = usage

    @property
    def total(self) -> OpenAIUsage:
        """So far."""
        return total_usage(self._usages, self._num_choices)


def total_usage(usages: dict[int, Usage], num_choices: int) -> OpenAIUsage:
    """The counts of all choices together; each prompt is counted from its first choice."""
    prompts = [usage for number, usage in usages.items() if number % num_choices == 0]
    prompt_tokens = sum(usage.prompt_tokens for usage in prompts)
    completion_tokens = sum(usage.completion_tokens for usage in usages.values())
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in prompts)},
        "completion_tokens_details": {
            "reasoning_tokens": sum(usage.reasoning_tokens for usage in usages.values())
        },
    }
