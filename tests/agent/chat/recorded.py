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
    "command-r-plus-newline": (
        "command-r",
        'Let me look.\nAction:\n```json\n[{"tool_name": "now", "parameters": {}}]\n```',
        False,
        [SAID, *call("now", "{}")],
    ),
    "minimax-m2": (
        "minimax",
        "I need the weather.\n</think>\n\n<minimax:tool_call>\n"
        '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
        True,
        [THOUGHT, *call()],
    ),
    "deepseek-v3.2": (
        "dsml",
        "I need the weather.</think>Let me look.\n\n<｜DSML｜function_calls>\n"
        '<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
        '</｜DSML｜invoke>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
        True,
        [THOUGHT, SAID, *call(arguments='{"city": "Oslo", "days": 3}'), *call("now", "{}")],
    ),
    "deepseek-v4": (
        "dsml",
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="now">\n'
        '<｜DSML｜parameter name="zone" string="true">3</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="at" string="false">[1, {"a": null}]</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        False,
        call("now", '{"zone": "3", "at": [1, {"a": null}]}'),
    ),
    "kimi-k3": (
        "kimi-k3",
        "I need the weather.<|close|>think<|sep|><|open|>response<|sep|>Let me look."
        '<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="get_weather" index="1"'
        '<|sep|><|open|>argument key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
        '<|close|>call<|sep|><|open|>call tool="now" index="2"<|sep|><|close|>call<|sep|>'
        "<|close|>tools<|sep|><|close|>message<|sep|>",
        True,
        [THOUGHT, SAID, *call(arguments='{"city": "Oslo", "days": 3}'), *call("now", "{}")],
    ),
    "seed-oss": (
        "seed",
        "<seed:think>I need the weather.</seed:think>\nLet me look.\n\n<seed:tool_call>\n"
        "<function=get_weather>\n<parameter=city>Oslo</parameter>\n"
        "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>\n"
        "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
        False,
        [THOUGHT, SAID, *call(arguments='{"city": "Oslo", "days": 3}'), *call("now", "{}")],
    ),
    "nemotron-nano-v2": (
        "nemotron",
        "I need the weather.\n</think>\n\n<TOOLCALL>["
        f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}, '
        '{"name": "now", "arguments": {}}]</TOOLCALL>',
        True,
        [THOUGHT, *call(), *call("now", "{}")],
    ),
    "nemotron-3-nano": (
        "qwen",
        "I need the weather.\n</think>\n<tool_call>\n<function=get_weather>\n<parameter=city>\n"
        "Oslo\n</parameter>\n</function>\n</tool_call>\n",
        True,
        [THOUGHT, *call()],
    ),
    "lfm2": (
        "lfm",
        "<|tool_call_start|>[get_weather(city='Oslo', days=3), now()]<|tool_call_end|>Let me look.",
        False,
        [*call(arguments='{"city": "Oslo", "days": 3}'), *call("now", "{}"), SAID],
    ),
    "lfm2-json": (
        "lfm",
        "<think>I need the weather.</think>Let me look.<|tool_call_start|>"
        f'[{{"name": "get_weather", "arguments": {ARGUMENTS}}}]<|tool_call_end|>',
        False,
        [THOUGHT, SAID, *call()],
    ),
    "llama4": (
        "llama4",
        '<|python_start|>[get_weather(city="Oslo")]<|python_end|>',
        False,
        call(),
    ),
    "apertus": (
        "apertus",
        "<|inner_prefix|>I need the weather.<|inner_suffix|>Let me look.<|tools_prefix|>"
        f'[{{"get_weather": {ARGUMENTS}}}, {{"now": {{}}}}]<|tools_suffix|>',
        False,
        [THOUGHT, SAID, *call(), *call("now", "{}")],
    ),
    "apriel-1.6": (
        "apriel",
        "I need the weather.\n[BEGIN FINAL RESPONSE]\nLet me look.\n"
        f'<tool_calls>[{{"name": "get_weather", "arguments": {ARGUMENTS}}}, '
        '{"name": "now", "arguments": {}}]</tool_calls>',
        True,
        [THOUGHT, SAID, *call(), *call("now", "{}")],
    ),
    "apriel-1.5": (
        "apriel",
        "Here are my reasoning steps:\nI need the weather.\n[BEGIN FINAL RESPONSE]\n"
        "Let me look.\n[END FINAL RESPONSE]",
        False,
        [THOUGHT, SAID],
    ),
    "hunyuan-3": (
        "hunyuan",
        "I need the weather.</think:opensource>Let me look.<tool_calls:opensource>\n"
        "<tool_call:opensource>get_weather<tool_sep:opensource>\n"
        "<arg_key:opensource>city</arg_key:opensource>\n"
        "<arg_value:opensource>Oslo</arg_value:opensource>\n</tool_call:opensource>\n"
        "<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n"
        "</tool_calls:opensource>",
        True,
        [THOUGHT, SAID, *call(), *call("now", "{}")],
    ),
    "solar-open": (
        "solar",
        "<|think|>I need the weather.<|end|><|begin|>assistant<|content|>Let me look.<|end|>"
        "<|begin|>assistant<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>get_weather"
        f"<|tool_call:args|>{ARGUMENTS}<|tool_call:end|><|tool_call:begin|>def<|tool_call:name|>"
        "now<|tool_call:args|>{}<|tool_call:end|><|calls|>",
        False,
        [THOUGHT, SAID, *call(), *call("now", "{}")],
    ),
    "gigachat-3": (
        "gigachat",
        "Let me look.<|message_sep|>\n\nfunction call<|role_sep|>\n"
        f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}<|message_sep|>\n\n',
        False,
        [SAID, *call()],
    ),
    "gigachat-3.1": (
        "gigachat",
        f'Let me look.<|function_call|>{{"name": "get_weather", "arguments": {ARGUMENTS}}}',
        False,
        [SAID, *call()],
    ),
    "minimax-m1": (
        "minimax-m1",
        "<think>\nI need the weather.\n</think>\n\n<tool_calls>\n"
        f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n'
        '{"name": "now", "arguments": {}}\n</tool_calls>',
        False,
        [THOUGHT, *call(), *call("now", "{}")],
    ),
    "minimax-m3": (
        "minimax-m3",
        "<mm:think>I need the weather.</mm:think>Let me look.",
        False,
        [THOUGHT, SAID],
    ),
    "minicpm5": (
        "minicpm",
        "<think>\nI need the weather.\n</think>\n\nLet me look.\n"
        '<function name="get_weather"><param name="city">Oslo</param></function>\n'
        '<function name="now"></function>',
        False,
        [THOUGHT, SAID, *call(), *call("now", "{}")],
    ),
    "functionary-v3.1": (
        "functionary",
        f"Let me look.<function=get_weather>{ARGUMENTS}</function><function=now>{{}}</function>",
        False,
        [SAID, *call(), *call("now", "{}")],
    ),
    "functionary-v3.2": (
        "functionary-v3.2",
        f"all\nLet me look.>>>get_weather\n{ARGUMENTS}>>>now\n{{}}",
        False,
        [SAID, *call(), *call("now", "{}")],
    ),
    "functionary-v3.2-call": (
        "functionary-v3.2",
        f"get_weather\n{ARGUMENTS}",
        False,
        call(),
    ),
    "exaone-deep": (
        "exaone",
        "I need the weather.\n</thought>\n\nLet me look.",
        True,
        [THOUGHT, SAID],
    ),
    "exaone-4": (
        "qwen",
        f'<tool_call>{{"name": "get_weather", "arguments": {ARGUMENTS}}}</tool_call>',
        False,
        call(),
    ),
    "step-3.5": (
        "qwen",
        "I need the weather.\n</think>\nLet me look.<tool_call>\n<function=now>\n</function>\n"
        "</tool_call>",
        True,
        [THOUGHT, SAID, *call("now", "{}")],
    ),
    "cohere-a": (
        "command-r",
        "I need the weather.<|END_THINKING|><|START_TEXT|>Let me look.<|END_TEXT|>",
        True,
        [THOUGHT, SAID],
    ),
}
"""By name: the family, the text, whether the prompt left reasoning open, and what it says."""
