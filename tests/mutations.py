"""Plant mistakes in the protocol, one at a time, and check whether random faults find them.

    python3 tests/mutations.py [--seeds 200] [NAME ...]

Each mistake is planted in a copy of this checkout, of which the cluster of `gradwire-testnet` is
built and run. The table shows which check found it, at which seed. The exit code is 1 if no seed
finds a mistake, or if the text that it replaces is no longer in the code. It takes a minute or two
for each, so no other test runs it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECEIVER = "protocol/src/receiver.rs"
RECEIVED = "protocol/src/receiver/message.rs"
HOLES = "protocol/src/receiver/holes.rs"
LOSS = "protocol/src/sender/loss.rs"
SENDER = "protocol/src/sender.rs"
RUNNING = "collectives/src/engine/running.rs"
FILLING = "collectives/src/numbers/holes.rs"
SUMS = "protocol/src/budget/sums.rs"
ABSENT = "protocol/src/receiver/absent.rs"
NOTHING_NEW = (
    "            self.counters.duplicate_segments += u64::from(packets);\n"
    "            return None;\n"
)


@dataclass(frozen=True)
class Mistake:
    """A mistake, and the texts that it replaces: file, before, after."""

    name: str
    edits: tuple[tuple[str, str, str], ...]


MISTAKES = (
    Mistake(
        "stamps are compared in 32 bits",
        (
            (
                LOSS,
                "echo > newest)",
                "(echo.on_wire().wrapping_sub(newest.on_wire()) as i32) > 0)",
            ),
            (
                LOSS,
                "flight.sent_at >= lost_before",
                "(flight.sent_at.on_wire().wrapping_sub(lost_before.on_wire()) as i32) >= 0",
            ),
        ),
    ),
    Mistake(
        "a strict receiver never asks for what its sender leaves",
        (
            (
                RECEIVED,
                "(!self.tolerance().is_none() || self.holes.are_left())",
                "!self.tolerance().is_none()",
            ),
        ),
    ),
    Mistake(
        "ids of messages do not wrap",
        (
            (
                "protocol/src/units.rs",
                "Self(self.0.wrapping_add_signed(ahead as i64))",
                "Self((self.0 >> 32 << 32 | id.0 as u64) + 0 * ahead as u64)",
            ),
        ),
    ),
    Mistake(
        "protected segments count as holes",
        (
            (HOLES, "received.zeros().saturating_sub(self.protected_missing)", "received.zeros()"),
            (HOLES, "(missing == 0 || self.protected_missing == 0)", "true"),
        ),
    ),
    Mistake(
        "a second contributor's hole is not counted",
        (
            (
                "collectives/src/engine/running/loss_record.rs",
                "missing[segment as usize] += inbound.contributors",
                "missing[segment as usize] = inbound.contributors",
            ),
        ),
    ),
    Mistake(
        "STOP shows holes as arrived",
        (
            (
                RECEIVED,
                "PacketKind::Bitmap => self.holes.shown(&self.received),",
                "PacketKind::Bitmap => self.holes.shown(&self.received),\n"
                "            PacketKind::Stop => {\n"
                "                let mut all = self.received.clone();\n"
                "                all.insert_range(0..all.len());\n"
                "                Cow::Owned(all)\n"
                "            }",
            ),
        ),
    ),
    Mistake(
        "the first lost values of a message are not kept",
        ((RUNNING, "for piece in left {", "for piece in left.into_iter().skip(1) {"),),
    ),
    Mistake(
        "grants end after the first",
        (
            (
                "protocol/src/endpoint.rs",
                "self.common.grants.wait(turn, place, next.message);",
                "let _ = (turn, place);",
            ),
        ),
    ),
    Mistake(
        "segments that come twice are added twice",
        ((RECEIVER, NOTHING_NEW, NOTHING_NEW.replace("            return None;\n", "")),),
    ),
    Mistake(
        "more holes are accepted than tolerated",
        ((HOLES, "limits.most().min(unprotected)", "unprotected"),),
    ),
    Mistake(
        "gaps end at once",
        (
            (
                RECEIVED,
                "let doubled = gap * (1 << self.rounds.min(GAP",
                "let doubled = gap.divided(50) * (1 << self.rounds.min(GAP",
            ),
        ),
    ),
    Mistake(
        "a STOP that comes again is not answered",
        (
            (
                SENDER,
                "            self.closes.push(close_of(header, now));\n            self.cancelled",
                "            self.cancelled",
            ),
        ),
    ),
    Mistake(
        "drops of the own host are forgotten",
        (("protocol/src/budget.rs", "self.host_drops_at = Some(now);", "let _ = now;"),),
    ),
    Mistake(
        "sums are rescaled by all contributors",
        ((FILLING, "divide: arrived,", "divide: all,"),),
    ),
    Mistake(
        "the previous result is taken whole",
        ((FILLING, "multiply: missing,", "multiply: 1,"),),
    ),
    Mistake(
        "packets that the host did not take are forgotten",
        (
            (
                SENDER,
                "            self.in_flight -= sending.land(segment);\n"
                "            sending.queue_repair(segment);\n        }\n    }",
                "            self.in_flight -= sending.land(segment);\n        }\n    }",
            ),
        ),
    ),
    Mistake(
        "a step bears any loss",
        (
            (
                "protocol/src/budget.rs",
                "if account.lost_bytes + account.reserved_bytes + bytes > account.allowed_bytes {",
                "if bytes == u64::MAX {",
            ),
        ),
    ),
    Mistake(
        "an operation that fails drops the residual that it took",
        ((RUNNING, "Err(_) => self.residuals.into_taken(),", "Err(_) => Vec::new(),"),),
    ),
    Mistake(
        "a hole of a lossless message is no news",
        (
            (
                LOSS,
                "sending.on_lost(flight.segment);",
                "if sending.may_miss(flight.segment) { sending.on_lost(flight.segment); }",
            ),
        ),
    ),
    Mistake(
        "lost and late segments share no tolerance",
        (
            (
                SUMS,
                "budget.missing_bytes + bytes <= budget.allowed_bytes",
                "bytes <= budget.allowed_bytes",
            ),
        ),
    ),
    Mistake(
        "results take the place of contributions that have not left",
        ((RUNNING, "parts.memory.times.is_limited() && self.", "at == usize::MAX && self."),),
    ),
    Mistake(
        "segments in flight when patience ends are losses",
        ((SENDER, " + sending.land_late(header);", ";"),),
    ),
    Mistake(
        "a message that is given up is never begun again",
        ((ABSENT, "self.absent.give_up(key);", "let _ = key;"),),
    ),
    Mistake(
        "all packets of a run are taken for new",
        (
            (
                RECEIVED,
                "self.received.alike(header.segment..end)",
                "end - header.segment",
            ),
        ),
    ),
    Mistake(
        "a restored segment is that of the wrong group",
        (
            (
                "collectives/src/engine/communicator/events.rs",
                "let bytes = self.parity.restored(message, group, placement.length);",
                "let group = gradwire_protocol::parity::ParityGroup(group.0 ^ 1);\n"
                "                    let bytes = self.parity.restored("
                "message, group, placement.length);",
            ),
        ),
    ),
)


def copy_of_checkout(to: Path) -> None:
    """Copies all files that git knows."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, names.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to / name)


def found(tree: Path, seeds: int) -> str:
    """Run the cluster; return the check that fails, or that none does."""
    wanted = {"GRADWIRE_SEEDS": str(seeds), "CARGO_PROFILE_DEV_DEBUG": "none"}
    target = os.environ.get("CARGO_TARGET_DIR", str(tree / "target"))
    ran = subprocess.run(
        ["cargo", "test", "-q", "-p", "gradwire-testnet", "--test", "cluster", "random_faults"],
        cwd=tree,
        env=os.environ | wanted | {"CARGO_TARGET_DIR": target},
        capture_output=True,
        text=True,
        check=False,
    )
    output = ran.stdout + ran.stderr
    if ran.returncode == 0:
        return ""
    line = re.search(r"^([a-z-]+ at [^\n]{0,90})", output, re.MULTILINE)
    seed = re.search(r"^whole: --seed (\d+)", output, re.MULTILINE)
    if line is None or seed is None:
        return f"does not build or run: {output[-400:]}"
    return f"seed {seed[1]:>4}  {line[1]}"


def main() -> int:
    """Plants the mistakes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    chosen = [one for one in MISTAKES if not options.names or one.name in options.names]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Path(folder)
        copy_of_checkout(tree)
        for mistake in chosen:
            kept = {name: (tree / name).read_text() for name, _, _ in mistake.edits}
            texts = dict(kept)
            stale = [name for name, before, _ in mistake.edits if before not in texts[name]]
            for name, before, after in mistake.edits:
                texts[name] = texts[name].replace(before, after, 1)
            if stale:
                outcome = f"its text is not in {', '.join(stale)} any more"
            else:
                for name, text in texts.items():
                    (tree / name).write_text(text)
                outcome = found(tree, options.seeds) or "NOT FOUND"
                for name, text in kept.items():
                    (tree / name).write_text(text)
            missed += not outcome.startswith("seed ")
            print(f"{mistake.name:<58} {outcome}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
