"""Explains parameters that got no gradient, for which ranks wait: which they are, on which ranks, and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from torch import distributed, nn
from torch.distributed import distributed_c10d

from autotune.errors import TargetError
from autotune.sentences import first_few
from autotune.targets.live_modules import own_class
from autotune.targets.tracebacks import definition_line

MOST_NAMED_PARAMETERS = 3  # parameters that a message names
_MOST_NAMED_RANKS = 8
SEARCH_IN_FILE = "write find_unused_parameters = True"
SEARCH_IN_SCRIPT = "give DistributedDataParallel find_unused_parameters=True"
REPORT_SECONDS = 1.0  # for the other ranks to fail, too: they followed within 0.4 s (measured, gloo)
_POLL_SECONDS = 0.01


def unused(model: nn.Module, lacking: Mapping[int, Sequence[str]], ranks: Sequence[int], search: str) -> TargetError:
    """Return the error for ranks that lack gradients: for each that is known, the names of its parameters without one.

    One of the `ranks` that is not known probably waits, because it has all gradients. `search` is how to have ranks
    look for such parameters.
    """
    names = list(dict.fromkeys(name for each in lacking.values() for name in each))
    without = {name: tuple(rank for rank, each in lacking.items() if name in each) for name in names}
    partly = [name for name in names if len(without[name]) < len(ranks)]
    waiting = "and all ranks wait for one before they average gradients"
    if not partly:
        return TargetError(
            f"{first_few(names, MOST_NAMED_PARAMETERS)} got no gradient in a step, {waiting}. The loss probably does "
            f"not depend on every part of the model{forwards(model, names)}. Take them out of the model, or freeze "
            f"them (requires_grad_(False)); where each batch may leave out others, {search}."
        )
    probably = "probably " * (len(lacking) < len(ranks))
    said = list[str]()
    for lack in dict.fromkeys(without[name] for name in partly):
        those = first_few([name for name in partly if without[name] == lack], MOST_NAMED_PARAMETERS)
        others = [rank for rank in ranks if rank not in lack]
        what = "none" if said else "got no gradient in a step"
        said.append(f"{those} {what} on {_named(lack)}, but {probably}one on {_named(others)}")
    return TargetError(
        f"{first_few(said, MOST_NAMED_PARAMETERS, '; ')}, {waiting}. The model{forwards(model, partly)} probably "
        f"takes a branch by the rank's number or by its batch. Compute them on every rank, if only as 0 * their "
        f"output in the loss, or {search}{'; if no rank uses them, take them out of the model' * bool(probably)}."
    )


def lacking_by_rank(own: Sequence[str], ranks: Sequence[int]) -> dict[int, list[str]]:
    """Return which parameters lack a gradient, for each of the ranks that says so within a second; `own`: on this one.

    A rank that waits in an exchange says nothing. Through the store by which the ranks found one another, because no
    collective ends while one of them waits.
    """
    rank, give_up = distributed.get_rank(), time.monotonic() + REPORT_SECONDS
    found, keys = {rank: list(own)}, {one: str(one) for one in ranks}
    with suppress(RuntimeError):  # raised if the process that holds the store has ended
        store = distributed_c10d.PrefixStore("autotune-unused", distributed_c10d._get_default_store())
        store.set(keys[rank], json.dumps(found[rank]))
        while not store.check(list(keys.values())) and time.monotonic() < give_up:
            time.sleep(_POLL_SECONDS)
        found |= {one: json.loads(store.get(key)) for one, key in keys.items() if store.check([key])}
    return dict(sorted(found.items()))


def forwards(model: nn.Module, names: Sequence[str]) -> str:
    """Return ` (Net.forward in model.py:12)`: the user's forward passes that use those parameters; empty: none."""
    places = dict.fromkeys(place for name in names if (place := _forward_of(model, name)))
    return f" ({first_few(list(places), MOST_NAMED_PARAMETERS)})" if places else ""


def _forward_of(model: nn.Module, name: str) -> str:
    """Return the user's forward pass that is to use that parameter, as `Net.forward in model.py:12`; empty: none."""
    path, modules = name.split(".")[:-1], dict(model.named_modules(remove_duplicate=False))
    for depth in range(len(path), -1, -1):
        owner = own_class(modules[".".join(path[:depth])])
        if line := definition_line(getattr(owner, "forward", None)):
            return f"{owner.__name__}.forward in {line}"
    return ""


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {first_few(list(map(str, ranks)), _MOST_NAMED_RANKS)}"
