"""Multiplies on a grid of ranks, over gradwire; compares with the whole product.

The arguments after the report's path are the side and the depth of the grid, and the first port of
the metrics.
"""

import json
import os
import sys
import time
import urllib.request

import torch
import torch.distributed as dist

from gradwire import summa

SIZE = 256
"""Rows and columns of each matrix: blocks are large beside the headers of packets."""


def sent_bytes() -> int:
    """Return the bytes of all packets that this rank has sent."""
    url = f"http://127.0.0.1:{int(sys.argv[4]) + int(os.environ['RANK'])}/snapshot"
    with urllib.request.urlopen(url, timeout=10) as answer:
        peers = json.load(answer)["peers"]
    return sum(row["sent_bytes"] for peer in peers for row in peer["classes"])


def multiplied(side: int, depth: int) -> dict[str, object]:
    """Multiply once, forward and backward; return whether all is equal, and the bytes sent."""
    draw = torch.Generator().manual_seed(26)
    # Integers, so that sums are exact in any order.
    whole = [torch.randint(-4, 5, (SIZE, SIZE), generator=draw).double() for _ in range(3)]
    grid = summa.Grid(summa.mesh(side, depth))
    a, b = grid.tall_block(whole[0]), grid.square_block(whole[1])
    dist.barrier()
    before = sent_bytes()
    a.requires_grad_(), b.requires_grad_()
    product = grid.multiply(a, b)
    product.backward(grid.tall_block(whole[2]))
    dist.barrier()
    time.sleep(0.5)  # the last acknowledgements
    sent = sent_bytes() - before
    expected = (whole[0] @ whole[1], whole[2] @ whole[1].T, whole[0].T @ whole[2])
    equal = [
        torch.equal(product, grid.tall_block(expected[0])),
        torch.equal(a.grad, grid.tall_block(expected[1])),
        torch.equal(b.grad, grid.square_block(expected[2])),
    ]
    return {"equal": equal, "sent": sent, "blocks": [a.nbytes, b.nbytes]}


def main() -> None:
    """Do it; report."""
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    seen = multiplied(int(sys.argv[2]), int(sys.argv[3]))
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
