"""What the gradient hooks know about a model: layers, tolerances, and residuals.

This module decides the layer of each gradient, the share of its packets that may be missing, and
the residuals that error feedback keeps between steps and checkpoints. Not here: how DDP (ddp.py)
and FSDP2 (fsdp.py) cut gradients into messages.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict

import torch
import torch.distributed as dist
from torch import nn

from gradwire import log

if TYPE_CHECKING:
    from gradwire import _binding

Groups = Mapping[str, float] | Callable[[str, nn.Parameter], float | None]
"""Tolerances of parts of a model: by name, or by a function of name and parameter."""


class LossScaler(Protocol):
    """Scales the loss, as ``torch.amp.GradScaler`` does."""

    def get_scale(self) -> float:
        """Return the scale of the loss whose backward pass runs or comes next."""


_STATE_VERSION = 1
_steps = itertools.count()
_tensor_keys = itertools.count(1)


def next_step() -> int:
    """Number a training step: all hooks of a process share the core's account of losses."""
    return next(_steps) & 0xFFFF_FFFF


def backend_of(
    group: dist.ProcessGroup | None = None, device: torch.device | None = None
) -> _binding.Backend:
    """Return gradwire's backend of ``group`` (default: the world), for counters and the job.

    With ``device``, it is the one for tensors there: a group may have several backends.
    """
    chosen = group if group is not None else dist.group.WORLD
    if chosen is None:
        raise RuntimeError("gradwire: no process group yet; call init_process_group first")
    devices = chosen._device_types if device is None else [torch.device(device.type)]
    backends = [_unwrapped(chosen, one) for one in devices]
    found = next((one for one in backends if hasattr(one, "allreduce_tagged")), None)
    if found is None:
        names = ", ".join(sorted({repr(one.name()) for one in backends}))
        where = "" if device is None else f" for tensors on {device.type}"
        raise TypeError(
            f"gradwire: the process group runs on {names}{where}; "
            'create it with init_process_group("gradwire")'
        )
    return found


def _unwrapped(group: dist.ProcessGroup, device: torch.device) -> Any:  # noqa: ANN401
    backend = group._get_backend(device)
    return getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it


def _device_of(group: dist.ProcessGroup) -> torch.device:
    """Return a device whose tensors gradwire moves in ``group``: the CPU where it can be."""
    moved = [
        device
        for device in group._device_types
        if hasattr(_unwrapped(group, device), "allreduce_tagged")
    ]
    return next((device for device in moved if device.type == "cpu"), moved[0])


def covers(pattern: str, name: str) -> bool:
    """Whether ``pattern`` names ``name`` or a module that it lies in; ``*`` and ``?`` are wild."""
    parts = name.split(".")
    prefixes = (".".join(parts[: i + 1]) for i in range(len(parts)))
    return any(fnmatchcase(prefix, pattern) for prefix in prefixes)


class LayerOrder:
    """Which layer a parameter belongs to; layer 0 is the most urgent.

    A layer is a module with parameters of its own. Modules named in ``priority`` come first, in its
    order. The others follow in the order in which they are defined until a forward pass has run,
    then in the order of that pass. A module that was not called itself, because the one around it
    used its parameters, follows that one; modules that did not run at all come last.
    """

    def __init__(self, module: nn.Module, priority: Sequence[str] = ()) -> None:
        """Watch the next forward pass of ``module``."""
        self.settled = False
        """Whether the order is that of a forward pass, and final."""
        self._root = module
        self._parents = {id(c): m for m in module.modules() for c in m.children()}
        self._layers = [m for m in module.modules() if _parameters_of(m)]
        self._owners: dict[int, list[nn.Module]] = {}
        for layer in self._layers:
            for parameter in _parameters_of(layer):
                self._owners.setdefault(id(parameter), []).append(layer)
        self._urgency = _urgency(module, priority)
        self._run: list[nn.Module] = []
        self._watches = [m.register_forward_pre_hook(self._record) for m in module.modules()]
        self._end = module.register_forward_hook(self._finish)
        self._numbers = self._number([])

    @property
    def count(self) -> int:
        """Number of layers in the whole model."""
        return len(self._layers)

    def of(self, parameter: nn.Parameter) -> int:
        """Return the layer of ``parameter``, the first where several share it."""
        return self.of_modules(self._owners[id(parameter)])

    def of_modules(self, modules: Iterable[nn.Module]) -> int:
        """Return the most urgent layer among ``modules`` with parameters of their own."""
        return min(self._numbers[id(module)] for module in modules)

    def _record(self, module: nn.Module, _inputs: object) -> None:
        self._run.append(module)

    def _finish(self, _module: nn.Module, _inputs: object, _outputs: object) -> None:
        for watch in (*self._watches, self._end):
            watch.remove()
        self._numbers = self._number(self._run)
        self._run = []
        self.settled = True

    def _number(self, run: list[nn.Module]) -> dict[int, int]:
        places: dict[int, int] = {}
        for place, module in enumerate(run):
            places.setdefault(id(module), place)

        def place_of(module: nn.Module) -> tuple[int, int, bool]:
            """Urgency, place in the pass, and whether that is a place of its own."""
            around: nn.Module | None = module
            while around is not None and id(around) not in places:
                around = self._parents.get(id(around))
            if around is None or (around is self._root and module is not self._root):
                return (self._urgency[id(module)], len(run), True)
            return (self._urgency[id(module)], places[id(around)], around is not module)

        return {id(layer): at for at, layer in enumerate(sorted(self._layers, key=place_of))}


def _parameters_of(module: nn.Module) -> list[nn.Parameter]:
    return list(module.parameters(recurse=False))


def _urgency(module: nn.Module, priority: Sequence[str]) -> dict[int, int]:
    """Return every module's place in ``priority``; modules without a name there come last."""
    urgency: dict[int, int] = {}
    named: set[str] = set()
    for name, part in module.named_modules():
        matching = [at for at, pattern in enumerate(priority) if covers(pattern, name)]
        named.update(priority[at] for at in matching)
        urgency[id(part)] = min(matching, default=len(priority))
    _refuse_strangers("priority", set(priority) - named, [n for n, _ in module.named_modules()])
    return urgency


def tolerances(module: nn.Module, default: float, groups: Groups | None) -> dict[str, float]:
    """Return the tolerance of every parameter by its name, also of names that share one.

    A parameter has the strictest of the tolerances in ``groups`` that cover it, and ``default`` if
    none does or a function gives ``None`` for it.
    """
    parameters = list(module.named_parameters(remove_duplicate=False))
    if groups is None:
        chosen: dict[str, float | None] = {}
    elif callable(groups):
        chosen = {name: groups(name, parameter) for name, parameter in parameters}
    else:
        names = [name for name, _ in parameters]
        unused = {key for key in groups if not any(covers(key, name) for name in names)}
        _refuse_strangers("groups", unused, names)
        found = {name: [groups[key] for key in groups if covers(key, name)] for name in names}
        chosen = {name: min(shares, default=None) for name, shares in found.items()}
    of_name = {name: chosen.get(name) for name, _ in parameters}
    return {
        name: checked_tolerance(default if share is None else share, name)
        for name, share in of_name.items()
    }


def agreed_settings(
    shares: Mapping[str, float], priority: Sequence[str], how: Reduction | None = None
) -> dict[str, object]:
    """Return the arguments of ``register`` that must be equal on all ranks, by their names."""
    settings: dict[str, object] = {f"the tolerance of {name}": s for name, s in shares.items()}
    named = {name: value for name, value in (how or {}).items() if value is not None}
    return settings | {"priority": list(priority)} | named


def agree(
    group: dist.ProcessGroup,
    shares: Mapping[str, float],
    priority: Sequence[str],
    how: Reduction | None = None,
) -> None:
    """Raise unless the ranks of ``group`` registered alike; its first rank says what is in effect.

    ``shares`` are the tolerances of the model's parameters by name.
    """
    check_agreed(group, agreed_settings(shares, priority, how))
    if group.rank() == 0:
        named = "".join(f"; {name} {value}" for name, value in (how or {}).items())
        log.say(logging.INFO, _in_effect(list(shares.values()), priority) + named)


def _in_effect(shares: Sequence[float], priority: Sequence[str]) -> str:
    most, lossless = max(shares, default=0.0), sum(share == 0.0 for share in shares)
    first = f", {', '.join(priority)} first" if priority else ""
    of = f"registered: gradients of {len(shares)} parameters"
    if most == 0.0:
        return f"{of} are lossless and travel by layer{first}"
    up_to = "" if min(shares) == most else "at most "
    strict = f" ({lossless} of them nothing)" if lossless else ""
    return f"{of} may lose {up_to}{100 * most:.4g}% of a message{strict} and travel by layer{first}"


def check_agreed(group: dist.ProcessGroup, settings: Mapping[str, object]) -> None:
    """Raise on every rank of ``group`` unless all gave the same ``settings``, by their names.

    Ranks that expect different losses would wait for each other until the group's timeout.
    """
    text = json.dumps(dict(settings), sort_keys=True).encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:8], "little", signed=True)
    device = _device_of(group)
    digests = torch.empty(group.size(), dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(digests, torch.tensor([digest], device=device), group=group)
    if digests.cpu().unique().numel() == 1:
        return
    told: list[Any] = [None] * group.size()
    dist.all_gather_object(told, dict(settings), group=group)
    for other, theirs in enumerate(told):
        for name in {**told[0], **theirs}:
            first, differing = told[0].get(name, "none"), theirs.get(name, "none")
            if first != differing:
                raise ValueError(
                    f"gradwire: register() differs between ranks: {name} is {first} on rank 0 and "
                    f"{differing} on rank {other} of the group; give all ranks the same"
                )


class Codec(NamedTuple):
    """How gradients are encoded between hosts, in the numbers of the C interface."""

    number: int
    share: float
    """Share of the values that top-k sends; 0 is the job's."""


class Reduction(TypedDict, total=False):
    """How gradients become one: the arguments of ``register`` beyond loss and order."""

    codec: str | None
    reduce: str


def check_reduction(how: Reduction) -> Reduction:
    """Return the arguments, if they are known and agree with each other."""
    unknown = set(how) - set(Reduction.__annotations__)
    if unknown:
        raise TypeError(f"gradwire: register() has no argument {sorted(unknown)[0]!r}")
    codec_of(how.get("codec"))
    reduce = how.get("reduce", "average")
    if reduce not in ("average", "adasum"):
        raise ValueError(f'gradwire: reduce={reduce!r}: give "average" or "adasum"')
    if reduce == "adasum" and how.get("codec") not in (None, "none"):
        raise ValueError('gradwire: reduce="adasum" has no codec: leave codec out')
    return how


_CODECS = {"none": 0, "job": 1, "onebit": 2, "tbq": 3, "terngrad": 4, "topk": 5, "blockfloat": 6}


def codec_of(name: str | None) -> Codec:
    """Return the codec of this name: ``"onebit"``, or ``"topk:0.01"`` with a share."""
    kind, _, share = (name or "job").partition(":")
    number = _CODECS.get(kind)
    try:
        sent = float(share) if share else 0.0
    except ValueError:
        sent = -1.0
    if number is None or not 0.0 <= sent <= 1.0 or (share and kind != "topk"):
        known = ", ".join(f'"{known}"' for known in _CODECS)
        raise ValueError(
            f'gradwire: codec "{name}": give one of {known}, or "topk:0.01" for the share of the '
            "values that are sent"
        )
    return Codec(number, sent)


def checked_tolerance(tolerance: float, whose: str) -> float:
    """Return ``tolerance`` if it is a valid one."""
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(
            f"gradwire: tolerance {tolerance} of {whose}: give the share of a gradient message "
            "that may be missing, at least 0 (lossless) and below 1"
        )
    return tolerance


def _refuse_strangers(argument: str, strangers: set[str], names: list[str]) -> None:
    if strangers:
        known = ", ".join(name for name in names[:8] if name)
        raise ValueError(
            f"gradwire: {argument} has {sorted(strangers)}, which the model lacks; "
            f"it has {known}{', ...' if len(names) > 8 else ''}"
        )


@dataclass(frozen=True)
class Message:
    """Gradients that travel together, the same in every step."""

    tolerance: float
    dtype: torch.dtype
    members: tuple[tuple[str, int, int], ...]
    """Name, first element and number of elements of each gradient."""

    key: int
    """Names the message to the core."""

    @staticmethod
    def new_key() -> int:
        """Return a key that no other message of this process has."""
        return next(_tensor_keys)

    @property
    def elements(self) -> int:
        """Length of the message."""
        _, start, length = self.members[-1]
        return start + length


class Residuals:
    """Residuals of error feedback: gradients that were lost in one step and are added to the next.

    The core keeps them by message, and adds them to the same message of the next step. Checkpoints
    keep them by name, since DDP may cut its messages differently. They wait here from the time they
    are taken from the core until gradients of that name are sent again.
    """

    def __init__(
        self,
        backend: _binding.Backend,
        scaler: LossScaler | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Start without residuals; keep them in the scale of ``scaler``, if there is one."""
        self._backend = backend
        self._scaler = scaler
        self.loss_scale: float | None = None
        """The scale of the loss that the residuals have; ``None`` if there is no scaler."""
        self._owed: dict[str, torch.Tensor] = {}
        self._messages: list[Message] = []
        job = backend.job()  # values as in a job file
        number = codec.number if codec else 0
        encodes = number > 1 or (number == 1 and job["collectives.codec"] != '"none"')
        self._exist_always = encodes
        self._exist = job["holes"] == '"error-feedback"'

    def watch(self, message: Message) -> None:
        """Note a message that was not sent before."""
        if self._exist_always or (self._exist and message.tolerance > 0.0):
            self._messages.append(message)

    def follow_scaler(self) -> None:
        """Bring the residuals to the scale of the loss in this step; call it between two steps."""
        if self._scaler is None:
            return
        scale = float(self._scaler.get_scale())
        if self.loss_scale not in (None, scale):
            self.scale(scale / self.loss_scale)
        self.loss_scale = scale

    def scale(self, factor: float) -> None:
        """Multiply all residuals by ``factor``; values that become infinite are dropped."""
        for message in self._messages:
            self._backend.scale_residual(message.key, factor)
        for values in self._owed.values():
            values.mul_(factor).nan_to_num_(0.0, 0.0, 0.0)

    def collect(self) -> None:
        """Take the residuals that the core keeps."""
        for message in self._messages:
            values = self._backend.take_residual(message.key, message.elements, message.dtype)
            if values is None:
                continue
            for name, start, length in message.members:
                part = values[start : start + length]
                if part.any():
                    before = self._owed.get(name)
                    self._owed[name] = part.clone() if before is None else before + part

    def pay(self, message: Message, gradients: torch.Tensor) -> None:
        """Add the residuals of ``message`` to its elements, ``gradients``.

        The core adds residuals only to parts that it sends. A part that was sent before may be this
        rank's own part of another message, which is not sent, so they are added here.
        """
        for name, start, length in message.members if self._owed else ():
            part = self._owed.get(name)
            if part is None:
                continue
            if part.numel() != length or part.dtype != message.dtype:
                raise ValueError(
                    f"gradwire: the state has {part.numel()} elements of {part.dtype} for {name}, "
                    f"whose gradient has {length} of {message.dtype}; load the state of this model"
                )
            gradients[start : start + length] += part.to(gradients.device)
            del self._owed[name]

    def state(self) -> dict[str, torch.Tensor]:
        """Return the residuals by name: as many elements as the gradient, zero if none is owed."""
        self.collect()
        return {name: values.clone() for name, values in self._owed.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace all residuals by those of a state of :func:`state_of`."""
        self.collect()
        owed = state["residuals"]
        self._owed = {name: values.detach().cpu().clone() for name, values in owed.items()}
        self.loss_scale = state.get("loss_scale")


def state_of(group: dist.ProcessGroup, step: int, residuals: Residuals) -> dict[str, Any]:
    """Return the state of a hook on this rank, to be saved by ``torch.save``."""
    return {
        "version": _STATE_VERSION,
        "rank": group.rank(),
        "world_size": group.size(),
        "step": step,
        "residuals": residuals.state(),
        "loss_scale": residuals.loss_scale,
    }


def check_state(
    state: Mapping[str, Any], group: dist.ProcessGroup, sizes: Mapping[str, int | None]
) -> None:
    """Raise unless ``state`` is one of this rank and of a model with gradients of ``sizes``."""
    missing = {"version", "rank", "world_size", "step", "residuals"} - set(state)
    if missing:
        raise ValueError(
            f"gradwire: this is no state of a gradient hook: {sorted(missing)} is missing; "
            "give what hook.state_dict() returned"
        )
    if state["version"] != _STATE_VERSION:
        raise ValueError(
            f"gradwire: a state of version {state['version']}; this gradwire reads version "
            f"{_STATE_VERSION}: load a state that this release saved, or none"
        )
    saved, here = (state["rank"], state["world_size"]), (group.rank(), group.size())
    if saved != here:
        raise ValueError(
            f"gradwire: the state of rank {saved[0]} of {saved[1]}, and this is rank {here[0]} of "
            f"{here[1]}; save and load the state on every rank, or leave it out: then what was "
            "lost in the last step before stays lost"
        )
    for name, values in state["residuals"].items():
        if name not in sizes or sizes[name] not in (None, values.numel()):
            raise ValueError(
                f"gradwire: the state owes {values.numel()} elements to {name!r}, and this model "
                f"has {sizes.get(name, 'no')} there; load the state of this model"
            )
