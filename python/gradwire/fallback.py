"""The backend without a compiler: PyTorch's ``Backend`` in Python over the core's C interface.

Its results equal those of the compiled binding, bit for bit, with the same wire, security and loss
rules. :data:`LACKS` lists the missing features; loading reports them. ``build.load`` chooses.
Not here: the C interface (``native.py``).
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from torch._C._distributed_c10d import Backend as _Backend
from torch.distributed import DistBackendError, ReduceOp, Store, Work

from gradwire import native
from gradwire.host_copies import Call, Staging, is_on_device, stage

LACKS = (
    "recv without a source rank",
    "work.is_completed() before wait()",
    "monitored_barrier",
    "split_group",
    "sparse tensors",
    "gradwire.ps",
    "profiler events",
    "copies of GPU tensors beside the network",
    "some 100 us more for each operation",
)
"""Limits of this binding, compared with the compiled one."""

_KINDS = {
    "all_reduce": 0,
    "broadcast": 1,
    "all_gather": 2,
    "reduce_scatter": 3,
    "barrier": 4,
    "send": 5,
    "recv": 6,
    "reduce": 7,
    "gather": 8,
    "scatter": 9,
    "all_to_all": 10,
}
_DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.bfloat16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.uint16: 9,
    torch.uint32: 10,
    torch.uint64: 11,
}
_COMPLEX_AS_REAL = {torch.complex64: 7, torch.complex128: 8}
_MIN, _MAX, _XOR = 3, 4, 7
_OF_BOOLS = {0: _MAX, 4: _MAX, 6: _MAX, 2: _MIN, 3: _MIN, 5: _MIN, 7: _XOR}
_LINEAR = (0, 1)
_CLOSE_SECONDS = 3.0
_LEAVE_SECONDS = 10.0

_core: list[ctypes.CDLL] = []
_settling = threading.local()
"""Has ``here`` set on a thread that runs the end of an operation."""
_pending: dict[int, _PendingWork] = {}
_numbers = itertools.count(1)


def use(path: Path) -> None:
    """Load the core from ``path``, once for this process."""
    if not _core:
        _core.append(native.library(path))


def close_all(ranks: Sequence[Rank], patience: float) -> None:
    """Close several ranks at the same time; see the stub of the compiled binding."""
    closing = [threading.Thread(target=rank.close, args=(patience,)) for rank in ranks]
    for rank, thread in zip(ranks, closing, strict=True):
        try:
            thread.start()
        except RuntimeError:  # newer Pythons start no thread at their end
            rank.close(patience)
    for thread in closing:
        if thread.ident is not None:
            thread.join()


@native.Done
def _done(number: int, code: int, message: bytes | None) -> None:
    text = (message or b"gradwire: the operation failed").decode(errors="replace")
    work = _pending.pop(number)
    _settling.here = True
    try:
        work.settle(None if code == 0 else text)
    finally:
        _settling.here = False


class Rank:
    """This process's place in a job: sockets, driver thread, completion pool."""

    def __init__(
        self,
        settings: tuple[str, str, str],
        place: tuple[int, int, int],
        host: str,
        credentials: tuple[str, str, str, str],
        job: str,
    ) -> None:
        """Open the sockets; see the stub of the compiled binding."""
        own = tuple(text.encode() or None for text in settings)
        token, *files = (text.encode() for text in credentials)
        secrets = native.Credentials(token, *(path or None for path in files))
        opening = native.Opening(own[0], *place, host.encode(), *own[1:], secrets)
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        self.place = place
        self.job = job
        self._process = os.getpid()
        self._idle = threading.Condition()
        self._running: collections.Counter[int] = collections.Counter()
        self._calls = 0
        self._groups = 0
        self._handle = _core[0].gw_open(ctypes.byref(opening), error, len(error))
        if not self._handle:
            raise RuntimeError(error.value.decode())

    def rendezvous(self) -> str:
        """Return the ``host:port`` at which rank 0 awaits the others."""
        return self._text(_core[0].gw_rendezvous)

    def join(self, rendezvous: str, timeout_seconds: float) -> None:
        """Block until every rank of the job has joined."""
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        place = rendezvous.encode()
        with self._call() as handle:
            failed = _core[0].gw_join(handle, place, timeout_seconds, error, len(error))
        if failed:
            raise RuntimeError(error.value.decode())

    @property
    def is_open(self) -> bool:
        """Whether the rank has not been closed."""
        return self._handle is not None

    def takes_operations(self) -> bool:
        """Whether operations can begin."""
        if not self.is_open:
            return False
        with self._call() as handle:
            return bool(_core[0].gw_takes_operations(handle))

    def group_created(self) -> None:
        """Count a group in."""
        with self._idle:
            self._groups += 1

    def group_gone(self) -> None:
        """Count a group out; the last one closes the rank, as in the compiled binding."""
        with self._idle:
            self._groups -= 1
            is_last = self._groups == 0
        if is_last and not getattr(_settling, "here", False):
            self.close()

    def close(self, patience: float = _LEAVE_SECONDS) -> None:
        """Let pending operations finish for some seconds, then stop. Idempotent."""
        if not self.is_open or os.getpid() != self._process:
            return
        with self._idle:
            grace = min(patience, _CLOSE_SECONDS)
            if not self._idle.wait_for(lambda: not self._running, grace) and patience > 0:
                self.abort(f"rank {self.place[0]} left with operations still pending")
            handle, self._handle = self._handle, None
            self._idle.wait_for(lambda: self._calls == 0)
        if handle:
            _core[0].gw_close(handle, patience)

    def trace(self) -> str:
        """Return the contents of the flight recorder as JSON."""
        with self._call() as handle:
            text = _core[0].gw_trace_json(handle)
        if not text:
            return ""
        try:
            return ctypes.string_at(text).decode()
        finally:
            _core[0].gw_text_free(text)

    def take_residual(self, tensor_key: int, values: torch.Tensor) -> bool:
        """Take a tensor's residual of error feedback into ``values``; return whether it had one."""
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        place = (values.data_ptr(), values.nbytes)
        kind = _DTYPES[values.dtype]
        with self._call() as handle:
            taken = _core[0].gw_residual_take(handle, tensor_key, kind, *place, error, len(error))
        if taken < 0:
            raise RuntimeError(error.value.decode())
        return taken > 0

    def scale_residual(self, tensor_key: int, factor: float) -> None:
        """Multiply a tensor's residual of error feedback."""
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        with self._call() as handle:
            failed = _core[0].gw_residual_scale(handle, tensor_key, factor, error, len(error))
        if failed:
            raise RuntimeError(error.value.decode())

    def abort(self, reason: str) -> None:
        """Fail every pending operation on every rank."""
        if self.is_open:
            with self._call() as handle:
                _core[0].gw_abort(handle, reason.encode())

    def submit(self, operation: native.Operation, number: int) -> int:
        """Submit an operation; return its ticket."""
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        with self._call() as handle:
            with self._idle:
                self._running[operation.group] += 1
            ticket = _core[0].gw_submit(
                handle, ctypes.byref(operation), _done, number, error, len(error)
            )
        if not ticket:
            self.ended(operation.group)
            raise DistBackendError(error.value.decode())
        return ticket

    def ended(self, group: int) -> None:
        """Count an operation of a group out."""
        with self._idle:
            self._running[group] -= 1
            if self._running[group] == 0:
                del self._running[group]
            self._idle.notify_all()

    def let_group_finish(self, group: int) -> None:
        """Wait until a group has no pending operation; give up after some seconds.

        A callback may be part of a pending operation, so it does not wait.
        """
        if os.getpid() == self._process and not getattr(_settling, "here", False):
            with self._idle:
                self._idle.wait_for(lambda: group not in self._running, _CLOSE_SECONDS)

    def end_group(self, group: int) -> None:
        """End a group here, at once; see the header."""
        if self.is_open and os.getpid() == self._process:
            with self._call() as handle:
                _core[0].gw_end_group(handle, group, None, 0)

    def wait(self, ticket: int, seconds: float) -> None:
        """Drive the core on this thread until the operation has ended."""
        if not self.is_open:
            return
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        with self._call() as handle:
            failed = _core[0].gw_wait(handle, ticket, seconds, error, len(error))
        if failed:
            raise RuntimeError(error.value.decode())

    def counters(self) -> dict[str, int]:
        """Read the counters of the core."""
        counters = native.Counters()
        with self._call() as handle:
            _core[0].gw_counters_read(handle, ctypes.byref(counters))
        return {name: getattr(counters, name) for name, _ in native.Counters._fields_}

    def keys_of_job(self) -> dict[str, str]:
        """Read the resolved job."""
        return json.loads(self._text(_core[0].gw_job_json))

    def job_tolerance(self) -> float:
        """Read the job's loss tolerance."""
        with self._call() as handle:
            return _core[0].gw_job_tolerance(handle)

    def tune(self, step_seconds: float) -> tuple[bool, int, int]:
        """Return chunk and credit to measure next, or to keep, and whether it is a trial."""
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        out = native.Schedule()
        with self._call() as handle:
            trying = _core[0].gw_tune(handle, step_seconds, ctypes.byref(out), error, len(error))
        if trying < 0:
            raise RuntimeError(error.value.decode())
        return trying > 0, out.chunk, out.credit

    def reschedule(self, chunk: int, credit: int) -> None:
        """Change chunk and credit of operations that are submitted from now on."""
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        schedule = native.Schedule(chunk, credit)
        with self._call() as handle:
            changed = _core[0].gw_reschedule(handle, ctypes.byref(schedule), error, len(error))
        if changed < 0:
            raise RuntimeError(error.value.decode())

    @contextlib.contextmanager
    def _call(self) -> Iterator[int]:
        """Give the handle to a call; the rank is not freed before the call has returned."""
        with self._idle:
            if self._handle is None:
                raise RuntimeError(
                    "gradwire: the process group has been shut down; call init_process_group again"
                )
            self._calls += 1
        try:
            yield self._handle
        finally:
            with self._idle:
                self._calls -= 1
                self._idle.notify_all()

    def _text(self, read: Callable[..., int]) -> str:
        with self._call() as handle:
            out = ctypes.create_string_buffer(read(handle, None, 0) + 1)
            read(handle, out, len(out))
        return out.value.decode()


class _PendingWork(Work):
    """A submitted operation; its future is fulfilled by a thread of the core, or of a waiter."""

    def __init__(self, call: Call, core: Rank, group: int) -> None:
        super().__init__()
        self._call = call
        self._core = core
        self._group = group
        self._ticket = 0
        self._future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()

    def starts(self, operation: native.Operation) -> None:
        """Submit the operation."""
        number = next(_numbers)
        _pending[number] = self
        try:
            self._ticket = self._core.submit(operation, number)
        except Exception:
            del _pending[number]
            raise

    def settle(self, error: str | None) -> None:
        """Bring the result to its place and fulfil the future."""
        try:
            if error is not None:
                raise DistBackendError(error)
            if self._call.land is not None:
                with torch.no_grad():
                    self._call.land()
        except Exception as failure:
            self._future.set_exception(failure)
        else:
            self._future.set_result(self._call.outputs)
        finally:
            self._core.ended(self._group)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds() or float("inf")
        if self._ticket:
            self._core.wait(self._ticket, seconds)
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        return self._future

    def __del__(self) -> None:
        if self._ticket:
            _core[0].gw_ticket_free(self._ticket)


class Backend(_Backend):
    """The backend of one process group."""

    # In a subclass in Python, PyTorch's own answers ask themselves again, without end.
    supports_coalescing = False
    supports_reconfigure = False
    supports_shrinking = False
    supports_splitting = False
    supports_window = False
    supports_time_estimate = False
    _supports_time_estimate = False

    def __init__(
        self,
        rank: Rank,
        group: tuple[int, Sequence[int], int],
        store: Store,
        options: _Backend.Options,
        staging: Staging,
    ) -> None:
        """Create a group; see the stub of the compiled binding."""
        number, ranks, position = group
        super().__init__(position, len(ranks))
        self._core = rank
        self._group = number
        self._position = position
        self._ranks = (ctypes.c_uint32 * len(ranks))(*ranks)
        self._timeout = options._timeout
        self._sequence = 0
        self._options = options
        self._stages_host = staging.of_host
        self._options.global_ranks_in_group = list(ranks)
        self._is_gone = False
        rank.group_created()

    @property
    def options(self) -> object:
        return self._options

    def getBackendName(self) -> str:  # noqa: N802
        return self._options.backend

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def abort(self) -> None:
        if self._group != 0:
            self._core.end_group(self._group)
            return
        self._core.abort(f"rank {self._core.place[0]} called abort()")

    def shutdown(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._core.let_group_finish(self._group)
            self._core.end_group(self._group)
            self._core.group_gone()

    def __del__(self) -> None:
        """Count the group out if PyTorch has not destroyed it."""
        self.shutdown()

    # Additions of gradwire to PyTorch's interface.

    def allreduce_tagged(self, tensor: torch.Tensor, **tags: object) -> Work:
        """Reduce a gradient bucket in place; see the stub of the compiled binding."""
        spans = list(zip(tags["layer_offsets"], tags["layers"], strict=True))
        call = Call("all_reduce", [tensor], fields=_tagged(tags, spans))
        return self._reduces(call, tensor, ReduceOp(tags.get("op", ReduceOp.AVG)))

    def join(self, works: Sequence[Work], tensor: torch.Tensor) -> Work:
        """Make one work of several; see the stub of the compiled binding."""
        return _Together(list(works), [tensor])

    def reduce_scatter_tagged(
        self, output: torch.Tensor, input: torch.Tensor, **tags: object
    ) -> Work:
        """Reduce the gradients of a sharded module; see the stub of the compiled binding."""
        call = Call("reduce_scatter", [output], fields=_tagged(tags, [(0, tags["layer"])]))
        call.input = input.contiguous().reshape(-1)
        return self._reduces(call, output, ReduceOp(tags.get("op", ReduceOp.AVG)))

    def take_residual(
        self, tensor_key: int, elements: int, dtype: torch.dtype
    ) -> torch.Tensor | None:
        """Take a tensor's residual; see the stub of the compiled binding."""
        values = torch.zeros(elements, dtype=dtype)
        return values if self._core.take_residual(tensor_key, values) else None

    def scale_residual(self, tensor_key: int, factor: float) -> None:
        """Scale a tensor's residual; see the stub of the compiled binding."""
        self._core.scale_residual(tensor_key, factor)

    def counters(self) -> dict[str, int]:
        """Read the counters of this rank."""
        return self._core.counters()

    def job(self) -> dict[str, str]:
        """Read the resolved job."""
        return self._core.keys_of_job()

    def job_tolerance(self) -> float:
        """Read the job's loss tolerance."""
        return self._core.job_tolerance()

    def tune(self, step_seconds: float) -> tuple[bool, int, int]:
        """Ask the job's tuning for the next step; see the stub of the compiled binding."""
        return self._core.tune(step_seconds)

    def reschedule(self, chunk: int, credit: int) -> None:
        """Change chunk and credit; see the stub of the compiled binding."""
        self._core.reschedule(chunk, credit)

    # Methods that PyTorch calls.

    def allreduce(self, tensors: list[torch.Tensor], options: object) -> Work:
        call = Call("all_reduce", tensors, timeout=options.timeout)
        return self._reduces(call, _only(tensors), options.reduceOp)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], options: object) -> Work:
        joined = torch.cat([tensor.reshape(-1) for tensor in tensors])
        call = Call("all_reduce", tensors, timeout=options.timeout)
        call.land = lambda: _spread(joined, tensors)
        return self._reduces(call, joined, options.reduceOp)

    def reduce(self, tensors: list[torch.Tensor], options: object) -> Work:
        (root, own) = (options.rootRank, _only(tensors).clone())
        call = Call("reduce", tensors, root=root, timeout=options.timeout)
        if root == self._position:
            call.land = lambda: tensors[0].copy_(own)
        return self._reduces(call, own, options.reduceOp)

    def broadcast(self, tensors: list[torch.Tensor], options: object) -> Work:
        call = Call("broadcast", tensors, root=options.rootRank, timeout=options.timeout)
        return self._in_place(call, _only(tensors))

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list, options: object) -> Work:
        (input,) = inputs
        joined = input.new_empty(self.size() * input.numel())
        call = Call("all_gather", outputs[0], joined, input.contiguous(), timeout=options.timeout)
        call.land = lambda: _spread(joined, outputs[0])
        return self._start(call)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, options: object) -> Work:
        return self._from_input(
            Call("all_gather", [output], timeout=options.timeout), output, input
        )

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list, options: object) -> Work:
        call = Call("gather", [], root=options.rootRank, timeout=options.timeout)
        call.input = _only(inputs).contiguous()
        if options.rootRank == self._position:
            call.outputs = outputs[0]
            call.buffer = call.input.new_empty(self.size() * call.input.numel())
            call.land = lambda: _spread(call.buffer, outputs[0])
        else:
            call.buffer, call.input = call.input, None
        return self._start(call)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list], options: object) -> Work:
        output = _only(outputs)
        call = Call("scatter", outputs, root=options.rootRank, timeout=options.timeout)
        call.input = _joined(inputs[0]) if options.rootRank == self._position else None
        return self._in_place(call, output)

    def reduce_scatter(self, outputs: list, inputs: list[list], options: object) -> Work:
        call = Call("reduce_scatter", outputs, timeout=options.timeout)
        call.input = _joined(inputs[0])
        return self._reduces(call, _only(outputs), options.reduceOp)

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, options: object
    ) -> Work:
        call = Call("reduce_scatter", [output], timeout=options.timeout)
        call.input = input.contiguous().reshape(-1)
        return self._reduces(call, output, options.reduceOp)

    def alltoall(self, outputs: list, inputs: list, options: object) -> Work:
        joined = torch.cat([output.reshape(-1) for output in outputs])
        call = Call("all_to_all", outputs, joined, _joined(inputs), timeout=options.timeout)
        sizes = [[tensor.nbytes for tensor in tensors] for tensors in (inputs, outputs)]
        call.splits = (sizes[0], sizes[1])
        call.land = lambda: _spread(joined, outputs)
        return self._start(call)

    def all_to_all_single(self, *arguments: object) -> Work:
        output, input, output_splits, input_splits, options = arguments
        call = Call("all_to_all", [output], timeout=options.timeout)
        if output_splits or input_splits:
            call.splits = (
                _row_bytes(input, input_splits, self.size()),
                _row_bytes(output, output_splits, self.size()),
            )
        return self._from_input(call, output, input)

    def barrier(self, options: object) -> Work:
        return self._start(Call("barrier", [], timeout=options.timeout))

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Work:
        call = Call("send", tensors, _only(tensors).contiguous(), root=to, tag=tag)
        return self._start(call)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        return self._in_place(Call("recv", tensors, root=source, tag=tag), _only(tensors))

    def all_gather_single_coalesced(self, outputs: list, inputs: list, options: object) -> Work:
        pairs = zip(outputs, inputs, strict=True)
        return _Together([self.all_gather_single(*pair, options) for pair in pairs], outputs)

    def reduce_scatter_single_coalesced(self, outputs: list, inputs: list, options: object) -> Work:
        pairs = zip(outputs, inputs, strict=True)
        return _Together([self.reduce_scatter_single(*pair, options) for pair in pairs], outputs)

    def allgather_coalesced(self, outputs: list[list], inputs: list, options: object) -> Work:
        columns = [[row[i] for row in outputs] for i in range(len(inputs))]
        works = [
            self.allgather([column], [input], options)
            for column, input in zip(columns, inputs, strict=True)
        ]
        return _Together(works, [tensor for row in outputs for tensor in row])

    # From tensors to the core.

    def _reduces(self, call: Call, tensor: torch.Tensor, op: ReduceOp) -> Work:
        reduce = int(op.op)
        if op.op == ReduceOp.AVG and _is_integer(tensor.dtype):
            reduce = int(ReduceOp.SUM)
            call.land = _divided(call, tensor, self.size())
        if tensor.dtype == torch.bool:
            if reduce not in _OF_BOOLS:
                raise TypeError(f"gradwire: {op.op} of bool: use sum, min, max or a bitwise one")
            reduce = _OF_BOOLS[reduce]
        elif tensor.is_complex() and reduce not in _LINEAR:
            raise TypeError(f"gradwire: {op.op} of {tensor.dtype}: complex tensors can be summed")
        elif not tensor.is_complex() and tensor.dtype not in _DTYPES:
            raise TypeError(f"gradwire: {op.op} of {tensor.dtype}: convert to float32 first")
        call.reduce = reduce
        return self._in_place(call, tensor)

    def _in_place(self, call: Call, tensor: torch.Tensor) -> Work:
        """Run on the tensor itself if it is contiguous, otherwise on a copy that is copied back."""
        dense = tensor.contiguous()
        if dense is not tensor and dense.data_ptr() != tensor.data_ptr():
            call.land = _one_after_another(lambda: tensor.copy_(dense), call.land)
        call.buffer = dense
        return self._start(call)

    def _from_input(self, call: Call, output: torch.Tensor, input: torch.Tensor) -> Work:
        call.input = input.contiguous()
        return self._in_place(call, output)

    def _start(self, call: Call) -> Work:
        if is_on_device(call) or self._stages_host:
            stage(call)
        call.input = self._apart(call)
        work = _PendingWork(call, self._core, self._group)
        work.starts(self._operation(call))
        return work

    def _apart(self, call: Call) -> torch.Tensor | None:
        """Return the input, or a copy of it if the result would overwrite it.

        FSDP2 gathers in place: its input is this rank's part of the output, so the core gets none.
        """
        if call.buffer is None or call.input is None:
            return call.input
        buffer, input = call.buffer.data_ptr(), call.input.data_ptr()
        if call.kind == "all_gather" and input == buffer + self._position * call.input.nbytes:
            return None
        apart = input + call.input.nbytes <= buffer or buffer + call.buffer.nbytes <= input
        return call.input if apart else call.input.clone()

    def _operation(self, call: Call) -> native.Operation:
        operation = native.Operation(
            kind=_KINDS[call.kind],
            reduce=call.reduce,
            root=call.root,
            group=self._group,
            ranks=self._ranks,
            ranks_len=len(self._ranks),
            tolerance=-1.0,
            tag=call.tag,
            timeout_seconds=self._seconds(call.timeout),
        )
        if call.kind not in ("send", "recv"):
            operation.sequence = self._sequence & 0x7FFF_FFFF
            self._sequence += 1
        if call.buffer is not None:
            operation.dtype = _dtype_of(call.buffer)
            operation.buffer, operation.bytes = call.buffer.data_ptr(), call.buffer.nbytes
        if call.input is not None:
            operation.input, operation.input_bytes = call.input.data_ptr(), call.input.nbytes
        if call.splits:
            vectors = [(ctypes.c_uint64 * self.size())(*split) for split in call.splits]
            operation.input_splits, operation.output_splits = vectors
        for name, value in call.fields.items():
            setattr(operation, name, value)
        return operation

    def _seconds(self, timeout: timedelta | None) -> float:
        unset = timeout is None or timeout <= timedelta(0)
        return (self._timeout if unset else timeout).total_seconds()


class _Together(Work):
    """Several operations as one."""

    def __init__(self, works: list[Work], outputs: list[torch.Tensor]) -> None:
        super().__init__()
        self._works = works
        self._outputs = outputs

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return all([work.wait(timeout) for work in self._works])

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        futures = [work.get_future() for work in self._works]
        return torch.futures.collect_all(futures).then(lambda _: self._outputs)


def _tagged(tags: dict[str, object], spans: list[tuple[int, int]]) -> dict[str, object]:
    layers = (native.Layer * len(spans))(*((offset, layer, 0) for offset, layer in spans))
    names = ("layer_count", "step", "tensor_key", "codec", "codec_share")
    fields = {name: tags[name] for name in names if name in tags}
    tolerance = tags["tolerance"] or -1.0
    return fields | {"tolerance": tolerance, "layers": layers, "layers_len": len(spans)}


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _divided(call: Call, total: torch.Tensor, ranks: int) -> Callable[[], None] | None:
    """Return how a sum of integers becomes their average, as in the compiled binding.

    A rank that only contributes to a reduce has no sum.
    """
    if call.kind == "reduce" and call.land is None:
        return None
    return _one_after_another(
        lambda: total.copy_(torch.div(total, ranks, rounding_mode="trunc")), call.land
    )


def _one_after_another(
    first: Callable[[], object], then: Callable[[], object] | None
) -> Callable[[], None]:
    def both() -> None:
        first()
        if then is not None:
            then()

    return both


def _only(tensors: list[torch.Tensor]) -> torch.Tensor:
    (tensor,) = tensors
    return tensor


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _spread(joined: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    parts = joined.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


def _row_bytes(tensor: torch.Tensor, splits: Sequence[int], ranks: int) -> list[int]:
    rows = splits or [tensor.shape[0] // ranks] * ranks
    row = tensor.nbytes // tensor.shape[0] if tensor.shape[0] else 0
    return [count * row for count in rows]


def _dtype_of(tensor: torch.Tensor) -> int:
    return _DTYPES.get(tensor.dtype, _COMPLEX_AS_REAL.get(tensor.dtype, 0))
