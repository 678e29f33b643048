"""The demo's report: a table for the terminal, and a page with loss curves for a browser."""

import base64
import html
import io
import platform
from dataclasses import dataclass

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

COLOURS = ("#8a8f98", "#0b62c4", "#d9600a")
WIDTHS = (5.0, 1.6, 1.6)
WINDOW = 20

COLUMNS = (
    ("backend", "backend"),
    ("dropped", "dropped"),
    ("tolerance", "tolerance"),
    ("accuracy", "accuracy"),
    ("steps/s", "steps/s"),
    ("sent", "segments sent"),
    ("lost", "lost within tolerance"),
    ("repaired", "repaired"),
    ("rank 0", "parameters, rank 0"),
    ("rank 1", "parameters, rank 1"),
)
"""Heading on the terminal, heading on the page."""


@dataclass(frozen=True)
class Result:
    """The result of one way of training; counts are of both ranks together."""

    name: str
    backend: str
    drop: float
    tolerance: float
    accuracy: float
    steps_per_s: float
    sent_segments: int | None
    lost_segments: int | None
    repaired_segments: int | None
    parameter_hashes: list[str]
    losses: list[float]


def row(result: Result) -> list[str]:
    """Write one result in the order of COLUMNS."""
    on_tcp = result.sent_segments is None
    counts = (result.sent_segments, result.lost_segments, result.repaired_segments)
    return [
        result.name,
        f"{result.drop:.0%}",
        "-" if on_tcp else f"{result.tolerance:.0%}",
        f"{result.accuracy:.1%}",
        f"{result.steps_per_s:.1f}",
        *("-" if count is None else f"{count:,}" for count in counts),
        *(digest[:10] for digest in result.parameter_hashes),
    ]


def table(results: list[Result]) -> str:
    """Lay the results out for a terminal."""
    rows = [[heading for heading, _ in COLUMNS], *map(row, results)]
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        for cells in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def smooth(values: list[float]) -> list[float]:
    """Average each value with up to WINDOW - 1 values before it."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return [
        (sums[i + 1] - sums[max(0, i + 1 - WINDOW)]) / min(i + 1, WINDOW)
        for i in range(len(values))
    ]


def picture(results: list[Result]) -> str:
    """Draw each run's loss, and its distance from the first run's; return it as inline SVG."""
    mpl.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 11})
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    loss, away = figure.subplots(1, 2)
    reference = smooth(results[0].losses)
    for result, colour, width in zip(results, COLOURS, WIDTHS, strict=True):
        curve = smooth(result.losses)
        steps = range(1, len(curve) + 1)
        loss.plot(steps, curve, color=colour, linewidth=width, label=result.name)
        distance = [mine - theirs for mine, theirs in zip(curve, reference, strict=True)]
        away.plot(steps, distance, color=colour, linewidth=width, label=result.name)
    loss.set(title="Training loss", xlabel="step", yscale="log")
    away.set(title="Difference from Gloo's", xlabel="step")
    for axes in (loss, away):
        axes.title.set_fontweight("bold")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    loss.legend(frameon=False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", transparent=True)
    source = base64.b64encode(drawn.getvalue()).decode()
    return f'<img alt="Training loss of each run by step" src="data:image/svg+xml;base64,{source}">'


def sentence(result: Result, reference: Result) -> str:
    """Describe one run in a sentence."""
    points = (result.accuracy - reference.accuracy) * 100
    same = "identical" if len(set(result.parameter_hashes)) == 1 else "DIFFERENT"
    if result.sent_segments is None:
        dropped = (
            f"{result.drop:.0%} of its packets were dropped" if result.drop else "none dropped"
        )
        return f"The reference, over TCP, {dropped}. Parameters are {same} on all ranks."
    if result.tolerance == 0:
        loss = f"{result.repaired_segments:,} segments were sent again and none stayed lost"
    else:
        loss = (
            f"{result.lost_segments:,} of {result.sent_segments:,} segments stayed lost within the "
            f"tolerance and {result.repaired_segments:,} were sent again"
        )
    return (
        f"{result.drop:.0%} of its packets were dropped: {loss}. Accuracy is {points:+.1f} "
        f"points from Gloo's; parameters are {same} on all ranks."
    )


STYLE = """
:root { color-scheme: light; --ink: #1c2129; --quiet: #5d6673; --line: #dfe3e8; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: #fbfbfc; margin: 0; }
main { max-width: 76rem; margin: 0 auto; padding: 3rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .8rem; }
p { max-width: 46rem; margin: .4rem 0; }
.quiet { color: var(--quiet); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; background: #fff; }
th, td { padding: .5rem .5rem; border-bottom: 1px solid var(--line); text-align: right; }
th { color: var(--quiet); font-weight: 600; vertical-align: bottom; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
img { width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
code { font-size: .88em; }
dt { font-weight: 600; margin-top: .8rem; }
dd { margin: 0; }
i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .5em; }
"""


def page(results: list[Result]) -> str:
    """Write the whole page; it loads nothing from a network."""
    headings = "".join(f"<th>{html.escape(heading)}</th>" for _, heading in COLUMNS)
    body = ""
    for result, colour in zip(results, COLOURS, strict=True):
        name, *cells = map(html.escape, row(result))
        body += f'<tr><td><i style="background:{colour}"></i>{name}</td>'
        body += "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    words = "".join(
        f"<dt>{html.escape(result.name)}</dt><dd>{html.escape(sentence(result, results[0]))}</dd>"
        for result in results
    )
    steps = len(results[0].losses)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gradwire: one model, three ways</title><style>{STYLE}</style></head>
<body><main>
<h1>One model, trained three ways</h1>
<p class="quiet">A small CNN on 5,000 MNIST digits, 2 ranks on one machine, {steps} steps, the same
seeds. Only the transport under the gradients differs.</p>
<h2>Results</h2>
<div class="scroll"><table><tr>{headings}</tr>{body}</table></div>
<h2>Loss</h2>
{picture(results)}
<p class="quiet">Mean of both ranks, averaged over {WINDOW} steps.</p>
<h2>What happened</h2>
<dl>{words}</dl>
<h2>How this was made</h2>
<p class="quiet"><code>make demo</code> with PyTorch {torch.__version__}, Python
{platform.python_version()}, {platform.system()} on {platform.machine()}. Segments are payloads of
one packet each, counted on both ranks; parameters are shown by the start of their SHA-256.</p>
</main></body></html>
"""
