"""The steps of a trial, and which one is next. A call may end in any step: the next one goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MODELS = {"q06": 30.0, "q8b": 120.0, "g12b": 180.0, "moe30b": 400.0}
"""Seconds that making each model may take."""

MOST_TRIES = 5
"""Calls that may end in one step before it counts as failed."""

ARCHITECTURES = (
    ("qwen3", "qwen3moe", "deepseek2"),
    ("gemma3", "gpt-oss", "qwen35"),
    ("granitehybrid", "lfm2", "mamba2"),
)
"""Those of `bench.small_models`, as many in a step as fit into a call."""

_LINK = (
    'libraries=$(dirname "$({python} -m bench.peer | head -n 1)") && '
    'cd {venv}/lib/python3*/site-packages/llama_cpp && ln -sfn "$libraries" lib'
)
"""llama-cpp-python finds llama.cpp by a variable, and mtmd and ggml in a folder of its own."""

_TESTS_OF_ENGINES = (
    *("test_sampling", "test_deterministic", "test_speculation", "test_prompt_cache"),
    *("test_adapters", "test_checkpoints", "test_constrained", "test_models_on_one_host"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """Commands, one after the other; `{python}` and `{pack}` stand for what only `run` knows.

    `seconds` must be left of a call for the step to begin. `needs` are steps that must be done
    before. If `obstacle` is set, the step cannot run on this machine, for that reason.
    """

    name: str
    commands: tuple[str, ...]
    seconds: float
    needs: tuple[str, ...] = ()
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """How a step ended so far: `state` is done, failed, skipped or interrupted."""

    state: str
    why: str = ""
    tries: int = 1

    @property
    def is_over(self) -> bool:
        """Whether the step does not run again."""
        return self.state != "interrupted" or self.tries >= MOST_TRIES


def steps(*, has_gpu: bool, cores: int, shrink: int = 1, rounds: int = 3) -> tuple[Step, ...]:
    """All steps, in their order. Large models are `shrink` times smaller in each direction."""
    device = "CUDA0" if has_gpu else "none"
    no_gpu = "" if has_gpu else "there is no GPU that the build can use"
    small = f"/{shrink}" if shrink > 1 else ""
    workers = max(1, cores // 2)
    pytest = "{python} -m pytest -q -p no:cacheprovider"
    against = f"{{python}} -m bench.against_llama_server --rounds {rounds}"
    of_engines = " ".join(f"integration_tests/{name}.py" for name in _TESTS_OF_ENGINES)

    def name_of(model: str) -> str:
        return f"{model}{small}" if model != "q06" else model

    def bench(name: str, command: str, seconds: float, model: str = "q06") -> Step:
        return Step(name, (command,), seconds, (f"model {model}",))

    sampling = f"{{python}} -m bench.device_sampling --device {device} --clock wall --slots 32"
    on_device = f"--device {device}" if has_gpu else ""
    return (
        Step(
            "environment",
            (
                "{system_python} -m venv --clear --without-pip {venv}",
                "{system_python} -m pip --python {python} install --quiet --no-index --no-deps "
                "{pack}/wheels/*.whl",
            ),
            60,
        ),
        Step("build", ("{python} -m bench.peer", _LINK), 30, ("environment",)),
        Step(
            "device",
            (
                '{python} -c "from arriero.agent.engine.llama.devices import loaded_devices; '
                "names = [each.name for _, each in loaded_devices().gpus()]; print(names); "
                f"assert '{device}' in names\"",
            ),
            30,
            ("build",),
            no_gpu,
        ),
        Step("model q06", ("{python} -m bench.make_model tiny q06",), MODELS["q06"], ("build",)),
        bench("streams", f"{against} --scenario streams --scenario prefix", 120),
        bench("32 streams", f"{against} --scenario streams-32", 120),
        bench("128 streams", f"{against} --scenario streams-128", 180),
        Step(
            "tests on the device",
            (f"TEST_DEVICE={device} {pytest} integration_tests/test_vulkan.py",),
            240,
            ("device",),
            no_gpu,
        ),
        bench("device sampling", sampling, 60),
        bench(
            "devices",
            f"{{python}} -m bench.devices --rounds {rounds} --threads {cores} {on_device}",
            240,
        ),
        *(
            step
            for model, seconds in MODELS.items()
            if model != "q06"
            for step in (
                Step(
                    f"model {model}",
                    (f"{{python}} -m bench.make_model {name_of(model)}",),
                    seconds / shrink,
                    ("build",),
                ),
                bench(
                    f"streams of {model}",
                    f"{against} --model {name_of(model)} --scenario streams --scenario streams-32",
                    240,
                    model,
                ),
                bench(
                    f"device sampling of {model}",
                    f"{sampling} --model {name_of(model)} --rounds {rounds}",
                    60,
                    model,
                ),
            )
        ),
        bench("balancer", "{python} -m bench.balancer --streams 32 128", 180),
        bench("stalls", f"{against} --scenario stall --scenario overhead --scenario mixed", 240),
        *(
            bench(
                f"architectures {number}",
                " ".join(
                    ["{python} -m bench.architectures", *map("--architecture {}".format, some)]
                ),
                200,
            )
            for number, some in enumerate(ARCHITECTURES, start=1)
        ),
        Step(
            "tests of the engine",
            (f"{pytest} -n {workers} --dist loadfile tests/agent/engine/llama {of_engines}",),
            300,
            ("build",),
        ),
    )


def skipped(step: Step, states: Mapping[str, State]) -> str:
    """Why a step will not run; empty if it may."""
    missing = [
        each
        for each in step.needs
        if (found := states.get(each)) and found.is_over and found.state != "done"
    ]
    return step.obstacle or (f"it needs {missing[0]}, which is not done" if missing else "")


def next_step(all_steps: Sequence[Step], states: Mapping[str, State], left: float) -> Step | None:
    """The first step that can begin, with `left` seconds of the call; `None` if there is none.

    A step that does not fit is passed over, and the steps that need it.
    """
    for step in all_steps:
        over = (state := states.get(step.name)) is not None and state.is_over
        is_ready = all(each in states and states[each].state == "done" for each in step.needs)
        if not over and is_ready and not step.obstacle and step.seconds <= left:
            return step
    return None
