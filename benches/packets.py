"""Count the instructions of a packet in user space, at its sender and at its receiver.

    cargo build --release -p gradwire-benches --example packets
    python3 benches/packets.py target/release/examples/packets

Two ranks reduce tensors over loopback under callgrind: rank 0 sends, rank 1 receives and sums.
Counted is what the drivers' threads do, system calls as the few instructions that make them.
Cipher, checksum, sum and copies are told apart from the rest, which is gradwire's own. With a
tolerance, the sum of the sender is that of its magnitudes. Callgrind has no AVX-512, so sums are
those of AVX2. A number varies by a percent or two from run to run, as the kernel joins packets to
longer or shorter runs.
"""

import argparse
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

MTUS = (1500, 9000)
PROTECTIONS = ("sealed", "aes", "checked")
# Part of a packet, and the functions that belong to it.
PARTS = (
    ("cipher", re.compile(r"aegis|_detached|aws_lc|aesni|gcm_|aes_hw|aead_|OPENSSL_|CRYPTO_")),
    ("checksum", re.compile(r"crc32fast")),
    ("sum", re.compile(r"kernels|pulp")),
    ("copies", re.compile(r"memcpy|memmove|memset")),
)
OWN = "gradwire"
# The thread that drives is the one with the most instructions in this function.
DRIVES = re.compile(r"DriverEngine|drive_until_stopped")
# Only the receiver adds tensors up.
RECEIVES = re.compile(r"kernels::accumulate")
NAMED = re.compile(r"\((\d+)\)(?: (.*))?")


def functions(path: Path) -> Counter[str]:
    """The instructions of each function in a callgrind profile, without those of its callees."""
    names: dict[str, str] = {}
    costs: Counter[str] = Counter()
    function, is_call = "", False
    for line in path.read_text().splitlines():
        key, _, value = line.partition("=")
        if key in ("fn", "cfn"):
            number, name = NAMED.fullmatch(value).groups()
            name = names.setdefault(number, name)
            if key == "fn":
                function = name
        elif key == "calls":
            is_call = True
        elif line and line[0] in "+-*0123456789":
            if not is_call:
                costs[function] += int(line.split()[1])
            is_call = False
    return costs


def parts(costs: Counter[str]) -> Counter[str]:
    """The instructions of each part."""
    sums: Counter[str] = Counter()
    for function, cost in costs.items():
        part = next((part for part, names in PARTS if names.search(function)), OWN)
        sums[part] += cost
    return sums


def measure(program: str, words: list[str], functions_shown: int) -> list[Counter[str]]:
    """Instructions per packet, part by part, at the sender and at the receiver."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes"]
        command += ["--collect-atstart=no", "--toggle-collect=*DriverEngine*round*"]
        command += [f"--callgrind-out-file={folder}/out", program, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        packets = int(re.search(r"packets (\d+)", done.stdout).group(1))
        profiles = [functions(path) for path in sorted(Path(folder).glob("out-*"))]
    threads = [costs for costs in profiles if any(map(DRIVES.search, costs))]
    threads.sort(key=lambda costs: sum(costs[name] for name in costs if RECEIVES.search(name)))
    for costs in threads if functions_shown else []:
        print()
        for function, cost in costs.most_common(functions_shown):
            print(f"{cost / packets:9.1f}  {function}")
    return [
        Counter({part: round(sum / packets) for part, sum in parts(costs).items()})
        for costs in threads
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the example `packets`, built with --release")
    parser.add_argument("--bytes", type=int, default=4 << 20, help="of a tensor")
    parser.add_argument("--tensors", type=int, default=4)
    parser.add_argument("--tolerance", default="0", help="the share that may be missing, as 0.1")
    parser.add_argument("--functions", type=int, default=0, help="the costliest ones to list")
    options = parser.parse_args()
    columns = [OWN] + [part for part, _ in PARTS]
    print(f"{'packet':>22}  {'rank':8}" + "".join(f"{column:>10}" for column in columns))
    for mtu in MTUS:
        for protection in PROTECTIONS:
            words = [protection, str(mtu), str(options.bytes), str(options.tensors)]
            words.append(options.tolerance)
            ends = measure(options.program, words, options.functions)
            for rank, end in zip(("sender", "receiver"), ends, strict=True):
                numbers = "".join(f"{end[column]:>10}" for column in columns)
                print(f"{mtu:>10} B, {protection:8}  {rank:8}{numbers}", flush=True)


if __name__ == "__main__":
    main()
