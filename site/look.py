"""Draw the pages that gradwire writes, and check that all people can read them.

The command makes small reports; other pages, such as those of ``make site``, are given as files.
Chromium draws each page wide, dark and narrow, and axe, which npm brings, checks it. The pictures
are for people: look at them. A violation that axe calls serious or critical is an error.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AXE = "axe-core@4.14.1"
PAGE = "PAGE"
"""Stands for the file of a report in the commands below."""

REPORTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "sim-report": (("sim", "report", "leaf-spine:2x4x2@100G", "permutation:200KB", "--out", PAGE),),
    "replay": (
        ("sim", "run", "single:4@25G", "step:vgg16:ps=2,scale=64", "--trace", "events"),
        ("trace", "replay", "events", "--whatif", "bandwidth=x2", "--out", PAGE),
    ),
    "plan": (
        (
            *("model", "plan", "vgg16", "--devices", "4", "--memory", "4GB", "--link", "25G"),
            *("--out", PAGE),
        ),
    ),
}

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIETLY = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--virtual-time-budget=20000",
)
SHOTS = {
    "wide": ("--window-size=1280,2400",),
    "dark": ("--window-size=1280,2400", "--blink-settings=preferredColorScheme=0"),
    "narrow": ("--window-size=500,2400",),
}
ASKED = """addEventListener("load", () => axe.run().then(({violations}) => {
  const found = document.createElement("pre");
  found.id = "axe-found";
  found.textContent = JSON.stringify(violations.map(({id, impact, help, nodes}) =>
    ({id, impact, help, where: nodes.map((node) => node.target.join(" "))})));
  document.body.append(found);
}));"""


def main() -> None:
    """Draw and check all pages; exit with 1 if people are kept out."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--command", type=Path, required=True, help="the built command, gradwire")
    parser.add_argument("--out", type=Path, required=True, help="the folder for pictures")
    parser.add_argument("pages", type=Path, nargs="*", help="more pages")
    given = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("left out: no browser (Debian's package chromium)")
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    axe = _axe(given.out)
    is_wrong = False
    for name, page in _pages(given):
        for shot, flags in SHOTS.items():
            # A page of the site remembers the colours in which it was first seen.
            drawn = Browser(browser, given.out / f"profile-{shot}")
            drawn.run(page, f"--screenshot={given.out / f'{name}-{shot}.png'}", *flags)
            found = drawn.violations(page, axe, flags) if axe else []
            for one in found:
                print(f"{name}: {one['impact']}: {one['help']} ({one['id']}): {one['where'][:3]}")
                is_wrong |= one["impact"] in ("serious", "critical")
            print(f"{name}: {len(found)} violations, {given.out}/{name}-{shot}.png", flush=True)
    sys.exit(is_wrong)


def _pages(given: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Make the reports; yield the name and the file of each page."""
    command = str(given.command.resolve())
    for name, calls in REPORTS.items():
        page = given.out.resolve() / f"{name}.html"
        for call in calls:
            words = [str(page) if word == PAGE else word for word in call]
            subprocess.run([command, *words], check=True, cwd=given.out, capture_output=True)
        yield name, page
    for page in given.pages:
        if not page.is_file():
            raise SystemExit(f"{page}: there is no such page; `make site` writes those of the site")
        parts = (page.parent.name, page.stem)
        yield "-".join(filter(None, parts)), page.resolve()


def _axe(out: Path) -> str | None:
    """Return the script of axe; npm fetches its package, and nothing is installed."""
    if shutil.which("npm") is None:
        print("left out: the checks of axe; npm is not there")
        return None
    subprocess.run(["npm", "pack", "--silent", AXE], check=True, cwd=out, stdout=subprocess.DEVNULL)
    (package,) = out.glob("axe-core-*.tgz")
    with tarfile.open(package) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


class Browser:
    """Chromium without a window, and its folder."""

    def __init__(self, command: str, profile: Path) -> None:
        """Keep its settings in a folder of this run."""
        self.command = (command, *QUIETLY, f"--user-data-dir={profile.resolve()}")

    def run(self, page: Path, *flags: str) -> str:
        """Open a page; return the standard output of the browser."""
        words = (*self.command, *flags, page.as_uri())
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def violations(self, page: Path, axe: str, flags: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return the rules that a page breaks, as axe tells them."""
        asking = page.with_name(f"{page.stem}.asked-by-axe.html")
        script = f"<script>{axe}</script><script>{ASKED}</script>"
        text = page.read_text()
        before, end, after = text.rpartition("</body>")
        asking.write_text(f"{before}{script}{end}{after}" if end else text + script)
        try:
            dom = self.run(asking, "--dump-dom", *flags)
        finally:
            asking.unlink()
        found = re.search(r'<pre id="axe-found">(.*?)</pre>', dom, re.DOTALL)
        if found is None:
            raise SystemExit(f"{page}: axe gave no answer")
        return json.loads(html.unescape(found[1]))


if __name__ == "__main__":
    main()
