"""Runs torchft's own tests of process groups with gradwire's in place of Gloo's.

The first argument is the path of the report; ``resilient`` after it adds the tests in which a rank
fails and the others continue.
"""

import json
import sys
import unittest

import torchft.process_group_test as tests

from gradwire.torchft import ProcessGroupGradwire

LEFT_OUT = "test_collective_with_resiliency"


def main() -> None:
    """Run them; report how many there were, and which failed."""
    tests.ProcessGroupGloo = ProcessGroupGradwire
    loaded = unittest.defaultTestLoader.loadTestsFromTestCase(tests.NormalGlooMultiPgTest)
    chosen = [test for test in loaded if "resilient" in sys.argv or LEFT_OUT not in test.id()]
    result = unittest.TextTestRunner().run(unittest.TestSuite(chosen))
    failed = [test.id().rpartition(".")[2] for test, _ in (*result.failures, *result.errors)]
    with open(sys.argv[1], "w") as out:
        json.dump({"run": result.testsRun, "failed": failed}, out)


if __name__ == "__main__":
    main()
