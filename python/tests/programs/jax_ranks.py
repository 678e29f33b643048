"""A rank that reduces arrays of JAX in jitted functions; reports what it saw as JSON."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring

import gradwire.jax

jax.config.update("jax_enable_x64", True)

SIZE = 100_003


def drawn(rank: int, dtype: str) -> np.ndarray:
    """Return the values of a rank, small integers, whose sums are exact in every type."""
    return np.random.default_rng(rank).integers(0, 8, SIZE).astype(dtype)


def sums() -> dict[str, bool]:
    """Compare jitted reductions with those of numpy."""
    rank, world = gradwire.jax.rank(), gradwire.jax.world_size()
    seen = {}
    for dtype in ("float32", "float64", "float16", "int32", "uint8"):
        parts = [drawn(other, dtype) for other in range(world)]
        reduce = jax.jit(lambda x: (gradwire.jax.all_reduce(x), gradwire.jax.all_reduce(x, "max")))
        total, most = reduce(parts[rank])
        seen[dtype] = bool((total == sum(parts)).all() and (most == np.max(parts, axis=0)).all())
    return seen


def scanned() -> list[float]:
    """Reduce in each step of a scan, whose next step needs the sum."""
    mine = float(gradwire.jax.rank() + 1)

    def step(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = gradwire.jax.all_reduce(x + carry)
        return total, total

    _, totals = jax.jit(lambda: jax.lax.scan(step, jnp.zeros(()), jnp.full(5, mine)))()
    return totals.tolist()


def independent() -> list[float]:
    """Reduce in ways that do not depend on each other: in one function, and in two."""
    mine = float(gradwire.jax.rank() + 1)
    three = jax.jit(lambda x: [gradwire.jax.all_reduce(x * k) for k in (1, 10, 100)])
    other = jax.jit(lambda x: gradwire.jax.all_reduce(x, "product"))
    found = [three(mine), other(mine), three(2 * mine)]
    return [float(x) for x in jax.tree.leaves(found)]


def tolerant() -> list[bool]:
    """Take means under losses, as the job makes them; each rank hashes the same bits."""
    means = jax.jit(lambda x: gradwire.jax.all_reduce(x, "mean", tolerance=0.2))
    x = jnp.full(4_000_000, float(gradwire.jax.rank()), dtype=jnp.float32)
    y = np.asarray(means(x))
    least = np.asarray(gradwire.jax.all_reduce(y, "min"))
    most = np.asarray(gradwire.jax.all_reduce(y, "max"))
    return [bool((least == most).all()), bool((y == 0.5).mean() > 0.5), bool((y != 0.5).any())]


def eager() -> int:
    """Count compilations of calls outside of a jitted function, after the first one."""
    seen: list[str] = []
    monitoring.register_event_duration_secs_listener(lambda name, *_, **__: seen.append(name))
    for value in range(4):
        if value == 1:
            seen.clear()
        jax.block_until_ready(gradwire.jax.all_reduce(np.full(8, value)))
    return sum("backend_compile" in name for name in seen)


def refused() -> list[str]:
    """Collect the messages of calls that cannot work."""
    said = []
    calls = (
        lambda: gradwire.jax.all_reduce(jnp.ones(3), "median"),
        lambda: gradwire.jax.all_reduce(jnp.ones(3, dtype=int), "mean"),
        lambda: gradwire.jax.all_reduce(jnp.ones(3, dtype=bool)),
        gradwire.jax.init,
    )
    for call in calls:
        try:
            jax.block_until_ready(call())
        except Exception as error:
            said.append(str(error))
    return said


def main() -> None:
    """Join, do everything, leave."""
    gradwire.jax.init(timeout=30)
    seen = [way() for way in (sums, scanned, independent, tolerant, eager, refused)]
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)
    gradwire.jax.shutdown()


if __name__ == "__main__":
    main()
