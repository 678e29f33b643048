"""Facts about where the compiled binding is kept, and for which PyTorch."""

import os
import platform
import re
import tempfile
from pathlib import Path

import pytest
import torch

import launching
from gradwire import build
from gradwire.environment import Environment

ROOT = Path(__file__).parents[2]
STRANGER = 54321
"""A user without an entry in /etc/passwd."""


@pytest.fixture
def compiled() -> list[Path]:
    """The folders in which a build was made, without a compiler."""
    return []


def a_finished_build_is_used_where_nothing_can_be_written(
    tmp_path: Path, compiled: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "gradwire"
    made = build._made("torch", compiled.append, (cache,))
    assert compiled == [made] == [cache / "torch"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_locked", lambda _folder: pytest.fail("a lock was taken"))
    assert build._finished("torch", Environment.read()) == made


def a_folder_that_cannot_be_written_gives_way_to_the_next(
    tmp_path: Path, compiled: list[Path]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    made = build._made("torch", compiled.append, (blocked, tmp_path / "own"))
    assert compiled == [made] == [tmp_path / "own" / "torch"]
    with pytest.raises(build.BindingError, match=r"file \(.*set XDG_CACHE_HOME .*=python"):
        build._made("torch", compiled.append, (blocked,))


def a_build_in_a_folder_of_another_user_is_not_loaded(
    tmp_path: Path, compiled: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gradwire" / "torch"
    folder.mkdir(parents=True)
    (folder / "complete").touch()
    folder.parent.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build._finished("torch", Environment.read()) is None
    with pytest.raises(build.BindingError, match="another user"):
        build._made("torch", compiled.append, (folder.parent,))
    assert not compiled


def a_user_without_home_or_name_has_a_folder() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(STRANGER)
        os.environ.pop("HOME", None)
        os.write(writer, str(Environment.read({}).caches[0]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert told.read().endswith(f"gradwire-{STRANGER}")
    os.waitpid(child, 0)


def an_environment_without_any_folder_for_files_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert Environment.read({"XDG_CACHE_HOME": "/proc/x"}).caches == (Path("/proc/x/gradwire"),)
    with pytest.raises(build.BindingError, match=r"nowhere: /proc/x/gradwire .*XDG_CACHE_HOME"):
        build._made("torch", lambda _: None, (Path("/proc/x/gradwire"),))


def the_binding_of_a_wheel_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_SHARED", tmp_path)
    folder = build.shipped_folder("2.15.0+cu132")
    assert folder.name.startswith("torch-2.15.0-cpython-"), folder
    folder.mkdir()
    (folder / "_binding.so").touch()
    monkeypatch.setattr(build, "_extension", lambda folder: folder)
    assert build._shipped("2.15.0") == folder
    assert build._shipped("2.15.1") is None


def a_binding_that_does_not_load_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_SHARED", tmp_path)
    folder = build.shipped_folder(torch.__version__)
    folder.mkdir()
    (folder / "_binding.so").write_text("no library")
    assert build._shipped(torch.__version__) is None


def builds_of_two_processors_have_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    own = build.name_of_build("torch-2.15.0", Path("library"))
    assert platform.machine() in own
    monkeypatch.setattr(platform, "machine", lambda: "another")
    assert build.name_of_build("torch-2.15.0", Path("library")) != own


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split("."))


def _pinned(requirements: str) -> tuple[int, ...]:
    (version,) = re.findall(r"^torch==(.*)$", (ROOT / requirements).read_text(), re.MULTILINE)
    return _version(version)


@pytest.mark.oldest_torch
def tests_have_the_oldest_and_newest_pytorch_that_is_claimed() -> None:
    oldest, newest = _pinned("requirements-oldest.txt"), _pinned("requirements.txt")
    claimed = re.findall(r'"torch>=([0-9.]*)"', (ROOT / "pyproject.toml").read_text())
    assert [_version(text) for text in claimed] == [build.MINIMUM_TORCH]
    assert oldest == (*build.MINIMUM_TORCH, 0)
    assert newest[:2] == build.NEWEST_TORCH
    assert _version(torch.__version__) == (oldest if launching.is_oldest_torch() else newest)
