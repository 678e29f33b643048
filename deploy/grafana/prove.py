"""Let a real Prometheus watch two ranks, and ask it what each panel of the dashboard asks.

``python3 deploy/grafana/prove.py --command target/debug/gradwire --prometheus /usr/bin/prometheus``
prints a row for each question. It fails where Prometheus refuses one, or has no series for it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

BOARD = Path(__file__).parent / "dashboard.json"
PORT, SERVER, MEETING = 9460, "127.0.0.1:9470", "127.0.0.1:9480"
JOB = f"""name = "seen"
tolerance = "10%"
[transport]
wire = "udp"
[faults]
drop = "1%"
[metrics]
port = {PORT}
"""
WATCHED_SECONDS = 15
EMPTY_WITHOUT_FAULTS = ("Peers that do not answer",)


def main() -> None:
    """Start all, wait for some scrapes, ask, and end all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--command", default="gradwire", help="the command gradwire")
    parser.add_argument("--prometheus", default="prometheus", help="the server of Prometheus")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started = [_watching(given.prometheus, Path(folder)), *_ranks(given.command, Path(folder))]
        try:
            time.sleep(WATCHED_SECONDS)
            failed = [title for title, question in _questions() if not _answered(title, question)]
        finally:
            for process in started:
                process.kill()
                process.wait()
    if failed:
        raise SystemExit(f"no answer: {', '.join(failed)}")


def _watching(prometheus: str, folder: Path) -> subprocess.Popen[bytes]:
    targets = [f"127.0.0.1:{PORT}", f"127.0.0.1:{PORT + 1}"]
    asks = {
        "job_name": "gradwire",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "honor_labels": True,
        "static_configs": [{"targets": targets}],
    }
    # JSON is YAML, too.
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [asks]}))
    words = (
        prometheus,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={SERVER}",
        "--log.level=error",
    )
    return subprocess.Popen(words)


def _ranks(command: str, folder: Path) -> list[subprocess.Popen[bytes]]:
    (folder / "job.toml").write_text(JOB)
    words = (command, "rank", "--world", "2", "--rendezvous", MEETING, "--token", "secret")
    more = ("--bytes", "1M", "--iterations", "1000000", "--job", f"{folder}/job.toml")
    return [
        subprocess.Popen((*words, *more, "--rank", str(rank)), stdout=subprocess.DEVNULL)
        for rank in range(2)
    ]


def _questions() -> list[tuple[str, str]]:
    panels = json.loads(BOARD.read_text())["panels"]
    asked = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
    known = {"$job": "seen", "$__rate_interval": "5s"}
    for name, value in known.items():
        asked = [(title, question.replace(name, value)) for title, question in asked]
    return asked


def _answered(title: str, question: str) -> bool:
    query = urllib.parse.urlencode({"query": question})
    with urllib.request.urlopen(f"http://{SERVER}/api/v1/query?{query}") as answer:
        series = json.load(answer)["data"]["result"]
    values = [one["value"][1] for one in series]
    print(f"{title}: {', '.join(values) or 'no series'}", flush=True)
    return bool(series) or title in EMPTY_WITHOUT_FAULTS


if __name__ == "__main__":
    main()
