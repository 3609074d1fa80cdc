"""`scripts/gpu-trial`: packs a trial, or goes on with one."""

import argparse
import os
import tempfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="gpu-trial")
    actions = parser.add_subparsers(dest="action", required=True)
    packing = actions.add_parser("pack", help="here: fill a folder for the other machine")
    packing.add_argument("folder", type=Path)
    packing.add_argument("--python-version", default="3.12", help="CPython over there (3.12)")
    running = actions.add_parser("run", help="over there: go on with the trial")
    running.add_argument("results", type=Path, help="folder that gets gpu-trial.json")
    running.add_argument("--pack", type=Path, required=True, help="the folder that was packed")
    running.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()) / "arriero-gpu-trial",
        help="folder of what is made and of the state; it must outlast a call",
    )
    running.add_argument("--seconds", type=float, default=570.0, help="of this call (570)")
    running.add_argument("--jobs", type=int, default=os.cpu_count(), help="cores (all)")
    running.add_argument("--shrink", type=int, default=1, help="divide sizes of large models (1)")
    running.add_argument("--rounds", type=int, default=3, help="of each benchmark (3)")
    running.add_argument("--only", action="append", default=[], help="a step; repeatable")
    running.add_argument("--skip", action="append", default=[], help="a step; repeatable")
    given = parser.parse_args()
    if given.action == "pack":
        from bench.gpu_trial.pack import pack  # needs packages that are not there on a bare machine

        pack(given.folder, given.python_version)
        return
    from bench.gpu_trial.run import Trial

    chosen = {"shrink": given.shrink, "rounds": given.rounds}
    folders = (each.absolute() for each in (given.pack, given.work, given.results))
    trial = Trial(*folders, jobs=given.jobs, chosen=chosen)
    trial.go_on(given.seconds, given.only, given.skip)


if __name__ == "__main__":
    main()
