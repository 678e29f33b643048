"""Uses every operation of the backend without a compiler, and reports trained parameters."""

import json
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.ddp


def _one_to_all() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((3, 2), float(rank))
    dist.broadcast(tensor.t(), 1)
    assert torch.equal(tensor, torch.full((3, 2), 1.0))
    parts = [torch.full((2,), float(i)) for i in range(world)] if rank == 0 else None
    own = torch.zeros(2)
    dist.scatter(own, parts)
    assert torch.equal(own, torch.full((2,), float(rank)))


def _all_to_one() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for root in (None, 0):
        whole = torch.tensor([-5 if rank == 0 else 0, 3])
        if root is None:
            dist.all_reduce(whole, dist.ReduceOp.AVG)
        else:
            dist.reduce(whole, root, dist.ReduceOp.AVG)
        assert whole.tolist() == ([-1, 3] if rank == 0 or root is None else [0, 3]), whole
    reduced = torch.ones(2)
    dist.reduce(reduced, 0)
    assert torch.equal(reduced, torch.full((2,), float(world) if rank == 0 else 1.0))
    gathered = [torch.zeros(2) for _ in range(world)] if rank == 0 else None
    dist.gather(torch.full((2,), float(rank)), gathered)
    if gathered:
        assert [part[0].item() for part in gathered] == list(range(world))


def _all_to_all() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.int64, torch.complex64, torch.bfloat16):
        tensor = torch.arange(10).to(dtype) + rank
        dist.all_reduce(tensor)
        assert torch.equal(tensor, sum(torch.arange(10).to(dtype) + i for i in range(world)))
    flag = torch.tensor([rank == 0, False])
    dist.all_reduce(flag)
    assert flag.tolist() == [True, False]
    objects: list[object] = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": i} for i in range(world)]
    sums = torch.zeros(2)
    dist.reduce_scatter_tensor(sums, torch.arange(2.0 * world))
    assert torch.equal(sums, world * torch.tensor([2.0 * rank, 2.0 * rank + 1]))
    both = torch.arange(2.0 * world)
    dist.reduce_scatter_tensor(both[:2], both)
    assert torch.equal(both[:2], sums), both
    overlapping = torch.arange(3.0 * world) + rank
    dist.all_gather_into_tensor(overlapping[: 2 * world], overlapping[1:3])
    wanted = [value + float(i) for i in range(world) for value in (1, 2)]
    assert overlapping[: 2 * world].tolist() == wanted, overlapping
    uneven = torch.zeros(sum(range(1, world + 1)), dtype=torch.int64)
    source = torch.full((world * (rank + 1),), rank)
    dist.all_to_all_single(uneven, source, list(range(1, world + 1)), [rank + 1] * world)
    assert uneven.tolist() == [i for i in range(world) for _ in range(i + 1)]


def _point_to_point() -> None:
    tensor = torch.arange(5)
    if dist.get_rank() == 0:
        dist.send(tensor, 1, tag=3)
    elif dist.get_rank() == 1:
        got = torch.zeros(10, dtype=torch.int64)[::2]
        dist.recv(got, 0, tag=3)
        assert torch.equal(got, tensor)


def _many_at_once() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    sent, got = torch.full((3,), float(rank)), torch.zeros(3)
    there = dist.P2POp(dist.isend, sent, (rank + 1) % world)
    back = dist.P2POp(dist.irecv, got, (rank - 1) % world)
    for work in dist.batch_isend_irecv([there, back]):
        work.wait()
    assert torch.equal(got, torch.full((3,), float((rank - 1) % world)))


def _a_group_is_not_split() -> None:
    try:
        dist.split_group(split_ranks=[list(range(dist.get_world_size()))])
    except RuntimeError as error:
        assert "default pg" in str(error) or "not support splitting" in str(error), error
    else:
        raise AssertionError("a group was split")


def _errors_are_carried() -> None:
    try:
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)
    except RuntimeError as error:
        assert "band" in str(error), error
    else:
        raise AssertionError("a bitwise reduction of floats was accepted")


def _trained() -> list[float]:
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(4, 3))
    gradwire.ddp.register(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 4), float(step + dist.get_rank()))).sum().backward()
        optimizer.step()
    return [value for one in model.parameters() for value in one.flatten().tolist()]


def main(report: str) -> None:
    """Run everything; report the trained parameters."""
    dist.init_process_group("gradwire", timeout=timedelta(seconds=60))
    checks = (_one_to_all, _all_to_one, _all_to_all, _point_to_point, _many_at_once)
    for check in (*checks, _a_group_is_not_split, _errors_are_carried):
        check()
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert torch.equal(work.get_future().wait()[0], torch.full((3,), float(dist.get_world_size())))
    work.wait()
    parameters = _trained()
    dist.barrier()
    dist.destroy_process_group()
    with open(report, "w") as out:
        json.dump(parameters, out)


if __name__ == "__main__":
    main(sys.argv[1])
