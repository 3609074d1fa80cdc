from collections.abc import Iterator
from datetime import datetime
from typing import Any

import jinja2
import pytest
from jinja2.exceptions import SecurityError

from arriero.agent.chat.templates import sandbox
from arriero.agent.chat.templates.sandbox import Refusal, Sandbox, rendered


def render(source: str, *, ticking: float = 0.0, **variables: Any) -> str:
    """`ticking` is the time between two looks at it, in seconds."""
    looks = iter_times(ticking)
    compiled = Sandbox(lambda: datetime(2031, 7, 9, 12)).compiled(source)
    return rendered(compiled, variables, lambda: next(looks))


def iter_times(ticking: float) -> Iterator[float]:
    now = 1000.0
    while True:
        yield now
        now += ticking


class TestWhatTemplatesExpect:
    def test_blocks_are_trimmed_as_hugging_face_does(self) -> None:
        assert render("a\n    {% if true %}\nb\n    {% endif %}\nc") == "a\nb\nc"

    def test_loop_controls(self) -> None:
        source = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}"
        assert render(source + "{% if i == 3 %}{% break %}{% endif %}{% endfor %}") == "023"

    def test_loop_variables_work_although_rounds_are_counted(self) -> None:
        source = (
            "{% for i in 'abc' %}{{ loop.index }}{{ loop.length }}{{ loop.last }}"
            "{{ loop.nextitem }}{% else %}none{% endfor %}"
            "{% for i in [] %}x{% else %}none{% endfor %}"
            "{% for m in messages if m == 'tool' %}x{% else %}no tool{% endfor %}"
        )
        assert render(source, messages=["user"]) == "13Falseb23Falsec33Truenoneno tool"

    def test_recursive_loops(self) -> None:
        source = "{% for i in tree recursive %}{{ i.n }}{{ loop(i.of) }}{% endfor %}"
        leaf = {"n": 2, "of": []}
        assert render(source, tree=[{"n": 1, "of": [leaf, leaf]}]) == "122"

    def test_macros_and_namespaces(self) -> None:
        source = (
            "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}"
            "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}"
            "{% endfor %}{{ twice(ns.n) }}"
        )
        assert render(source) == "33"

    def test_call_blocks(self) -> None:
        source = (
            "{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}"
        )
        assert render(source) == "<1>"

    def test_lists_that_grow_and_shrink(self) -> None:
        source = "{% set a = [] %}{{ a.append(1) }}{{ a.append(2) }}{{ a.pop(0) }}{{ a }}"
        assert render(source) == "NoneNone1[2]"

    def test_joining_turns_everything_to_text(self) -> None:
        assert render("{{ 1 ~ 'a' ~ none ~ ['<'] }}") == "1aNone['<']"

    def test_operators_do_what_they_do(self) -> None:
        source = "{{ 1 + 2 * 3 ** 2 }} {{ 'a' + 'b' * 3 }} {{ 2 * 'c' }} {{ [1] + [2] }}"
        assert render(source) == "19 abbb cc [1, 2]"

    def test_tojson(self) -> None:
        source = "{{ {'b': '<é>', 'a': [1, 2]} | tojson%s }}"
        assert render(source % "") == '{"b": "<é>", "a": [1, 2]}'
        assert render(source % "(ensure_ascii=true)") == '{"b": "<\\u00e9>", "a": [1, 2]}'
        assert render(source % "(separators=(',', ':'))") == '{"b":"<é>","a":[1,2]}'
        assert render(source % "(indent=1, sort_keys=true)") == (
            '{\n "a": [\n  1,\n  2\n ],\n "b": "<é>"\n}'
        )
        assert render("{{ [1, 2] | map('string') | tojson }}") == '["1", "2"]'

    def test_tojson_knows_only_json(self) -> None:
        with pytest.raises(TypeError, match="Undefined is not JSON"):
            render("{{ nothing | tojson }}")

    def test_dates(self) -> None:
        assert render("{{ strftime_now('%d %b %Y') }}") == "09 Jul 2031"

    def test_what_is_marked_as_generated_is_a_scope(self) -> None:
        source = "{% set x = 1 %}a{% generation %}b{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"
        assert render(source) == "ab21"


class TestWaysOut:
    @pytest.mark.parametrize(
        "expression",
        [
            "''.__class__.__mro__",
            "''['__class__']['__mro__']",
            "(''|attr('__class__')).__mro__",
            "raise_exception.__globals__.keys()",
            "strftime_now.__globals__.keys()",
            "''.format.__self__.__class__.__base__",
            "'{0.__class__.__mro__}'.format(1)",
            "messages[0].update({'role': 'system'})",
            "messages[0].pop('role')",
            "messages.clear()",
            "messages.extend(messages)",
            "self.__init__.__globals__.keys()",
            "cycler.__init__.__globals__.os",
            "lipsum()",
        ],
    )
    def test_are_refused(self, expression: str) -> None:
        with pytest.raises((SecurityError, jinja2.UndefinedError)):
            render("{{ " + expression + " }}", messages=[{"role": "user"}])

    @pytest.mark.parametrize("tag", ["include 'x'", "import 'x' as y", "extends 'x'"])
    def test_other_files_are_out_of_reach(self, tag: str) -> None:
        with pytest.raises(TypeError, match="no loader"):
            render("{% " + tag + " %}")


class TestBounds:
    @pytest.mark.parametrize(
        "source",
        [
            "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
            "{{ f(18) }}",
            "{% set many = range(600) %}"
            "{% for i in many recursive %}{{ loop(many) if loop.depth < 3 }}{% endfor %}",
            "{% for i in [1] recursive %}{{ loop(range(60000)) if loop.depth == 1 }}{% endfor %}",
        ],
    )
    def test_whatever_takes_for_ever_is_stopped(self, source: str) -> None:
        with pytest.raises(Refusal, match="more than 10 seconds"):
            render(source, ticking=sandbox.MAX_SECONDS / 100)

    def test_time_is_looked_at_seldom(self) -> None:
        source = f"{{% for i in range({sandbox._TICKS - 2}) %}}{{% endfor %}}done"
        assert render(source, ticking=sandbox.MAX_SECONDS + 1) == "done"

    def test_output_is_bounded(self) -> None:
        source = "{% set x = 'x' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}"
        with pytest.raises(Refusal, match="wrote more than"):
            render(source)

    @pytest.mark.parametrize(
        "expression",
        [
            "'x' * 10 ** 9",
            "10 ** 9 * [1]",
            "9 ** 9999",
            "10 ** 1000 * 10 ** 1000",
            "big + big",
            "big ~ big",
        ],
    )
    def test_what_operators_make_is_bounded(self, expression: str) -> None:
        with pytest.raises(Refusal, match="too large"):
            render("{% set x = " + expression + " %}", big="x" * (sandbox.MAX_RENDERED - 1))

    def test_recursion_is_bounded(self) -> None:
        with pytest.raises(RecursionError):
            render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
