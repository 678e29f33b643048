"""Run PyTorch's own distributed tests over gradwire and compare with those that pass over Gloo.

gradwire takes the name "gloo", since PyTorch skips most tests for names that it does not know. Each
test that Gloo passes must pass; ``gloo_passes.txt`` has them, and ``--record`` makes that file.
"""

import argparse
import os
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
PASSES = HERE / "gloo_passes.txt"
WORLDS = (2, 3, 4)

EXEMPT = {
    "test_ddp_logging_data_cpu": "PyTorch calls every backend from outside its tree 'custom', "
    "and this test wants the name",
}


class Verdicts(unittest.TextTestResult):
    """A test result that remembers the tests that passed."""

    def __init__(self, *arguments: object, **options: object) -> None:
        """As the text result of unittest."""
        super().__init__(*arguments, **options)
        self.passed: set[str] = set()

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's name)
        """Remember the test's name."""
        super().addSuccess(test)
        self.passed.add(_name(test))


def main() -> int:
    """Run, compare, and name the missing tests; 0 if none is missing."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        _prepare(arguments, folder)
        result = _run(arguments.tests)
    if arguments.record:
        _record(arguments.world, result.passed)
        return 0
    wanted = {test for test, worlds in _recorded().items() if arguments.world in worlds}
    wanted &= set(arguments.tests or wanted)
    return _compare(wanted, result)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, choices=WORLDS, default=2, help="ranks of each test")
    parser.add_argument("--record", action="store_true", help="run Gloo and write gloo_passes.txt")
    parser.add_argument("tests", nargs="*", help="names of tests; all when none is given")
    return parser.parse_args()


def _prepare(arguments: argparse.Namespace, folder: str) -> None:
    """Set the variables that the suite reads when imported, here and in its processes."""
    os.environ.update(
        BACKEND="gloo",
        WORLD_SIZE=str(arguments.world),
        TEMP_DIR=folder,
        TMPDIR=folder,
        OMP_NUM_THREADS="1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="120",
        SUITE_ALIAS="" if arguments.record else "gloo",
    )
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(HERE))


def _run(tests: list[str]) -> Verdicts:
    import suite

    loader = unittest.defaultTestLoader
    names = tests or loader.getTestCaseNames(suite.DistributedSuite)
    cases = unittest.TestSuite(suite.DistributedSuite(name) for name in names)
    runner = unittest.TextTestRunner(resultclass=Verdicts, verbosity=1, warnings="ignore")
    return runner.run(cases)


def _name(test: unittest.TestCase) -> str:
    return test.id().rpartition(".")[2]


def _recorded() -> dict[str, set[int]]:
    """Read the worlds in which Gloo passes each test."""
    lines = PASSES.read_text().splitlines() if PASSES.exists() else []
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {test: {int(world) for world in worlds} for test, *worlds in rows}


def _record(world: int, passed: set[str]) -> None:
    """Add the tests that passed to the file: a machine under load may fail a test once."""
    recorded = _recorded()
    for test in passed:
        recorded.setdefault(test, set()).add(world)
    lines = ["# Tests of PyTorch's suite that pass over Gloo, and at which world sizes."]
    lines += [
        " ".join([test, *map(str, sorted(worlds))]) for test, worlds in sorted(recorded.items())
    ]
    PASSES.write_text("\n".join(lines) + "\n")


def _compare(wanted: set[str], result: Verdicts) -> int:
    """Report which of the ``wanted`` tests did not pass."""
    skipped = {_name(test): reason for test, reason in result.skipped}
    missing = sorted(wanted - result.passed - EXEMPT.keys())
    for test in missing:
        print(f"did not pass, but does over Gloo: {test} {skipped.get(test, '(failed)')}")
    for test in sorted(EXEMPT.keys() & wanted):
        print(f"exempt: {test}: {EXEMPT[test]}")
    due = len(wanted - EXEMPT.keys())
    print(f"{due - len(missing)} of {due} tests that pass over Gloo pass over gradwire")
    return 1 if missing or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
