"""What the kernel's files say, over folders that look like them."""

from pathlib import Path

import pytest

from arriero.agent.sensors import ProcessorUse, gpu_figures, processor_temperature


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def stat(root: Path, line: str) -> None:
    write(root, proc__stat=f"{line}\ncpu0 1 2 3 4 5\n")


def test_processor_use_is_that_between_two_readings(tmp_path: Path) -> None:
    use = ProcessorUse(tmp_path)
    stat(tmp_path, "cpu  100 0 100 800 0 0 0 0 50 0")
    assert use.read() is None
    stat(tmp_path, "cpu  130 10 110 840 10 0 0 0 80 0")
    assert use.read() == 0.5, "50 of 100 ticks; waiting for disks is idle, guests are in `user`"
    assert use.read() is None, "no time has passed"


@pytest.mark.parametrize("line", ["", "cpu", "cpu a b c d e", "intr 1 2 3 4 5 6"])
def test_a_system_that_does_not_tell(tmp_path: Path, line: str) -> None:
    use = ProcessorUse(tmp_path)
    assert use.read() is None
    stat(tmp_path, line)
    assert use.read() is None
    assert use.read() is None


def test_the_hottest_sensor_of_the_processors(tmp_path: Path) -> None:
    assert processor_temperature(tmp_path) is None
    zones = "sys__class__thermal__thermal_zone"
    write(tmp_path, **{f"{zones}0__type": "acpitz\n", f"{zones}0__temp": "90000\n"})
    assert processor_temperature(tmp_path) is None, "of the board"
    write(tmp_path, **{f"{zones}1__type": "x86_pkg_temp\n", f"{zones}1__temp": "61000\n"})
    assert processor_temperature(tmp_path) == 61.0
    chips = "sys__class__hwmon__hwmon"
    write(tmp_path, **{f"{chips}0__name": "nvme\n", f"{chips}0__temp1_input": "80000\n"})
    write(tmp_path, **{f"{chips}1__name": "k10temp\n", f"{chips}1__temp1_input": "54250\n"})
    write(tmp_path, **{f"{chips}1__temp2_input": "62500\n", f"{chips}1__temp3_input": "999000\n"})
    write(tmp_path, **{f"{chips}1__temp4_input": "asleep\n"})
    assert processor_temperature(tmp_path) == 62.5


def test_the_one_gpu(tmp_path: Path) -> None:
    assert gpu_figures(None, tmp_path) == (None, None)
    card = "sys__class__drm__card"
    write(tmp_path, **{f"{card}0__device__vendor": "0x8086", f"{card}0-DP-1__status": "on"})
    write(tmp_path, **{f"{card}1__device__hwmon__hwmon4__temp1_input": "71000\n"})
    assert gpu_figures(None, tmp_path) == (None, 71.0)
    write(tmp_path, **{f"{card}1__device__gpu_busy_percent": "37\n"})
    assert gpu_figures(None, tmp_path) == (0.37, 71.0)
    write(tmp_path, **{f"{card}2__device__hwmon__hwmon5__temp1_input": "50000\n"})
    assert gpu_figures(None, tmp_path) == (None, None), "which is which is not known"


def test_gpus_at_their_places_on_the_bus(tmp_path: Path) -> None:
    for number, temperature in (("03", "50000"), ("04", "71000")):
        card = f"sys__bus__pci__devices__0000:{number}:00.0__"
        write(tmp_path, **{f"{card}hwmon__hwmon1__temp1_input": temperature})
        write(tmp_path, **{f"{card}gpu_busy_percent": number})
    assert gpu_figures("0000:03:00.0", tmp_path) == (0.03, 50.0)
    assert gpu_figures("0000:04:00.0", tmp_path) == (0.04, 71.0)
    assert gpu_figures("0000:05:00.0", tmp_path) == (None, None)
