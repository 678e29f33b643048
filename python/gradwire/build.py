"""Compile the PyTorch binding for the PyTorch that is installed, once, and load it.

PyTorch's C++ interface changes with every minor version. A wheel brings the binding for one
PyTorch, if it was made so (``packaging/wheel.py``). For any other, and where that binding does not
load, it is compiled on this machine: at first use, or ahead of time by ``python -m
gradwire.build``. The result has a name made of PyTorch's version, Python's, the processor and a
hash of the sources. It is kept for the user; if it is made ahead of time, for all users: in the
package, if that is writable. A finished build is never written again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO

from gradwire import log
from gradwire.environment import Environment

MINIMUM_TORCH = (2, 14)
"""Oldest PyTorch that is accepted. Some of the tests run with its first release, too."""

NEWEST_TORCH = (2, 15)
"""The PyTorch that all tests run with."""

_PACKAGE = Path(__file__).resolve().parent
_MODULE = "gradwire._binding"
_LIBRARY = "libgradwire_c"
_SHARED = _PACKAGE / "_native"
"""Where a build that was made ahead of time serves all users of this package."""
_DONE = "complete"


class BindingError(RuntimeError):
    """The PyTorch binding cannot be built or loaded; the message names a remedy."""


_loading = threading.Lock()


def load() -> ModuleType:
    """Return the module ``gradwire._binding``; compile it first if necessary.

    Any number of threads may ask at once: each gets the complete module.
    """
    with _loading:
        if _MODULE not in sys.modules:
            return _loaded()
        return sys.modules[_MODULE]


def _loaded() -> ModuleType:
    environment = Environment.read()
    torch_version = _checked_torch()
    library = core_library()
    is_compiled = compiles(environment)
    module = None if environment.binding == "python" else _shipped(torch_version)
    if module is None and is_compiled:
        name = name_of_build(f"torch-{torch_version}", library)
        module = _extension(kept(name, environment, functools.partial(_compile, library)))
    sys.modules[_MODULE] = module or _fallback(library, environment)
    return sys.modules[_MODULE]


def _extension(folder: Path) -> ModuleType:
    binding = folder / "_binding.so"
    spec = importlib.util.spec_from_file_location(_MODULE, binding)
    if spec is None or spec.loader is None:
        raise BindingError(f"gradwire: {binding} is not a Python extension; delete {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shipped_folder(torch_version: str) -> Path:
    """Return where a wheel has the binding for this PyTorch, Python and processor."""
    release = torch_version.split("+")[0]
    system = f"{sys.implementation.cache_tag}-{platform.machine()}"
    return _SHARED / f"torch-{release}-{system}"


def _shipped(torch_version: str) -> ModuleType | None:
    """Load the binding that came with the package, if it is for this PyTorch and this system."""
    folder = shipped_folder(torch_version)
    if not folder.is_dir():
        return None
    try:
        return _extension(folder)
    except ImportError as error:  # an older C++ library than that of the machine that compiled it
        log.say(logging.INFO, f"the binding of the wheel does not load here ({error})")
        return None


def compiles(environment: Environment) -> bool:
    """Return whether the binding is compiled here; otherwise the backend runs in Python."""
    known = ("auto", "compiled", "python")
    if environment.binding not in known:
        raise BindingError(
            f"gradwire: GRADWIRE_BINDING={environment.binding!r}: allowed are {', '.join(known)}"
        )
    if environment.binding != "auto":
        return environment.binding == "compiled"
    return shutil.which(environment.compiler) is not None


def _fallback(library: Path, environment: Environment) -> ModuleType:
    """Load the backend that needs no compiler, and report the features that it lacks."""
    from gradwire import fallback

    try:
        fallback.use(library)
    except OSError as error:
        raise BindingError(str(error)) from error
    if environment.rank in ("", "0"):
        why = (
            "GRADWIRE_BINDING=python"
            if environment.binding == "python"
            else f"there is no C++ compiler ({environment.compiler!r} is not on the path; install "
            "g++ or clang, or name yours in CXX)"
        )
        lacks = "; ".join(fallback.LACKS)
        log.say(logging.WARNING, f"the backend runs in Python, since {why}. It lacks: {lacks}.")
    return fallback


def _checked_torch() -> str:
    try:
        import torch
    except ImportError as error:
        raise BindingError(
            "gradwire: PyTorch is not installed in this environment; run: pip install torch"
        ) from error
    version = torch.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < MINIMUM_TORCH:
        minimum = ".".join(map(str, MINIMUM_TORCH))
        raise BindingError(
            f"gradwire: PyTorch {version} is too old, {minimum} is the oldest that works; "
            f"run: pip install 'torch>={minimum}'"
        )
    if not torch.distributed.is_available():
        raise BindingError(
            f"gradwire: this PyTorch {version} was built without torch.distributed; "
            "install one that has it"
        )
    return version


def core_library() -> Path:
    """Return the Rust core, which the build of the package put beside this file."""
    found = sorted((_PACKAGE / "_native").glob(f"{_LIBRARY}*.so"))
    if not found:
        raise BindingError(
            f"gradwire: {_PACKAGE / '_native'} has no {_LIBRARY}.so; "
            "run: pip install --force-reinstall gradwire"
        )
    return found[0]


def sources(framework: str) -> list[Path]:
    """Return what the binding for ``torch-...`` or ``jax-...`` is made of."""
    is_jax = framework.startswith("jax")
    own = (path for path in (_PACKAGE / "csrc").iterdir() if is_jax == (path.name == "jax.cpp"))
    return sorted([*own, *(_PACKAGE / "include").glob("*.h")])


def name_of_build(framework: str, library: Path) -> str:
    """Return a name that tells builds for this framework, such as torch-2.15.0, from others."""
    content = hashlib.sha256(str(library).encode())
    for source in sources(framework):
        content.update(source.read_bytes())
    system = f"{sys.implementation.cache_tag}-{platform.machine()}"
    return f"{framework}-{system}-{content.hexdigest()[:16]}"


def _finished(name: str, environment: Environment) -> Path | None:
    """Return the folder of a finished build that this process may load."""
    folders = (place / name for place in (_SHARED, *environment.caches))
    done = (folder for folder in folders if (folder / _DONE).exists())
    return next((folder for folder in done if _is_trusted(folder)), None)


def _is_trusted(folder: Path) -> bool:
    """Whether only this user or root, or the owner of this package, can have written there."""
    owners = (0, os.geteuid(), _PACKAGE.stat().st_uid)
    found = (folder.stat(), folder.parent.stat())
    return all(one.st_uid in owners and not one.st_mode & stat.S_IWOTH for one in found)


def kept(name: str, environment: Environment, compiled: Callable[[Path], None]) -> Path:
    """Return the folder of the build ``name``; ``compiled`` makes it first if there is none."""
    return _finished(name, environment) or _made(name, compiled, environment.caches)


def _made(name: str, compiled: Callable[[Path], None], places: tuple[Path, ...]) -> Path:
    """Compile in the first writable folder of ``places``; return the folder."""
    refusals = []
    for place in places:
        folder = place / name
        try:
            lock = _locked(folder)
        except OSError as error:
            refusals.append(f"{place} ({error.strerror})")
            continue
        with lock:
            if not (folder / _DONE).exists():
                compiled(folder)
                (folder / _DONE).touch()
        return folder
    raise BindingError(
        "gradwire: the compiled binding can be kept nowhere: "
        f"{', '.join(refusals) or 'there is no home and no folder for temporary files'}; set "
        "XDG_CACHE_HOME to a folder that this user can write, or, for PyTorch, run "
        "python -m gradwire.build where the image is made, or set GRADWIRE_BINDING=python"
    )


def _locked(folder: Path) -> IO[str]:
    """Let one of many ranks compile. The lock ends with its file, even if the process is killed.

    Raises:
        OSError: the folder cannot be written, or is another user's.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not _is_trusted(folder):
        raise PermissionError(errno.EPERM, "it belongs to another user")
    lock = (folder / "lock-of-gradwire").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _compile(library: Path, folder: Path) -> None:
    import torch

    environment = Environment.read()
    if shutil.which(environment.compiler) is None:
        raise BindingError(
            f"gradwire: no C++ compiler: {environment.compiler!r} is not on the path; install g++ "
            "or clang, or name yours in CXX"
        )
    log.say(
        logging.INFO,
        f"compiling the PyTorch binding for torch {torch.__version__}: about a minute, once",
    )
    started = time.monotonic()
    (folder / "lock").unlink(missing_ok=True)  # PyTorch's own lock, left by a build that was killed
    with _ninja_on_path():
        _run_compiler(folder, library)
    seconds = time.monotonic() - started
    log.say(logging.INFO, f"compiled in {seconds:.0f} s, kept in {folder}")


def _run_compiler(folder: Path, library: Path) -> None:
    from torch.utils import cpp_extension

    try:
        cpp_extension.load(
            name="_binding",
            sources=[str(_PACKAGE / "csrc" / "binding.cpp")],
            extra_include_paths=[str(_PACKAGE / "include")],
            extra_cflags=["-O2", "-fvisibility=hidden"],
            extra_ldflags=[
                f"-L{library.parent}",
                f"-l:{library.name}",
                f"-Wl,-rpath,{library.parent}",
            ],
            build_directory=str(folder),
            with_cuda=False,
            is_python_module=False,
        )
    except Exception as error:
        raise BindingError(
            f"gradwire: the PyTorch binding did not compile; it is tested with PyTorch "
            f"{'.'.join(map(str, MINIMUM_TORCH))} and {'.'.join(map(str, NEWEST_TORCH))}, and "
            f"GRADWIRE_BINDING=python needs no compiler. "
            f"The compiler said:\n{error}"
        ) from error


@contextlib.contextmanager
def _ninja_on_path() -> Iterator[None]:
    """Make the installed ninja visible even where the virtual environment is not activated."""
    try:
        import ninja
    except ImportError as error:
        if shutil.which("ninja"):
            yield
            return
        raise BindingError("gradwire: ninja is not installed; run: pip install ninja") from error
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = f"{ninja.BIN_DIR}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


def ahead_of_time() -> Path:
    """Compile for all users of this package if it is writable, else for this one."""
    environment, torch_version, library = Environment.read(), _checked_torch(), core_library()
    if _shipped(torch_version) is not None:
        return shipped_folder(torch_version)
    name = name_of_build(f"torch-{torch_version}", library)
    found = _finished(name, environment)
    places = (_SHARED, *environment.caches)
    return found or _made(name, functools.partial(_compile, library), places)


if __name__ == "__main__":
    try:
        print(f"gradwire: the PyTorch binding is ready in {ahead_of_time()}")
    except BindingError as error:
        sys.exit(str(error))
