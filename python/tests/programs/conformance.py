"""Runs every operation over gradwire and over Gloo on the same inputs and compares the results.

Arguments after the report's path: a seed, and in how many of the six combinations of layout and
mode each operation runs on each type. The report is a list of failures; each line is enough to run
the case again.

Gloo gets contiguous tensors of a type that it accepts: bytes where elements are only moved, wider
integers or the parts of complex numbers where they are reduced. gradwire gets the original tensors.
"""

import datetime
import itertools
import json
import random
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

Op = dist.ReduceOp
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
GLOO_INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)
MORE_INTEGERS = (torch.int16, torch.uint16, torch.uint32, torch.uint64)
INTEGERS = (*GLOO_INTEGERS, *MORE_INTEGERS)
COMPLEX = (torch.complex64, torch.complex128)
GLOO = (*FLOATS, *GLOO_INTEGERS, torch.bool)
MOVED = (*FLOATS, *INTEGERS, *COMPLEX, torch.bool, torch.float8_e4m3fn, torch.complex32)
FACTOR = 0.5

REDUCTIONS: dict[str, tuple[object, tuple[torch.dtype, ...]]] = {
    "sum": (Op.SUM, (*FLOATS, *INTEGERS, *COMPLEX, torch.bool)),
    "avg": (Op.AVG, (*FLOATS, *COMPLEX)),
    "product": (Op.PRODUCT, (*FLOATS, *INTEGERS, torch.bool)),
    "min": (Op.MIN, (*FLOATS, *INTEGERS, torch.bool)),
    "max": (Op.MAX, (*FLOATS, *INTEGERS, torch.bool)),
    "band": (Op.BAND, INTEGERS),
    "bor": (Op.BOR, INTEGERS),
    "bxor": (Op.BXOR, INTEGERS),
    "premul_sum": (dist._make_nccl_premul_sum(FACTOR), (*FLOATS, *COMPLEX)),
}
LAYOUTS = ("contiguous", "strided", "empty")
MODES = ("sync", "async")
BATCH = 24
"""Cases whose operations over Gloo are in flight together."""


@dataclass(frozen=True)
class Case:
    """One operation on one type of element, in one layout and mode."""

    operation: str
    reduction: str
    dtype: torch.dtype
    layout: str
    mode: str
    seed: int

    def __str__(self) -> str:
        """Everything that is needed to run it again."""
        name = f"{self.operation} {self.reduction}".strip()
        return (
            f"{name} of {self.dtype}, {self.layout}, {self.mode}, "
            f"world {dist.get_world_size()}, seed {self.seed}"
        )

    def draw(self, *of: object) -> random.Random:
        """Random numbers that are the same on every rank for the same ``of``."""
        key = f"{self.seed} {self.operation} {self.reduction} {self.dtype} {of}"
        return random.Random(zlib.crc32(key.encode()))

    def rows(self) -> int:
        """Length of the first dimension of one rank's share."""
        return 0 if self.layout == "empty" else self.draw("rows").choice((1, 3, 700))


class Side:
    """One of the two backends: makes inputs for a case and reads results."""

    def __init__(self, case: Case, group: dist.ProcessGroup) -> None:
        """Prepare ``case`` over ``group``."""
        self.case = case
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.waits = case.mode == "sync"
        self.op = REDUCTIONS[case.reduction][0] if case.reduction else None

    def member(self, position: int) -> int:
        """The rank of the job at a position of the group, counted around it."""
        return dist.get_global_rank(self.group, position % self.world)

    def root(self) -> int:
        """The root of operations that have one, as a rank of the job."""
        return self.member(self.case.draw("root").randrange(self.world))

    def input(self, rows: int, name: str = "", rank: int | None = None) -> torch.Tensor:
        """The input called ``name`` of ``rank``, by default of this one."""
        rank = self.rank if rank is None else rank
        return self.lay_out(values(self.case, rows, (name, rank)))

    def output(self, rows: int) -> torch.Tensor:
        """Room for a result, filled with values that must be overwritten."""
        return self.lay_out(values(self.case, rows, ("before", self.rank)))

    def lay_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give the values the layout of the case."""
        if self.case.layout != "strided":
            return tensor
        wide = tensor.repeat_interleave(2, 1)
        return wide[:, ::2]

    def is_mute(self) -> bool:
        """Whether this backend refuses messages of the case: Gloo refuses empty ones."""
        return False

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """The values of a result."""
        return tensor.contiguous()


class GlooSide(Side):
    """Gloo, with tensors that it accepts."""

    def __init__(self, case: Case, group: dist.ProcessGroup) -> None:
        """Prepare ``case`` over ``group``; always in flight with other cases."""
        super().__init__(case, group)
        self.waits = False
        if case.reduction == "premul_sum":
            self.op = Op.SUM

    def lay_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous carrier of the values."""
        case = self.case
        if case.reduction == "premul_sum":
            tensor = tensor * FACTOR
        if case.reduction and tensor.is_complex():
            return torch.view_as_real(tensor).clone()
        if case.reduction and case.dtype in MORE_INTEGERS:
            return tensor.to(torch.int64)
        return tensor.clone() if case.dtype in GLOO else tensor.view(torch.uint8).clone()

    def is_mute(self) -> bool:
        """Gloo wants at least one byte."""
        return self.case.rows() == 0

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """The values that the carrier stands for."""
        case = self.case
        if case.reduction and case.dtype.is_complex:
            return torch.view_as_complex(tensor)
        if case.reduction and case.dtype in MORE_INTEGERS:
            return tensor.to(case.dtype)
        return tensor if case.dtype in GLOO else tensor.view(case.dtype)


def values(case: Case, rows: int, of: object) -> torch.Tensor:
    """Random values: positive floats, so that sums do not cancel; all bits for bitwise ones."""
    generator = torch.Generator().manual_seed(case.draw(of).getrandbits(60))
    shape = (rows, 5)
    if case.dtype.is_floating_point or case.dtype.is_complex:
        parts = [torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5 for _ in "ri"]
        if case.dtype.is_complex:
            return torch.complex(*parts).to(case.dtype)
        return parts[0].to(case.dtype)
    if case.dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    high = 128 if case.reduction in ("band", "bor", "bxor") else 7
    return torch.randint(0, high, shape, generator=generator).to(case.dtype)


Started = tuple[list[dist.Work | None], list[torch.Tensor]]


def all_reduce(side: Side) -> Started:
    """In place on every rank."""
    tensor = side.input(side.case.rows())
    return [dist.all_reduce(tensor, side.op, side.group, not side.waits)], [tensor]


def all_reduce_coalesced(side: Side) -> Started:
    """Two tensors as one operation."""
    tensors = [side.input(side.case.rows(), "a"), side.input(2, "b")]
    work = dist.all_reduce_coalesced(tensors, side.op, side.group, not side.waits)
    return [work], tensors


def reduce(side: Side) -> Started:
    """At the root; gradwire leaves the others' tensors alone, Gloo does not say."""
    root = side.root()
    tensor = side.input(side.case.rows())
    work = dist.reduce(tensor, root, side.op, side.group, not side.waits)
    return [work], [tensor] if dist.get_rank() == root else []


def reduce_scatter(side: Side) -> Started:
    """From a list of inputs."""
    rows = side.case.rows()
    inputs = [side.input(rows, str(i)) for i in range(side.world)]
    output = side.output(rows)
    return [dist.reduce_scatter(output, inputs, side.op, side.group, not side.waits)], [output]


def reduce_scatter_tensor(side: Side) -> Started:
    """From one input."""
    rows = side.case.rows()
    output, whole = side.output(rows), side.input(rows * side.world)
    work = dist.reduce_scatter_tensor(output, whole, side.op, side.group, not side.waits)
    return [work], [output]


def reduce_scatter_tensor_coalesced(side: Side) -> Started:
    """Two pairs of input and output."""
    pairs = [(side.output(n), side.input(n * side.world, str(n))) for n in (side.case.rows(), 2)]
    with dist._coalescing_manager(side.group, async_ops=True) as both:
        for output, whole in pairs:
            dist.reduce_scatter_tensor(output, whole, side.op, side.group)
    return both.works, [output for output, _ in pairs]


def broadcast(side: Side) -> Started:
    """From the root."""
    tensor = side.input(side.case.rows())
    return [dist.broadcast(tensor, side.root(), side.group, not side.waits)], [tensor]


def all_gather(side: Side) -> Started:
    """Into a list."""
    rows = side.case.rows()
    outputs = [side.output(rows) for _ in range(side.world)]
    return [dist.all_gather(outputs, side.input(rows), side.group, not side.waits)], outputs


def all_gather_into_tensor(side: Side) -> Started:
    """Into one tensor."""
    rows = side.case.rows()
    output = side.output(rows * side.world)
    work = dist.all_gather_into_tensor(output, side.input(rows), side.group, not side.waits)
    return [work], [output]


def all_gather_into_tensor_coalesced(side: Side) -> Started:
    """Two pairs of input and output."""
    pairs = [(side.output(n * side.world), side.input(n, str(n))) for n in (side.case.rows(), 2)]
    with dist._coalescing_manager(side.group, async_ops=True) as both:
        for output, own in pairs:
            dist.all_gather_into_tensor(output, own, side.group)
    return both.works, [output for output, _ in pairs]


def all_gather_coalesced(side: Side) -> Started:
    """Two inputs into a list of two outputs for each rank."""
    sizes = (side.case.rows(), 2)
    outputs = [[side.output(n) for n in sizes] for _ in range(side.world)]
    inputs = [side.input(n, str(n)) for n in sizes]
    work = dist.all_gather_coalesced(outputs, inputs, side.group, not side.waits)
    return [work], [tensor for tensors in outputs for tensor in tensors]


def gather(side: Side) -> Started:
    """At the root."""
    rows, root = side.case.rows(), side.root()
    outputs = [side.output(rows) for _ in range(side.world)] if dist.get_rank() == root else None
    work = dist.gather(side.input(rows), outputs, root, side.group, not side.waits)
    return [work], outputs or []


def scatter(side: Side) -> Started:
    """From the root."""
    rows, root = side.case.rows(), side.root()
    inputs = (
        [side.input(rows, str(i)) for i in range(side.world)] if dist.get_rank() == root else None
    )
    output = side.output(rows)
    return [dist.scatter(output, inputs, root, side.group, not side.waits)], [output]


def all_to_all_single(side: Side) -> Started:
    """The same number of rows for every pair of ranks."""
    rows = side.case.rows() * side.world
    output = side.output(rows)
    work = dist.all_to_all_single(
        output, side.input(rows), group=side.group, async_op=not side.waits
    )
    return [work], [output]


def all_to_all_uneven(side: Side) -> Started:
    """Another number of rows for each pair of ranks, some of them none."""
    output, own, splits = _uneven(side)
    work = dist.all_to_all_single(
        output, own, splits[0], splits[1], group=side.group, async_op=not side.waits
    )
    return [work], [output]


def all_to_all(side: Side) -> Started:
    """Lists; Gloo gets the same rows in one tensor."""
    if isinstance(side, GlooSide):
        return all_to_all_uneven(side)
    output, own, (to_me, from_me) = _uneven(side)
    outputs = [side.lay_out(part.contiguous()) for part in output.split(to_me)]
    inputs = [side.lay_out(part.contiguous()) for part in own.split(from_me)]
    work = dist.all_to_all(outputs, inputs, side.group, not side.waits)
    if work:
        work.wait()
    return [], [torch.cat(outputs)]


def _uneven(side: Side) -> tuple[torch.Tensor, torch.Tensor, tuple[list[int], list[int]]]:
    """Output, input, and rows from and to each rank."""
    rows, world = side.case.rows(), side.world
    table = [[rows * side.case.draw(i, j).randrange(3) for j in range(world)] for i in range(world)]
    from_me, to_me = table[side.rank], [row[side.rank] for row in table]
    return side.output(sum(to_me)), side.input(sum(from_me)), (to_me, from_me)


def send_recv(side: Side) -> Started:
    """Around a ring, with a tag."""
    tag = side.case.draw("tag").randrange(60000)
    own, got = side.input(side.case.rows()), side.output(side.case.rows())
    if side.is_mute():
        return [], [got]
    ahead, behind = side.member(side.rank + 1), side.member(side.rank - 1)
    if not side.waits:
        return [
            dist.irecv(got, behind, side.group, tag),
            dist.isend(own, ahead, side.group, tag),
        ], [got]
    if side.rank == 0:
        dist.send(own, ahead, side.group, tag)
    dist.recv(got, behind, side.group, tag)
    if side.rank > 0:
        dist.send(own, ahead, side.group, tag)
    return [], [got]


def recv_any(side: Side) -> Started:
    """Rank 0 receives from all others, in any order; messages are told apart by their source."""
    # A tag for each case: else a rank's message of another case in flight could be taken for one.
    tag = side.case.draw(side.case.layout, side.case.mode).randrange(60000)
    if side.is_mute():
        return [], [side.output(0) for _ in range(1, side.world) if side.rank == 0]
    if side.rank > 0:
        return [dist.isend(side.input(side.case.rows()), side.member(0), side.group, tag)], []
    got = {}
    for _ in range(1, side.world):
        tensor = side.output(side.case.rows())
        got[dist.recv(tensor, group=side.group, tag=tag)] = tensor
    return [], [got[source] for source in sorted(got)]


def batch_isend_irecv(side: Side) -> Started:
    """With every other rank, both ways."""
    others = [side.member(i) for i in range(side.world) if i != side.rank]
    got = [side.output(side.case.rows()) for _ in others]
    if side.is_mute():
        return [], got
    messages = [
        dist.P2POp(dist.irecv, tensor, other, side.group)
        for tensor, other in zip(got, others, strict=True)
    ]
    messages += [
        dist.P2POp(dist.isend, side.input(side.case.rows(), str(other)), other, side.group)
        for other in others
    ]
    return dist.batch_isend_irecv(messages), got


COMPUTING: tuple[Callable[[Side], Started], ...] = (
    all_reduce,
    all_reduce_coalesced,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    reduce_scatter_tensor_coalesced,
)
MOVING: tuple[Callable[[Side], Started], ...] = (
    broadcast,
    all_gather,
    all_gather_into_tensor,
    all_gather_into_tensor_coalesced,
    all_gather_coalesced,
    gather,
    scatter,
    all_to_all_single,
    all_to_all_uneven,
    all_to_all,
)
MESSAGES: tuple[Callable[[Side], Started], ...] = (send_recv, recv_any, batch_isend_irecv)
OPERATIONS = {operation.__name__: operation for operation in (*COMPUTING, *MOVING, *MESSAGES)}


def kinds() -> Iterator[tuple[str, str, torch.dtype]]:
    """Every operation, with every reduction where it has one, on every type."""
    for operation in COMPUTING:
        for reduction, (_, dtypes) in REDUCTIONS.items():
            for dtype in dtypes:
                yield operation.__name__, reduction, dtype
    for operation in (*MOVING, *(MESSAGES if dist.get_world_size() > 1 else ())):
        for dtype in MOVED:
            yield operation.__name__, "", dtype


def cases(seed: int, count: int) -> list[Case]:
    """Each kind in ``count`` combinations of layout and mode; they differ between world sizes."""
    ways = list(itertools.product(LAYOUTS, MODES))
    out = []
    for number, kind in enumerate(kinds()):
        first = number + dist.get_world_size()
        chosen = [ways[(first + i) % len(ways)] for i in range(count)]
        out += [Case(*kind, layout, mode, seed) for layout, mode in chosen]
    random.Random(seed).shuffle(out)
    return out


def finish(started: Started) -> list[torch.Tensor]:
    """Wait for the operations of a case and return their results."""
    works, results = started
    for work in works:
        if work is not None:
            work.wait()
    return results


def check(own: Side, results: list[torch.Tensor], reference: Side, wanted: list) -> None:
    """Compare the results of both sides."""
    assert len(results) == len(wanted)
    for result, expected in zip(results, wanted, strict=True):
        compare(own.case, own.read(result), reference.read(expected))


def compare(case: Case, result: torch.Tensor, reference: torch.Tensor) -> None:
    """Equal bits if nothing was rounded, else within the error of that many roundings."""
    assert result.shape == reference.shape
    if result.numel() == 0:
        return
    if case.dtype == torch.bool:
        result, reference = result.view(torch.uint8).ne(0), reference.view(torch.uint8).ne(0)
    if case.reduction and (case.dtype.is_floating_point or case.dtype.is_complex):
        bound = 2 * dist.get_world_size() * torch.finfo(case.dtype).eps
        torch.testing.assert_close(result, reference, rtol=bound, atol=0.0)
    else:
        same = result.contiguous().view(torch.uint8), reference.contiguous().view(torch.uint8)
        torch.testing.assert_close(*same, rtol=0.0, atol=0.0)


def one_thread(
    store: dist.Store, rank: int, size: int, timeout: datetime.timedelta
) -> dist.ProcessGroupGloo:
    """Gloo with one thread: its usual two write one string at the same time.

    It is the name of the last operation (PyTorch 2.15, ``ProcessGroupGloo::runLoop``; found by
    AddressSanitizer), and now and then a process dies of it. ``new_group`` ignores the options of a
    group over "gloo", so this is a backend of its own.
    """
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_default_device()]
    options._threads = 1
    options._timeout = timeout
    gloo = dist.ProcessGroupGloo(store, rank, size, options)
    assert gloo.options._threads == 1
    return gloo


dist.Backend.register_backend("gloo_one_thread", one_thread, devices=["cpu"])


def gloo_group(members: tuple[int, ...] | None = None) -> dist.ProcessGroup:
    """A group over Gloo with one thread."""
    return dist.new_group(members, backend="gloo_one_thread")


def run_all(every: list[Case]) -> list[str]:
    """Run all cases; stops after the first that raises, since ranks may not meet again."""
    ours, gloo = dist.group.WORLD, gloo_group()
    failures: list[str] = []
    for start in range(0, len(every), BATCH):
        references = [GlooSide(case, gloo) for case in every[start : start + BATCH]]
        started = [OPERATIONS[side.case.operation](side) for side in references]
        for side, wanted in zip(references, map(finish, started), strict=True):
            own = Side(side.case, ours)
            try:
                check(own, finish(OPERATIONS[own.case.operation](own)), side, wanted)
            except AssertionError as error:
                failures.append(f"{own.case}: {error}")
            except Exception:
                return [*failures, f"{own.case}: {traceback.format_exc()}"]
    return failures


def main() -> None:
    """Compare everything, report differences and how many cases there were."""
    path, seed, count = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=40))
    every = cases(int(seed), int(count))
    failures = run_all(every)
    report = {"failures": failures, "cases": len(every)}
    with open(path, "w") as out:
        json.dump(report, out)
    if not failures:
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
