"""Compile the PyTorch binding for the PyTorch that is installed, once, and load it.

PyTorch's C++ interface changes with every minor version, so the binding is compiled on this
machine: at first use, or ahead of time by ``python -m gradwire.build``. The result is kept per user
under a name made of PyTorch's version, Python's, and a hash of the sources.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from gradwire.environment import Environment

MINIMUM_TORCH = (2, 8)
"""Oldest PyTorch that is accepted; the tests run with 2.15."""

_PACKAGE = Path(__file__).resolve().parent
_MODULE = "gradwire._binding"
_LIBRARY = "libgradwire_c"


class BindingError(RuntimeError):
    """The PyTorch binding cannot be built or loaded; the message names a remedy."""


_loading = threading.Lock()


def load() -> ModuleType:
    """Return the module ``gradwire._binding``; compile it first if necessary.

    Any number of threads may ask at once: each gets the whole module.
    """
    with _loading:
        if _MODULE not in sys.modules:
            return _loaded()
        return sys.modules[_MODULE]


def _loaded() -> ModuleType:
    environment = Environment.read()
    torch_version = _checked_torch()
    library = _library()
    if not compiles(environment):
        module = _fallback(library, environment)
        sys.modules[_MODULE] = module
        return module
    folder = environment.cache / _name_of_build(torch_version, library)
    binding = folder / "_binding.so"
    with _locked(folder):
        if not (folder / "complete").exists():
            _compile(folder, library, torch_version, environment)
            (folder / "complete").touch()
    spec = importlib.util.spec_from_file_location(_MODULE, binding)
    if spec is None or spec.loader is None:
        raise BindingError(f"gradwire: {binding} is not a Python extension; delete {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_MODULE] = module
    return module


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
        print(
            f"gradwire: the backend runs in Python, since {why}. It lacks: "
            f"{'; '.join(fallback.LACKS)}.",
            file=sys.stderr,
            flush=True,
        )
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


def _library() -> Path:
    """Find the Rust core, which the build of the package put beside this file."""
    found = sorted((_PACKAGE / "_native").glob(f"{_LIBRARY}*.so"))
    if not found:
        raise BindingError(
            f"gradwire: {_PACKAGE / '_native'} has no {_LIBRARY}.so; "
            "run: pip install --force-reinstall gradwire"
        )
    return found[0]


def _sources() -> list[Path]:
    return sorted([*(_PACKAGE / "csrc").iterdir(), *(_PACKAGE / "include").glob("*.h")])


def _name_of_build(torch_version: str, library: Path) -> str:
    content = hashlib.sha256(str(library).encode())
    for source in _sources():
        content.update(source.read_bytes())
    return f"torch-{torch_version}-{sys.implementation.cache_tag}-{content.hexdigest()[:16]}"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one of many ranks compile. The lock ends with its process, even if that is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock-of-gradwire").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(folder: Path, library: Path, torch_version: str, environment: Environment) -> None:
    if shutil.which(environment.compiler) is None:
        raise BindingError(
            f"gradwire: no C++ compiler: {environment.compiler!r} is not on the path; install g++ "
            "or clang, or name yours in CXX"
        )
    print(
        f"gradwire: compiling the PyTorch binding for torch {torch_version}: about a minute, once",
        file=sys.stderr,
        flush=True,
    )
    started = time.monotonic()
    (folder / "lock").unlink(missing_ok=True)  # PyTorch's own lock, left by a build that was killed
    with _ninja_on_path():
        _run_compiler(folder, library)
    seconds = time.monotonic() - started
    print(f"gradwire: compiled in {seconds:.0f} s, kept in {folder}", file=sys.stderr, flush=True)


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
            f"gradwire: the PyTorch binding did not compile; gradwire is tested with PyTorch 2.15. "
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


if __name__ == "__main__":
    try:
        print(f"gradwire: the PyTorch binding is ready in {Path(load().__file__ or '').parent}")
    except BindingError as error:
        sys.exit(str(error))
