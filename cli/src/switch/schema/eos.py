"""Asks pyavd whether EOS would accept a configuration.

`python3 eos.py < running.cfg` exits with 0 when it would; with 1 when not, and each line of its
output is a reason; with 3 when pyavd is not installed. The sections of quality of service are read
into the data that pyavd describes, checked by its schema, and rendered by its templates again: what
does not come out as it went in, no EOS prints. Other sections are left alone.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

REFUSED = 1
"""Exit code when the configuration is not accepted."""

MISSING = 3
"""Exit code when pyavd is not installed."""

MMU = "platform trident mmu queue profile "

DETECTION = re.compile(
    r"random-detect (?P<what>ecn|drop)(?: drop-precedence (?P<precedence>\S+))?"
    r" minimum-threshold (?P<min>\S+) (?P<units>\S+) maximum-threshold (?P<max>\S+) (?P=units)"
    r"(?: (?:max-mark|drop)-probability (?P<chance>\S+))?(?: weight (?P<weight>\S+))?"
)


class Section:
    """A line and those below it."""

    def __init__(self, text: str) -> None:
        """A line that has none below it yet."""
        self.text = text
        self.below: list[Section] = []

    def lines(self) -> list[str]:
        """Its text and that of all lines below it, in order."""
        inner = (line for section in self.below for line in section.lines())
        return [self.text, *inner]


def sections(text: str) -> list[Section]:
    """Lines of a configuration by what they belong to; comments are left out."""
    root = Section("")
    open_ones = [(-1, root)]
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith("!"):
            continue
        width = len(line) - len(line.lstrip())
        while open_ones[-1][0] >= width:
            open_ones.pop()
        section = Section(bare)
        open_ones[-1][1].below.append(section)
        open_ones.append((width, section))
    return root.below


def number(text: str | None) -> int | str | None:
    """A number where it is one; the schema says what it thinks of others."""
    return int(text) if text is not None and text.isdecimal() else text


def detection(line: str) -> tuple[str, dict[str, Any]] | None:
    """The thresholds of a line `random-detect`; None when it is no such line."""
    found = DETECTION.fullmatch(line)
    if not found:
        return None
    what = found["what"]
    threshold = {
        "units": found["units"],
        "min": number(found["min"]),
        "max": number(found["max"]),
        "max_probability" if what == "ecn" else "drop_probability": number(found["chance"]),
        "weight": number(found["weight"]),
        "drop_precedence": number(found["precedence"]),
    }
    return what, {key: value for key, value in threshold.items() if value is not None}


def queue(section: Section, unknown: list[str]) -> dict[str, Any]:
    """A queue of a profile or of a port."""
    result: dict[str, Any] = {"id": number(section.text.split()[-1])}
    detects: dict[str, Any] = {}
    for line in (one.text for one in section.below):
        share = re.fullmatch(r"bandwidth percent (\S+)", line)
        found = detection(line)
        if line in ("priority strict", "no priority") or line.startswith("priority "):
            result["priority"] = line
        elif share:
            result["bandwidth_percent"] = number(share[1])
        elif line == "random-detect ecn count":
            detects.setdefault("ecn", {})["count"] = True
        elif found:
            detects.setdefault(found[0], {})["threshold"] = found[1]
        else:
            unknown.append(f"{section.text}: {line}")
    if detects:
        result["random_detect"] = detects
    return result


def pauses(lines: list[str]) -> dict[str, Any] | None:
    """Priority flow control, where lines speak of it."""
    result: dict[str, Any] = {}
    if "no priority-flow-control" in lines:
        result["enabled"] = False
    if "priority-flow-control on" in lines:
        result["enabled"] = True
    rows = (re.fullmatch(r"priority-flow-control priority (\S+) (no-)?drop", one) for one in lines)
    named = [{"priority": number(row[1]), "no_drop": bool(row[2])} for row in rows if row]
    if named:
        result["priorities"] = named
    return result or None


QUEUES = {"tx-queue": "tx_queues", "uc-tx-queue": "uc_tx_queues"}


def ported(section: Section, unknown: list[str]) -> dict[str, Any]:
    """What a profile and a port have in common."""
    lines = [one.text for one in section.below]
    result: dict[str, Any] = {}
    for one in section.below:
        words = one.text.split()
        if words[0] in QUEUES:
            result.setdefault(QUEUES[words[0]], []).append(queue(one, unknown))
    flow = pauses(lines)
    if flow:
        result["priority_flow_control"] = flow
    return result


def trust(lines: list[str]) -> str | None:
    """What is trusted, where lines say it."""
    if "no qos trust" in lines:
        return "disabled"
    found = [line.removeprefix("qos trust ") for line in lines if line.startswith("qos trust ")]
    return found[-1] if found else None


OURS = ("qos trust", "priority-flow-control", "no ", "tx-queue ", "uc-tx-queue ", "shape ")


def profile(section: Section, unknown: list[str]) -> dict[str, Any]:
    """A section `qos profile`."""
    lines = [one.text for one in section.below]
    unknown += [f"{section.text}: {line}" for line in lines if not line.startswith(OURS)]
    result = {"name": section.text.removeprefix("qos profile "), **ported(section, unknown)}
    if trust(lines):
        result["trust"] = trust(lines)
    return result


def interface(section: Section, unknown: list[str]) -> dict[str, Any]:
    """A section `interface Ethernet`, what it says of quality of service."""
    lines = [one.text for one in section.below]
    result = {"name": section.text.removeprefix("interface "), **ported(section, unknown)}
    names = [line for line in lines if line.startswith("service-profile ")]
    if names:
        result["service_profile"] = names[-1].removeprefix("service-profile ")
    if trust(lines):
        result["qos"] = {"trust": trust(lines)}
    return result


def memory(section: Section, unknown: list[str]) -> dict[str, Any]:
    """A section of dynamic thresholds."""
    queues = []
    for one in section.below:
        found = re.fullmatch(r"egress unicast queue (\S+) threshold (\S+)", one.text)
        if found:
            queues.append({"id": number(found[1]), "threshold": found[2]})
        else:
            unknown.append(f"{section.text}: {one.text}")
    return {"name": section.text.removeprefix(MMU), "unicast_queues": queues}


MAPS = {"dscp": "dscp", "traffic-class": "traffic_class", "cos": "cos", "exp": "exp"}


def add_map(section: Section, data: dict[str, Any], unknown: list[str]) -> None:
    """Adds a line `qos`."""
    words = section.text.split(maxsplit=3)
    qos = data.setdefault("qos", {})
    if words[:2] == ["qos", "map"] and len(words) > 3 and words[2] in MAPS:
        qos.setdefault("map", {}).setdefault(MAPS[words[2]], []).append(words[3])
    elif section.text.startswith("qos random-detect ecn allow non-ect"):
        allowed = {"enabled": True, "chip_based": section.text.endswith(" chip-based")}
        qos["random_detect"] = {"ecn": {"allow_non_ect": allowed}}
    elif section.text == "qos rewrite dscp":
        qos["rewrite_dscp"] = True
    else:
        unknown.append(section.text)


def add(section: Section, data: dict[str, Any], unknown: list[str]) -> bool:
    """Adds a section to the data.

    Returns:
        Whether it is one of those that are read.
    """
    text = section.text
    if text.startswith("qos profile "):
        data.setdefault("qos_profiles", []).append(profile(section, unknown))
    elif text.startswith("interface Ethernet"):
        data.setdefault("ethernet_interfaces", []).append(interface(section, unknown))
    elif text.startswith(MMU):
        mmu = data.setdefault("platform", {}).setdefault("trident", {}).setdefault("mmu", {})
        if text.endswith(" apply"):
            mmu["active_profile"] = text.removeprefix(MMU).removesuffix(" apply")
        else:
            mmu.setdefault("queue_profiles", []).append(memory(section, unknown))
    elif text.startswith("qos "):
        add_map(section, data, unknown)
    elif text == "ip hardware fib load-balance distribution dynamic":
        data["ip_hardware"] = {"fib": {"load_balance_distribution": {"dynamic": {"enabled": True}}}}
    else:
        return False
    return True


def understood(text: str) -> tuple[dict[str, Any], list[Section], list[str]]:
    """The data of a configuration, the sections it is of, and lines that pyavd has no key for."""
    data: dict[str, Any] = {}
    unknown: list[str] = []
    ours = [section for section in sections(text) if add(section, data, unknown)]
    return data, ours, unknown


SPOKEN = ("service-profile", "qos ", "no qos", "priority-flow-control", "no priority-flow")


def spoken(section: Section) -> list[str]:
    """Lines of a section that are compared: of a port only those of quality of service."""
    if not section.text.startswith("interface "):
        return section.lines()
    rows = (one for one in section.below if one.text.startswith((*SPOKEN, *QUEUES)))
    return [section.text, *(line for one in rows for line in one.lines())]


def rendered(data: dict[str, Any]) -> str:
    """What pyavd's templates make of the data."""
    return importlib.import_module("pyavd").get_device_config(data)


def unlike(ours: list[Section], theirs: str) -> list[str]:
    """Sections that pyavd would print in another way."""
    known = {section.text: section.lines() for section in sections(theirs)}
    return [
        f"{section.text}: EOS would not print this; pyavd renders {known.get(section.text)}"
        for section in ours
        if spoken(section) != known.get(section.text)
    ]


def judge(text: str) -> list[str]:
    """Why pyavd does not accept a configuration.

    Args:
        text: the output of `show running-config`.

    Returns:
        Reasons; none when it accepts it.
    """
    data, ours, unknown = understood(text)
    messages = [f"{line}: no such command" for line in unknown]
    pyavd = importlib.import_module("pyavd")
    result = pyavd.validate_structured_config(data)
    for violation in result.validation_result.violations:
        messages.append(".".join(violation.path) + ": " + violation.message)
    if not messages:
        messages = unlike(ours, rendered(data))
    return messages


def main() -> int:
    """Judges standard input.

    Returns:
        The exit code.
    """
    try:
        importlib.import_module("pyavd")
    except ImportError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        return MISSING
    messages = judge(sys.stdin.read())
    for message in messages:
        print(message)
    return REFUSED if messages else 0


if __name__ == "__main__":
    sys.exit(main())
