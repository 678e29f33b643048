"""All-reduce for JAX on CPUs, inside ``jax.jit``, with a loss tolerance.

::

    import gradwire.jax

    gradwire.jax.init()  # on every rank
    gradients = jax.jit(lambda g: gradwire.jax.all_reduce(g, "mean", tolerance=0.05))(gradients)

Each process is one rank. The variables of the launch are those of ``torchrun``: ``RANK``,
``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, at which rank 0 awaits the others over UDP.
``GRADWIRE_TOKEN_FILE`` or ``GRADWIRE_TOKEN`` is a secret that all ranks share.

Operations run in the order of the program, the same on every rank, also in ``jax.lax.scan`` and
from one jitted function to the next: JAX passes a token through them. They have no derivative, so
reduce gradients, not the loss. The handler that XLA calls is compiled once, as the PyTorch binding
is; PyTorch itself is not needed.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import logging
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
from jax._src import effects
from jax.extend.core import Primitive
from jax.interpreters import mlir

from gradwire import build, interfaces, log, native
from gradwire.environment import Environment

__all__ = ["all_reduce", "init", "rank", "shutdown", "world_size"]

_OPS = {"sum": 0, "mean": 1, "product": 2, "min": 3, "max": 4}
_TARGET = "gradwire_jax_all_reduce"
_LOSSLESS = -1.0
_LEAVE_SECONDS = 10.0
_keys = itertools.count(1)
_NAMELESS = 0


class _Order(effects.Effect):
    """All operations of a program are in one order."""

    def __str__(self) -> str:
        return "gradwire"


_ORDER = _Order()
for _kinds in (
    effects.lowerable_effects,
    effects.ordered_effects,
    effects.control_flow_allowed_effects,
):
    _kinds.add_type(_Order)


class _Rank:
    """This process's place in a job."""

    def __init__(self, environment: Environment, timeout: float) -> None:
        self.number, self.world = _place(environment)
        master = _master(environment)
        self._core = native.library(build.core_library())
        self._target = ctypes.CDLL(str(_built(environment)))
        self._target.gradwire_jax_use.argtypes = (
            ctypes.c_void_p,
            ctypes.c_uint32,
            ctypes.c_double,
        )
        log.route(build.core_library())
        _register(self._target)
        self._handle = self._opened(environment, master[1])
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        host = f"[{master[0]}]" if ":" in master[0] else master[0]
        meeting = f"{host}:{master[1]}".encode()
        if self._core.gw_join(self._handle, meeting, timeout, error, len(error)):
            self._core.gw_close(self._handle, 0.0)
            raise RuntimeError(error.value.decode())
        self._target.gradwire_jax_use(self._handle, self.world, timeout)

    def _opened(self, environment: Environment, port: int) -> int:
        host = interfaces.bind_address(environment.interface, environment.master_address)
        files = (path.encode() or None for path in environment.certificates)
        texts = (environment.checked_job(), host, environment.trace, environment.log)
        job, bound, trace, level = (text.encode() or None for text in texts)
        opening = native.Opening(
            job_path=job,
            rank=self.number,
            world=self.world,
            local_rank=int(environment.local_rank or -1),
            bind_host=bound,
            trace_folder=trace,
            log_level=level,
            credentials=native.Credentials(_secret(environment).encode(), *files),
            port=port,
        )
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        handle = self._core.gw_open(ctypes.byref(opening), error, len(error))
        if not handle:
            raise RuntimeError(error.value.decode())
        return handle

    def close(self) -> None:
        jax.effects_barrier()
        self._target.gradwire_jax_use(None, 0, 0.0)
        self._core.gw_close(self._handle, _LEAVE_SECONDS)


_joined: list[_Rank] = []


def init(timeout: float = 300.0) -> None:
    """Join the job that the environment describes.

    Args:
        timeout: seconds that the ranks may take to meet, and an operation to end.
    """
    if _joined:
        raise RuntimeError("gradwire.jax: this process is in a job already: call shutdown() first")
    _joined.append(_Rank(Environment.read(), timeout))


def rank() -> int:
    """Return the number of this process in its job."""
    return _own().number


def world_size() -> int:
    """Return how many processes the job has."""
    return _own().world


def all_reduce(x: jax.Array, op: str = "sum", *, tolerance: float = 0.0) -> jax.Array:
    """Return the sum of ``x`` over all ranks, or another reduction, on each of them.

    Args:
        x: an array of the same shape and type on every rank: integers of 8 to 64 bits, float16,
            bfloat16, float32 or float64.
        op: ``"sum"``, ``"mean"`` (floats only), ``"product"``, ``"min"`` or ``"max"``.
        tolerance: share of a message that may be missing, below 1, for sums and means of floats;
            0 is lossless. What is missing is filled as the job's key ``holes`` says, and all ranks
            get the same bits. Outside of a jitted function no call continues an earlier one, so
            holes are rescaled.
    """
    if op not in _OPS:
        raise ValueError(f"gradwire.jax: op {op!r}: allowed are {', '.join(_OPS)}")
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(
            f"gradwire.jax: a tolerance of {tolerance}: give a share from 0 to below 1"
        )
    array = jnp.asarray(x)
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    if op == "mean" and not is_float:
        raise TypeError(f"gradwire.jax: the mean of {array.dtype}: give floats, or take the sum")
    may_lose = is_float and tolerance > 0 and op in ("sum", "mean")
    return _primitive.bind(
        array, op=_OPS[op], tolerance=tolerance if may_lose else _LOSSLESS, key=next(_keys)
    )


@atexit.register
def shutdown() -> None:
    """Leave the job, when the operations that were started have ended."""
    while _joined:
        _joined.pop().close()


_primitive = Primitive("gradwire_all_reduce")


@functools.partial(jax.jit, static_argnames=("op", "tolerance"))
def _alone(x: jax.Array, *, op: int, tolerance: float) -> jax.Array:
    """Reduce a tensor without a name, outside of a jitted function: compiled once a shape."""
    return _primitive.bind(x, op=op, tolerance=tolerance, key=_NAMELESS)


_primitive.def_impl(lambda x, *, op, tolerance, key: _alone(x, op=op, tolerance=tolerance))
_primitive.def_effectful_abstract_eval(lambda x, **_: (x, {_ORDER}))


def _lower(
    context: mlir.LoweringRuleContext, x: object, *, op: int, tolerance: float, key: int
) -> tuple[object]:
    token = jax.core.abstract_token
    avals = {"avals_in": [token, *context.avals_in], "avals_out": [token, *context.avals_out]}
    rule = jax.ffi.ffi_lowering(_TARGET, has_side_effect=True)
    attributes = {"op": op, "tolerance": tolerance, "key": key}
    before = context.tokens_in.get(_ORDER)
    after, y = rule(context.replace(**avals), before, x, **attributes)
    context.set_tokens_out(context.tokens_in.update_tokens(mlir.TokenSet({_ORDER: after})))
    return (y,)


mlir.register_lowering(_primitive, _lower, platform="cpu")


def _own() -> _Rank:
    if not _joined:
        raise RuntimeError("gradwire.jax: this process is in no job: call init() first")
    return _joined[0]


def _place(environment: Environment) -> tuple[int, int]:
    values = {"RANK": environment.rank, "WORLD_SIZE": environment.world_size}
    missing = [name for name, text in values.items() if not text.isdecimal()]
    if missing:
        raise ValueError(
            f"gradwire.jax: {' and '.join(missing)} must be whole numbers: start every process "
            "with its RANK and the WORLD_SIZE, as torchrun does"
        )
    return int(environment.rank), int(environment.world_size)


def _master(environment: Environment) -> tuple[str, int]:
    if not environment.master_address or not environment.master_port.isdecimal():
        raise ValueError(
            "gradwire.jax: MASTER_ADDR and MASTER_PORT must name the host of rank 0 and a UDP port "
            "that is free there"
        )
    return environment.master_address, int(environment.master_port)


def _secret(environment: Environment) -> str:
    secret = environment.secret()
    if not secret and not any(environment.certificates):
        raise ValueError(
            "gradwire.jax: the ranks need a secret in common: write one into a file (openssl rand "
            "-hex 32), and name it in GRADWIRE_TOKEN_FILE on every rank"
        )
    return secret


_registered: list[ctypes.CDLL] = []


def _register(handler: ctypes.CDLL) -> None:
    if not _registered:
        _registered.append(handler)
        capsule = jax.ffi.pycapsule(handler.gradwire_jax_all_reduce)
        jax.ffi.register_ffi_target(_TARGET, capsule, platform="cpu")


def _built(environment: Environment) -> Path:
    """Return the compiled handler; compile it first if necessary."""
    library = build.core_library()
    name = build.name_of_build(f"jax-{jax.__version__}", library)
    return build.kept(name, environment, _compile_with(environment, library)) / "handler.so"


def _compile_with(environment: Environment, library: Path) -> Callable[[Path], None]:
    def compiled(folder: Path) -> None:
        if shutil.which(environment.compiler) is None:
            raise build.BindingError(
                f"gradwire.jax: no C++ compiler: {environment.compiler!r} is not on the path; "
                "install g++ or clang, or name yours in CXX"
            )
        log.say(logging.INFO, f"compiling the handler for jax {jax.__version__}: once")
        package = Path(build.__file__).parent
        command = [environment.compiler, "-std=c++17", "-O2", "-shared", "-fPIC", "-w"]
        command += [f"-I{jax.ffi.include_dir()}", f"-I{package / 'include'}"]
        command += [str(package / "csrc" / "jax.cpp"), "-o", str(folder / "handler.so")]
        command += [f"-L{library.parent}", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise build.BindingError(
                f"gradwire.jax: the handler did not compile; it is tested with jax 0.10. The "
                f"compiler said:\n{done.stderr}"
            )

    return compiled
