"""Collects the pages of the site: the documents as they lie in the repository, and generated ones.

The documents keep their places, so that links between them hold on the site as in a checkout. The
reference comes from the command (`gradwire generate`), from the docstrings of each Python module
that lists its public names (`__all__`), and from rustdoc (`make doc`). A page of `docs` that no
section below names is listed under "More".

Each version of the site lies in a folder of its name, beside ``versions.json``, from which its
pages offer the others: to publish one, copy its folder beside the older ones, and add its entry.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = {
    "Start": ["start-engineer", "start-operator", "start-researcher", "start-contributor"],
    "Train": [
        "from-gloo-or-nccl",
        "clusters",
        "frameworks",
        "tune-loss",
        "codecs",
        "in-network",
        "where-is-the-time",
        "nccl",
        "rdma",
        "torchft-and-jax",
        "parameter-server",
        "sharded-products",
        "watching",
        "faults",
        "performance",
    ],
    "Network": ["switches"],
    "Simulate": ["simulator", "models", "plans", "evaluation", "taxonomy"],
    "Reference": ["job", "command", "glossary", "supported", "limits"],
}
PROJECT = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "benches/README.md"]
BESIDE = [
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "deploy/p4/aggregator.p4",
    "examples/sim/report.png",
]


def main() -> None:
    """Write the pages and the configuration for `mkdocs build`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--command", type=Path, required=True, help="the built command, gradwire")
    parser.add_argument("--rust", type=Path, required=True, help="the folder that rustdoc wrote")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the pages")
    given = parser.parse_args()
    pages = given.out / "pages"
    shutil.rmtree(given.out, ignore_errors=True)
    for path in ["README.md", *PROJECT, *BESIDE, *_documents()]:
        place = pages / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, place)
    for name in ("site.css", "site.js"):
        shutil.copyfile(ROOT / "site" / name, pages / name)
    reference = _reference(given.command, pages / "reference")
    reference += _rust(given.rust, pages / "rust")
    version = _version()
    settings = {
        "INHERIT": str(ROOT / "site" / "mkdocs.yml"),
        "docs_dir": "pages",
        "site_dir": f"html/{version}",
        "nav": _navigation(reference),
    }
    (given.out / "mkdocs.yml").write_text(json.dumps(settings, indent=2) + "\n")
    _offer(version, given.out / "html")


def _version() -> str:
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    return version


def _offer(version: str, folder: Path) -> None:
    """Write the list of versions, of this one, and the page that leads to it."""
    folder.mkdir()
    entry = {"version": version, "title": version, "aliases": ["latest"]}
    (folder / "versions.json").write_text(json.dumps([entry]) + "\n")
    (folder / "index.html").write_text(
        f'<!DOCTYPE html><html lang="en"><title>gradwire</title>'
        f'<meta http-equiv="refresh" content="0; url={version}/index.html">'
        f'<a href="{version}/index.html">gradwire {version}</a></html>\n'
    )


def _documents() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md"))


def _reference(command: Path, folder: Path) -> list[str]:
    """Write the generated pages; return their paths among all pages."""
    folder.mkdir(parents=True)

    def generated(*words: str) -> str:
        words = (str(command.resolve()), "generate", *words)
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    (folder / "command.md").write_text(generated("reference"))
    for name in ("job", "fabric"):
        (folder / f"{name}.schema.json").write_text(generated("schema", name))
    modules = "".join(f"\n::: {module}\n" for module in _public_modules())
    (folder / "python.md").write_text(f"# Python reference\n{modules}")
    return ["reference/command.md", "reference/python.md"]


def _public_modules() -> list[str]:
    """Return the modules whose text says what is public."""
    found = []
    for path in sorted((ROOT / "python" / "gradwire").rglob("*.py")):
        names = (
            target.id
            for statement in ast.parse(path.read_text()).body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        )
        if "__all__" in names:
            parts = path.relative_to(ROOT / "python").with_suffix("").parts
            found.append(".".join(part for part in parts if part != "__init__"))
    return found


def _rust(built: Path, folder: Path) -> list[str]:
    """Take over the pages of rustdoc, and write the list of packages."""
    packages = sorted(path.parent.name for path in built.glob("gradwire_*/index.html"))
    if not packages:
        raise SystemExit(f"{built} has no documentation of Rust packages: run `make doc` first")
    shutil.copytree(built, folder, ignore=shutil.ignore_patterns("src", ".lock"))
    rows = "".join(f"- [{package}]({package}/index.html)\n" for package in packages)
    (folder / "packages.md").write_text(f"# Rust packages\n\n{rows}")
    return ["rust/packages.md"]


def _navigation(reference: list[str]) -> list[Any]:
    """Return the order of pages; those that no section names are under "More"."""
    left = {Path(path).stem for path in _documents()}
    sections = []
    for title, names in SECTIONS.items():
        pages = [f"docs/{name}.md" for name in names if name in left]
        left.difference_update(names)
        sections.append({title: pages + (reference if title == "Reference" else [])})
    if left:
        sections.append({"More": [f"docs/{name}.md" for name in sorted(left)]})
    return [{"Home": "README.md"}, *sections, {"Project": PROJECT}]


if __name__ == "__main__":
    main()
