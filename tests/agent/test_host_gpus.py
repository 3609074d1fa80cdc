from pathlib import Path

from arriero.agent.host_gpus import SMALLEST, gpu_makers

VGA, BRIDGE = "0x030000", "0x060400"


def device(root: Path, vendor: str, kind: str, number: int = 0, **more: str) -> None:
    folder = root / "sys/bus/pci/devices" / f"0000:0{number}:00.0"
    folder.mkdir(parents=True)
    for name, text in {"vendor": vendor, "class": kind, **more}.items():
        (folder / name).write_text(text + "\n")


def test_none(tmp_path: Path) -> None:
    assert gpu_makers(tmp_path) == ()
    device(tmp_path, "0x8086", VGA)
    device(tmp_path, "0x10de", BRIDGE, 1)
    assert gpu_makers(tmp_path) == ()


def test_both(tmp_path: Path) -> None:
    device(tmp_path, "0x10de", "0x030200")
    device(tmp_path, "0x1002", VGA, 1, mem_info_vram_total=str(16 * 2**30))
    assert gpu_makers(tmp_path) == ("AMD", "NVIDIA")


def test_a_part_of_the_processor_does_not_count(tmp_path: Path) -> None:
    device(tmp_path, "0x1002", VGA, mem_info_vram_total=str(SMALLEST - 1))
    assert gpu_makers(tmp_path) == ()


def test_without_a_driver_it_counts(tmp_path: Path) -> None:
    device(tmp_path, "0x1002", VGA)
    assert gpu_makers(tmp_path) == ("AMD",)


def test_in_a_container_that_was_given_one(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert gpu_makers(tmp_path) == ()
    (tmp_path / "dev/nvidia0").touch()
    assert gpu_makers(tmp_path) == ("NVIDIA",)
