"""Draw sentences from comments, documents and error messages, to read them with fresh eyes.

    python3 tests/sentences.py --seed 7 --count 20

Equal seeds draw equal sentences from an equal checkout.
"""

import argparse
import random
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".rs", ".py", ".pyi", ".hpp", ".cpp", ".h", ".md"}
WORDS_MIN = 6


def texts(path: Path) -> list[str]:
    """Each block of prose in a file: a comment, a docstring, a paragraph, an error message."""
    text = path.read_text()
    if path.suffix == ".md":
        without_code = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
        blocks = re.split(r"\n\s*\n|\n(?=- )", without_code)
        return [block for block in blocks if not block.lstrip().startswith(("|", "#"))]
    if path.suffix in {".py", ".pyi"}:
        docstrings = re.findall(r'"""(.*?)"""', text, flags=re.DOTALL)
        return [part for docstring in docstrings for part in re.split(r"\n\s*\n", docstring)]
    comments = re.findall(r"(?:^\s*//[/!]?[^\n]*\n)+", text, flags=re.MULTILINE)
    stripped = [re.sub(r"^\s*//[/!]? ?", "", block, flags=re.MULTILINE) for block in comments]
    errors = re.findall(r'#\[error\(\s*"((?:[^"\\]|\\.)*)"', text)
    return [part for block in stripped for part in re.split(r"\n\s*\n", block)] + errors


def sentences(block: str) -> list[str]:
    """The sentences of a block that are long enough to be misread."""
    line = re.sub(r"\\?\s+", " ", block).strip(" -")
    cut = re.split(r"(?<=[.!?]) (?=[A-Z`])", line)
    prose = [one for one in cut if not re.search(r"[<{|]", re.sub(r"`[^`]*`", "", one))]
    return [one for one in prose if len(one.split()) >= WORDS_MIN]


def main() -> None:
    """Print the drawn sentences, each with its file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    paths = [Path(line) for line in listing.stdout.splitlines() if "/schemas/" not in line]
    known = [
        (path, sentence)
        for path in sorted(paths)
        if path.suffix in SUFFIXES
        for block in texts(ROOT / path)
        for sentence in sentences(block)
    ]
    for path, sentence in random.Random(options.seed).sample(known, options.count):
        print(f"{path}\n    {sentence}")


if __name__ == "__main__":
    main()
