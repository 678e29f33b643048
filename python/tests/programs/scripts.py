"""Trains as the examples do, one after the other in one process group, and reports all losses.

Argument after the report's path: the backend.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import variants
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).parents[3] / "examples"))

import train_accelerate
import train_fsdp2
import train_hsdp
import train_mnist
import train_pipeline
import train_shakespeare
import train_tensor_parallel


def steps_of_each() -> int:
    """Return how many steps a training has: four ranks wait for time slices on few cores."""
    return {2: 20, 4: 8}[dist.get_world_size()]


def data_parallel(hooked: bool) -> list[float]:
    """Train as train_mnist.py does."""
    torch.manual_seed(1)
    read, _ = train_mnist.load_digits(1)
    digits = train_mnist.Digits(read.images.to(torch.get_default_dtype()), read.labels)
    model = DistributedDataParallel(train_mnist.network(), bucket_cap_mb=1)
    if hooked:
        import gradwire.ddp

        gradwire.ddp.register(model)
    shuffle = torch.Generator().manual_seed(dist.get_rank())
    size = (steps_of_each(), 16)
    chosen = torch.randint(train_mnist.TRAINING_DIGITS, size, generator=shuffle)
    return train_mnist.train(model, digits, list(chosen))[0]


def shakespeare(hooked: bool) -> list[float]:
    """Train as train_shakespeare.py does."""
    model = DistributedDataParallel(train_shakespeare.transformer(1), bucket_cap_mb=1)
    if hooked:
        import gradwire.ddp

        gradwire.ddp.register(model)
    chosen = argparse.Namespace(steps=steps_of_each() // 2, batch=8, seed=1)
    return [*train_shakespeare.train(model, chosen), train_shakespeare.validated(model.module)]


def main() -> None:
    """Run everything and report it by name."""
    path, backend = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    ways = [False, True] if backend == "gradwire" else [False]
    few = dist.get_world_size() == 2
    if not few:  # orders of summation differ, and training would make much of it
        torch.set_default_dtype(torch.float64)
    losses = {
        f"{function.__name__} {'hooked' if hooked else 'plain'}": function(hooked)
        for function in [data_parallel, shakespeare, *(variants.VARIANTS if few else [])]
        for hooked in ways
    }
    steps = steps_of_each()
    losses["fsdp2"] = train_fsdp2.train(steps)
    losses["tensor parallel"] = train_tensor_parallel.train(steps)
    losses["pipeline"] = train_pipeline.train(steps)
    if few:
        losses["accelerate"] = train_accelerate.train(steps)
    else:
        cpu = torch.device("cpu")
        losses["hsdp"] = train_hsdp.train(steps, train_hsdp.mesh_of(cpu, 2, backend), cpu)
        losses["two dimensions"] = train_tensor_parallel.train(steps, replicas=2)
    Path(path).write_text(json.dumps(losses))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
