"""Answers in each family's documented format, and what they say."""

from tests.agent.chat.telling import Piece

ARGUMENTS = '{"city": "Oslo"}'


def call(name: str = "get_weather", arguments: str = ARGUMENTS) -> list[Piece]:
    return [("call", name), ("tool_call", arguments), ("end", "")]


THOUGHT: Piece = ("reasoning", "I need the weather.")
SAID: Piece = ("content", "Let me look.")

RECORDED: dict[str, tuple[str, str, bool, list[Piece]]] = {
    "qwen2.5": (
        "qwen",
        "Let me look.\n"
        f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        False,
        [SAID, *call(), *call("now", "{}")],
    ),
    "qwen3": (
        "qwen",
        "<think>\nI need the weather.\n</think>\n\n"
        f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>',
        False,
        [THOUGHT, *call()],
    ),
    "qwen3-thinking": (
        "qwen",
        "I need the weather.\n</think>\n\nLet me look.",
        True,
        [THOUGHT, SAID],
    ),
    "qwen3.5": (
        "qwen",
        "I need the weather.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\n"
        'Oslo "S"\nNorway\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n'
        "</tool_call>",
        True,
        [THOUGHT, *call(arguments='{"city": "Oslo \\"S\\"\\nNorway", "days": 3}')],
    ),
    "llama3.1": (
        "llama",
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}; '
        '{"name": "now", "parameters": {}}',
        False,
        [*call(), *call("now", "{}")],
    ),
    "llama3.2": (
        "llama",
        '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        False,
        call(),
    ),
    "mistral-nemo": (
        "mistral",
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {ARGUMENTS}}}, '
        '{"name": "now", "arguments": {}, "id": "abcdefghi"}]',
        False,
        [*call(), *call("now", "{}")],
    ),
    "mistral-small": (
        "mistral",
        f"Let me look.[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{ARGUMENTS}",
        False,
        [SAID, *call()],
    ),
    "ministral": (
        "mistral",
        f"[THINK]I need the weather.[/THINK][TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}"
        "[TOOL_CALLS]now[ARGS]{}",
        False,
        [THOUGHT, *call(), *call("now", "{}")],
    ),
    "deepseek-r1": (
        "deepseek",
        "I need the weather.\n</think>\n\nLet me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
        f"function<｜tool▁sep｜>get_weather\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        True,
        [THOUGHT, SAID, *call(), *call("now", "{}")],
    ),
    "deepseek-v3.1": (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        f"{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        False,
        call(),
    ),
    "kimi-k2": (
        "kimi",
        "<think>I need the weather.</think>Let me look.<|tool_calls_section_begin|>"
        "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        f"{ARGUMENTS}<|tool_call_end|><|tool_call_begin|>functions.now:1"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        False,
        [THOUGHT, SAID, *call(), *call("now", "{}")],
    ),
    "gemma4": (
        "gemma",
        "<|channel>thought\nI need the weather.\n<channel|>"
        '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:3}<tool_call|>'
        "<|tool_call>call:now{}<tool_call|>",
        False,
        [THOUGHT, *call(arguments='{"city": "Oslo", "days": 3}'), *call("now", "{}")],
    ),
    "gemma3": ("plain", "Let me look.", False, [SAID]),
    "gpt-oss": (
        "gpt-oss",
        "<|channel|>analysis<|message|>I need the weather.<|end|><|start|>assistant<|channel|>"
        "commentary<|message|>Let me look.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.get_weather <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
        False,
        [THOUGHT, SAID, *call()],
    ),
    "gpt-oss-answer": (
        "gpt-oss",
        "<|channel|>analysis<|message|>I need the weather.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Let me look.<|return|>",
        False,
        [THOUGHT, SAID],
    ),
    "granite3.3": (
        "granite",
        f'<|tool_call|>[{{"name": "get_weather", "arguments": {ARGUMENTS}}}]',
        False,
        call(),
    ),
    "granite3.3-thinking": (
        "granite",
        "<think>I need the weather.</think>\n<response>Let me look.</response>",
        False,
        [THOUGHT, SAID],
    ),
    "granite4": (
        "granite",
        f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>',
        False,
        call(),
    ),
    "phi4-mini": (
        "phi",
        f'<|tool_call|>[{{"name": "get_weather", "arguments": {ARGUMENTS}}}]<|/tool_call|>',
        False,
        call(),
    ),
    "phi4-mini-functools": (
        "phi",
        f'functools[{{"name": "get_weather", "arguments": {ARGUMENTS}}}]',
        False,
        call(),
    ),
    "phi4-reasoning": (
        "phi",
        "<think>I need the weather.</think>Let me look.",
        False,
        [THOUGHT, SAID],
    ),
    "glm4.6": (
        "glm",
        "<think>I need the weather.</think>\nLet me look.\n<tool_call>get_weather\n"
        "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        False,
        [THOUGHT, SAID, *call(arguments='{"city": "Oslo", "days": 3}'), *call("now", "{}")],
    ),
    "command-r7b": (
        "command-r",
        "<|START_THINKING|>I need the weather.<|END_THINKING|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo"}},\n'
        '    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        False,
        [THOUGHT, *call(), *call("now", "{}")],
    ),
    "command-r7b-answer": (
        "command-r",
        "<|START_RESPONSE|>Let me look.<|END_RESPONSE|>",
        False,
        [SAID],
    ),
    "command-r-plus": (
        "command-r",
        'Action: ```json\n[\n    {\n        "tool_name": "get_weather",\n'
        '        "parameters": {"city": "Oslo"}\n    }\n]```',
        False,
        call(),
    ),
    "minimax-m2": (
        "minimax",
        "I need the weather.\n</think>\n\n<minimax:tool_call>\n"
        '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
        True,
        [THOUGHT, *call()],
    ),
}
"""By name: the family, the text, whether the prompt left reasoning open, and what it says."""
