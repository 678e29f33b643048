"""Count the lines of code of each crate at a commit, without tests, comments and blank lines.

    python3 tests/lines.py HEAD 9506783c

Tests are files and folders named so, and what follows `#[cfg(test)] mod NAME {` in a file.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = re.compile(r"[a-z-]+/src/.*\.rs$")
TEST = re.compile(r"(^|/)tests?(/|\.rs$)|_tests\.rs$")
TEST_MODULE = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{", re.MULTILINE)


def git(*words: str) -> str:
    """Return the output of a git command in this checkout."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def lines(text: str) -> int:
    """Count the lines of code of a file."""
    shipped = TEST_MODULE.split(text)[0]
    stripped = (line.strip() for line in shipped.splitlines())
    return sum(bool(line) and not line.startswith("//") for line in stripped)


def count(commit: str) -> Counter[str]:
    """Count the lines of each crate at a commit."""
    crates: Counter[str] = Counter()
    for path in git("ls-tree", "-r", "--name-only", commit).splitlines():
        if SOURCE.match(path) and not TEST.search(path.split("/", 1)[1]):
            crates[path.split("/")[0]] += lines(git("show", f"{commit}:{path}"))
    return crates


def main() -> None:
    """Print a column for each commit."""
    commits = sys.argv[1:] or ["HEAD"]
    counted = [count(commit) for commit in commits]
    print(f"{'':<16}" + "".join(f"{commit:>12}" for commit in commits))
    for crate in sorted(set().union(*counted)):
        print(f"{crate:<16}" + "".join(f"{crates[crate]:>12,}" for crates in counted))
    print(f"{'total':<16}" + "".join(f"{crates.total():>12,}" for crates in counted))


if __name__ == "__main__":
    main()
