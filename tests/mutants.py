"""`make mutants`: plants faults in the product one at a time, and says which of them no test sees.

Faults are small: a comparison turned, a line dropped, a constant off by one. They are planted in a
copy of the tree, where the tests nearest to the changed file run until one fails. Faults that tests
have to see for ever stand in `faults.toml`, beside this file; `--again` plants these.
"""

import argparse
import ast
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.test_architecture import PACKAGES, ROOT, python_files

FAULTS = Path(__file__).parent / "faults.toml"
WITHIN = 200
"""Seconds of processor for the tests of one fault: one that makes them endless counts as seen."""
NEAREST = 3
"""Test files that are tried alone at first: they see most faults, and are collected sooner."""
MOST_FILES = 20
"""Test files that are tried for one fault, the nearest first."""

TURNED: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
"""How an operator is written, and what stands in its place."""


@dataclass(frozen=True)
class Fault:
    """A change of one place: in the file at `path`, the text `before` becomes `after`.

    `before` is a whole line, or several; `number` says which of those that are equal, from 0.
    """

    path: str
    before: str
    after: str
    number: int = 0

    def planted(self, source: str) -> str | None:
        """The source with the fault, or None if the place is gone."""
        pieces = source.split(self.before)
        if len(pieces) < self.number + 2:
            return None
        first, rest = pieces[: self.number + 1], pieces[self.number + 1 :]
        return self.before.join(first) + self.after + self.before.join(rest)

    def __str__(self) -> str:
        return f"{self.path}\n  - {self.before.strip()}\n  + {self.after.strip()}"


def faults_of(path: str, source: str, lines: set[int] | None = None) -> Iterator[Fault]:
    """Every fault that this tool knows to plant in these lines, or in any."""
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(number: int, column: int) -> int:
        return starts[number - 1] + column

    for node, (first, last, new) in _changes(ast.parse(source), text, at):
        if lines is not None and not lines & set(range(node.lineno, (node.end_lineno or 0) + 1)):
            continue
        begin = text.rfind(b"\n", 0, first) + 1
        end = text.find(b"\n", last)
        before = text[begin:end]
        after = text[begin:first] + new.encode() + text[last:end]
        number = text[:begin].count(before)
        yield Fault(path, before.decode(), after.decode(), number)


Change = tuple[int, int, str]
"""The bytes from here to there become this text."""


def _changes(tree: ast.Module, text: bytes, at) -> Iterator[tuple[ast.expr | ast.stmt, Change]]:  # type: ignore[no-untyped-def]
    for node in _code(tree):
        whole = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                sides = (left, right)
            case ast.BoolOp(op=operator, values=[left, right, *_]):
                sides = (left, right)
            case ast.BinOp(left=left, op=operator, right=right) if not _is_text(left, right):
                sides = (left, right)
            case ast.Constant(value=bool() as value):
                yield node, (*whole, str(not value))
                continue
            case ast.Constant(value=int() | float() as value):
                yield node, (*whole, str(value + 1))
                continue
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, (whole[0], at(operand.lineno, operand.col_offset), "")
                continue
            case ast.If(test=test):
                begin = at(test.lineno, test.col_offset)
                end = at(test.end_lineno, test.end_col_offset)
                yield test, (begin, end, f"not ({text[begin:end].decode()})")
                continue
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
                yield node, (*whole, "pass")
                continue
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield node, (*whole, "pass")
                continue
            case _:
                continue
        if type(operator) not in TURNED:
            continue
        written, other = TURNED[type(operator)]
        begin = at(sides[0].end_lineno, sides[0].end_col_offset)
        end = at(sides[1].lineno, sides[1].col_offset)
        gap = re.compile(rf"(?<![\w<>=]){re.escape(written)}(?![\w<>=])")
        if found := gap.search(text[begin:end].decode()):
            yield node, (begin + found.start(), begin + found.end(), other)


def _is_text(*sides: ast.expr) -> bool:
    return any(
        isinstance(each, ast.JoinedStr)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
        for each in sides
    )


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """What computes: no types, no logging, no text of errors, no check of types."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, ast.AST) or isinstance(each, ast.Raise | ast.Assert):
                continue
            if isinstance(each, ast.Expr) and re.search(
                r"logger\.|check_integrity", ast.unparse(each)
            ):
                continue
            yield from [each] if isinstance(each, ast.expr | ast.stmt) else ()
            yield from _code(each)


# ---- the nearest tests


class Nearest:
    """Which tests a file of the product is near to, by the imports between them."""

    def __init__(self, folder: Path) -> None:
        files = python_files(*PACKAGES, "tests")
        self._imports = {
            path: {each for each in _imported(path, file.read_text()) if each in files}
            for path, file in files.items()
        }

    def tests_of(self, path: str) -> list[str]:
        """Test files that import it, by the length of the chain; its namesake first."""
        namesake = f"test_{Path(path).name}"
        found: dict[str, int] = {path: 0}
        for distance in range(1, 4):
            near = {
                each for each, names in self._imports.items() if names & found.keys()
            } - found.keys()
            found.update(dict.fromkeys(near, distance))
        tests = [each for each in found if Path(each).name.startswith("test_")]
        folder = str(Path(path).parent)

        def order(test: str) -> tuple[bool, int, bool, str]:
            is_there = str(Path(test).parent) == f"tests/{folder}"
            return not (is_there and Path(test).name == namesake), found[test], not is_there, test

        return sorted(tests, key=order)[:MOST_FILES]


def _imported(path: str, source: str) -> Iterator[str]:
    package = Path(path).parent
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package.joinpath(*[".."] * (node.level - 1), *(node.module or "").split("."))
                base = Path(os.path.normpath(base))
            else:
                base = Path(*(node.module or "").removeprefix("arriero.").split("."))
            for each in (base, *(base / alias.name for alias in node.names)):
                yield f"{each}.py"
                yield f"{each}/__init__.py"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield f"{alias.name.removeprefix('arriero.').replace('.', '/')}.py"


# ---- trying


class Copy:
    """A copy of the tree, which the faults are planted in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def failure(self, fault: Fault | None, tests: list[str]) -> str | None:
        """The first test that fails with the fault planted; None if all pass."""
        source = ROOT / fault.path if fault else None
        if fault and source:
            planted = fault.planted(source.read_text())
            assert planted is not None, f"this place is gone:\n{fault}"
            (self._folder / fault.path).write_text(planted)
        try:
            return self._first_failure(tests[:NEAREST]) or self._first_failure(tests[NEAREST:])
        finally:
            if fault and source:
                shutil.copy2(source, self._folder / fault.path)

    def _first_failure(self, tests: list[str]) -> str | None:
        if not tests:
            return None
        command = (*(sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider"), *tests)
        paths = os.pathsep.join((str(self._folder / ".links"), str(self._folder)))
        environ = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(
            command,
            cwd=self._folder,
            env=environ,
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (WITHIN, WITHIN)),
        )
        if run.returncode == 0:
            return None
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
        return found[1] if found else run.stdout[-500:] or "the tests do not end"


def changed_lines(since: str) -> dict[str, set[int]]:
    """The lines of the product that are not as they were at a commit, by file."""
    command = ["git", "diff", "-U0", since, "--", *(f"{each}/*.py" for each in PACKAGES)]
    found: dict[str, set[int]] = {}
    path = ""
    for line in subprocess.check_output(command, cwd=ROOT, text=True).splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            first, num = int(hunk[1]), int(hunk[2] or 1)
            found.setdefault(path, set()).update(range(first, first + num))
    return found


def drawn(number: int, seed: int, since: str | None, under: list[str]) -> list[Fault]:
    """Faults at random: in what changed, or anywhere, below these paths."""
    changed = changed_lines(since) if since else None
    faults: list[Fault] = []
    for path, file in sorted(python_files(*PACKAGES).items()):
        if (changed is None or path in changed) and path.startswith(tuple(under)):
            lines = None if changed is None else changed[path]
            faults += faults_of(path, file.read_text(), lines)
    return random.Random(seed).sample(faults, min(number, len(faults)))


def listed() -> list[Fault]:
    """The faults of `faults.toml`."""
    rows = tomllib.loads(FAULTS.read_text())["fault"]
    return [Fault(row["path"], row["before"], row["after"], row.get("number", 0)) for row in rows]


def main() -> int:
    """Returns the exit code: 1 if there is a fault that no test has seen."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=20, help="how many faults")
    parser.add_argument("--seed", type=int, help="draws the same faults again")
    parser.add_argument("--since", help="only in lines that changed since this commit")
    parser.add_argument("--again", action="store_true", help="those of tests/faults.toml instead")
    parser.add_argument("under", nargs="*", default=[""], help="only in files below these paths")
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    if arguments.again:
        faults = listed()
    else:
        faults = drawn(arguments.number, seed, arguments.since, arguments.under)
        print(f"seed {seed}", flush=True)
    nearest = Nearest(ROOT)
    unseen: list[Fault] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for fault in faults:
            tests = nearest.tests_of(fault.path)
            seen_by = copy.failure(fault, tests) if tests else None
            print(f"{fault}\n  {seen_by or 'NOT SEEN'}", flush=True)
            if not seen_by:
                unseen.append(fault)
    print(f"\nseen: {len(faults) - len(unseen)} of {len(faults)}")
    for fault in unseen:
        print(f"not seen: {fault}")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
