"""Make the wheel of setuptools fit for other machines, and add the compiled PyTorch binding.

1. auditwheel sets the tag, and refuses a core or command that needs a newer glibc than it says.
2. The bindings for the PyTorch of this environment and for those of the folders that are named
   (``--torch``) are compiled against the wheel's own core, and put into it. They may need a newer
   C++ library than the tag says; where one does not load, gradwire compiles as without it. A wheel
   for another processor gets none.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GLIBC = "manylinux_2_28"


def main() -> None:
    """Write the finished wheel, and say what its parts need."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("wheel", type=Path, help="the wheel that setuptools has made")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the finished one")
    parser.add_argument(
        "--torch", type=Path, action="append", default=[], help="a folder with one more PyTorch"
    )
    given = parser.parse_args()
    machine = given.wheel.stem.split("-linux_")[1]
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tagged = _tagged(given.wheel, machine, Path(folder) / "tagged")
        _run("wheel", "unpack", tagged, "--dest", folder)
        (unpacked,) = Path(folder).glob("gradwire-*")
        if machine == platform.machine():
            for folder_of_torch in (None, *given.torch):
                _add_binding(unpacked, folder_of_torch)
            for library in _libraries(unpacked):
                _run("strip", "--strip-debug", library)
        else:
            # setuptools names it after the processor that it runs on.
            for library in _libraries(unpacked):
                library.rename(library.with_name(library.name.replace(platform.machine(), machine)))
        _run("wheel", "pack", unpacked, "--dest-dir", given.out)


def _libraries(package: Path) -> list[Path]:
    return list(package.glob("gradwire/_native/*.so"))


def _tagged(wheel: Path, machine: str, folder: Path) -> Path:
    wanted = f"{GLIBC}_{machine}"
    # auditwheel takes only tags of this processor; for another one it finds the tag itself.
    tag = wanted if machine == platform.machine() else "auto"
    _run("auditwheel", "repair", wheel, "--plat", tag, "--only-plat", "-w", folder)
    (tagged,) = folder.glob("*.whl")
    if not tagged.stem.endswith(wanted):
        raise SystemExit(f"{tagged.name}: its tag should be {wanted}")
    return tagged


def _add_binding(package: Path, torch: Path | None) -> None:
    """Compile a binding beside the core of the unpacked wheel, for any place of installation."""
    paths = filter(None, (package, torch and torch.resolve()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    code = (
        "import torch; from gradwire import build\n"
        "print(build.ahead_of_time(), build.shipped_folder(torch.__version__), sep='\\n')"
    )
    told = subprocess.run(
        (sys.executable, "-c", code), env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    made, place = (Path(line) for line in told.stdout.splitlines()[-2:])
    place.mkdir()
    binding = shutil.copy(made / "_binding.so", place)
    shutil.rmtree(made)
    _run("strip", "--strip-unneeded", binding)
    _run("patchelf", "--set-rpath", "$ORIGIN/..", binding)


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
