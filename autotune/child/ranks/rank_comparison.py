"""Judges what the ranks of a command were seen to do in its inspection: whether they learn the same. Pure.

Ranks that drift apart are refused, unless something speaks for parameters that are meant to differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.core.records import CheckLine, DriftingParameter, RankFacts
from autotune.errors import TargetError
from autotune.sentences import first_few
from autotune.units import counted

MOST_DRIFTING_NAMED = 3  # parameters that the message names
_MEANT = {
    "": "so few steps do not tell a script that averages them every so many steps from one that forgets some",
    "exchanged": "the script exchanges them by calls of torch.distributed of its own, which is right for local SGD and "
    "wrong if they are to be equal after each step",
    "others exchanged": "nothing wraps them, and the script exchanges other tensors by calls of torch.distributed of "
    "its own, so they may be parts of one model that each rank has for itself. If all ranks are to train one model, "
    "DistributedDataParallel is missing: write model = DistributedDataParallel(model)",
    "part of a model": "backward passes of the script exchange tensors among ranks, so they may be parts of one model "
    "that each rank has for itself; if they are not, make their module a part of the one that "
    "DistributedDataParallel wraps",
    # No refusal: torch itself has buffers of each rank's own (DDP's broadcast_buffers=False), and some are never read.
    "buffer": "buffers that no step wrote and nothing broadcast, so that probably each rank drew its own, with another "
    "seed, or nothing ever filled them. Unless each is meant to have its own, draw them after torch.manual_seed with "
    "the same number on all ranks, or pass them to torch.distributed.broadcast before the first step",
}

_WRAP = (
    "Write model = DistributedDataParallel(model) before the training loop (with Accelerate: model = "
    "accelerator.prepare(model))."
)
_ON_PURPOSE = (
    "Ranks that are to train models of their own, as in a sweep, are no training of several ranks: tune one of them, "
    "without the launcher (-- python train.py)."
)


def check_parameters(ranks: Sequence[RankFacts]) -> None:
    """Raise `TargetError` with the parameters of which ranks had different values after each step that was looked at.

    Not with those for which something speaks that they are meant to differ.
    """
    if alone := [one for rank in ranks for one in rank.drifting if one.cause == "no group"]:
        raise _no_group(alone[0].place, len(ranks))
    seen = _last_looked(ranks)
    if not seen.looks_ended_early and (refused := [one for one in seen.drifting if not one.meant]):
        outside = [one for one in refused if one.cause in ("outside", "bare")]
        raise _disagreement(outside or refused, seen)


def check_batches(ranks: Sequence[RankFacts]) -> None:
    """Raise `TargetError` if the loaders of a command's ranks were made with different batch sizes."""
    sizes = [one.loader_batch for one in ranks]
    if len(set(sizes)) < 2 or not all(sizes):
        return
    place = f" ({ranks[0].loader_place})" if ranks[0].loader_place else ""
    raise TargetError(
        f"the ranks train with micro-batches of different sizes, by rank: {', '.join(map(str, sizes))}{place}. An "
        f"average over ranks of mean losses then weighs some samples more than others, and one batch_size cannot stand "
        f"for all. Give all ranks the same batch size."
    )


def different_on_purpose(ranks: Sequence[RankFacts]) -> tuple[str, ...]:
    """Return the names of the parameters and buffers that may be meant to be others on each rank."""
    seen = _last_looked(ranks)
    return tuple(one.name for one in seen.drifting)


def differing_rank_lines(ranks: Sequence[RankFacts]) -> Iterator[CheckLine]:
    """Yield what the ranks of a command were seen to do that the user should know."""
    seen = _last_looked(ranks)
    if seen.averaged:
        names = first_few(list(seen.averaged), MOST_DRIFTING_NAMED)
        steps = counted(max(seen.averaged.values()), "optimizer step")
        text = (
            f"the ranks had different values of {names}, and the same after {steps}: the script averages them itself, "
            f"as in local SGD"
        )
        yield CheckLine(name="ranks", text=text)
    for meant in dict.fromkeys(one.meant for one in seen.drifting):
        names = first_few([one.name for one in seen.drifting if one.meant == meant], MOST_DRIFTING_NAMED)
        text = f"the ranks had different values of {names} after {_steps(seen.looks)}: {_MEANT[meant]}"
        yield CheckLine(name="ranks", text=text, needs_attention=True)
    yield from _same_batches(ranks)
    yield from _uneven_epochs(ranks)
    if needless := sorted(set.intersection(*(set(one.needless_searches) for one in ranks)) if ranks else ()):
        asked = ", which a Trainer asks for by default," * seen.has_trainer
        advice = "give TrainingArguments ddp_find_unused_parameters=False" if seen.has_trainer else "leave it out"
        text = (
            f"find_unused_parameters=True{asked} looks through the graph in every step, and every parameter got a "
            f"gradient in all that were watched. Unless other batches skip a part of the model, {advice} "
            f"({' and '.join(needless)})"
        )
        yield CheckLine(name="ranks", text=text, needs_attention=True)
    if early := sorted({line for one in ranks for line in one.early_exchanges}):
        text = (
            f"ranks exchange gradients to which the gradients of further micro-batches are added: the forward pass in "
            f"{' and '.join(early)} is outside of no_sync(). Put forward and backward pass of all micro-batches but "
            f"the last of a step inside of it"
        )
        yield CheckLine(name="ranks", text=text, needs_attention=True)


def _steps(looks: int) -> str:
    return f"each of {looks} optimizer steps" if looks > 1 else "one optimizer step"


def _last_looked(ranks: Sequence[RankFacts]) -> RankFacts:
    """Return the facts of the rank that compared parameters at most steps; all did so alike, unless one ended."""
    return max(ranks, key=lambda one: one.looks, default=RankFacts())


def _same_batches(ranks: Sequence[RankFacts]) -> Iterator[CheckLine]:
    size, firsts = len(ranks), {one.first_batch for one in ranks}
    if size < 2 or len(firsts) > 1 or 0 in firsts:
        return
    place = f" ({ranks[0].loader_place})" if ranks[0].loader_place else ""
    text = (
        f"all {size} ranks had the same first batch{place}, so an optimizer step probably learns each sample {size} "
        f"times. Unless the script takes a part of it on each rank, give each its share: "
        f"DataLoader(..., sampler=DistributedSampler(dataset)), or with Accelerate accelerator.prepare(loader)"
    )
    yield CheckLine(name="ranks", text=text, needs_attention=True)


def _uneven_epochs(ranks: Sequence[RankFacts]) -> Iterator[CheckLine]:
    counts = [one.epoch_batches if one.looks else 0 for one in ranks]
    if not all(counts) or len(set(counts)) < 2:
        return
    place = f" ({ranks[0].loader_place})" if ranks[0].loader_place else ""
    text = f"the ranks have {' and '.join(f'{count:,}' for count in counts)} batches in an epoch"
    if all(one.joins for one in ranks):
        yield CheckLine(name="ranks", text=f"{text}, and train under Join, so that none waits for ever{place}")
        return
    text += (
        f": at its end those that have more wait for ever. Give each as many, as DistributedSampler does, or train "
        f"under torch.distributed.algorithms.join.Join{place}"
    )
    yield CheckLine(name="ranks", text=text, needs_attention=True)


def _no_group(place: str, size: int) -> TargetError:
    made = f" (made in {place})" if place else ""
    return TargetError(
        f"the {size} ranks stepped their optimizers{made}, and none called "
        f"torch.distributed.init_process_group: no gradient is exchanged, and each rank trains a model of its own. The "
        f"script is probably meant for one process, or its setup of the ranks is missing. Call init_process_group. "
        f"{_WRAP} {_ON_PURPOSE}"
    )


def _disagreement(drifting: Sequence[DriftingParameter], of_rank: RankFacts) -> TargetError:
    others = sorted({number for one in drifting for number in one.ranks})
    names = first_few([one.name for one in drifting], MOST_DRIFTING_NAMED)
    first = drifting[0]
    seen = (
        f"after {_steps(of_rank.looks)} rank "
        f"{' and '.join(map(str, others))} {'has' if len(others) == 1 else 'have'} other values of {names} than rank "
        f"0: the ranks drift apart."
    )
    made, called = (f" ({word} in {first.place})" if first.place else "" for word in ("made", "called"))
    rarely = "If the script averages them itself every so many steps, let it do so more often for this check"
    match first.cause:
        case "outside" | "bare":
            wrapped = "module that DistributedDataParallel wraps"
            if of_rank.has_trainer:
                wrapped = "model that the Trainer is given"
            part = f"Make their module a part of the {wrapped}"
            if any(one.cause == "bare" for one in drifting):
                part = (
                    f"Make them a part of the {wrapped}, a bare nn.Parameter as an attribute (self.scale = "
                    f"nn.Parameter(...)) that its forward uses"
                )
            return TargetError(
                f"{seen} The optimizer{made} trains them, but they are probably outside every "
                f"DistributedDataParallel, so that their gradients are not averaged. {part}; if each rank is meant to "
                f"have its own, name them in _ddp_params_and_buffers_to_ignore of their module."
            )
        case "unwrapped" if of_rank.has_trainer:
            return TargetError(
                f"{seen} Nothing wraps the model that the optimizer{made} trains, and no gradient and no parameter was "
                f"exchanged: each rank trains a model of its own. A Trainer wraps the model that it is given, so "
                f"probably a subclass or a callback keeps it from that, or the optimizer belongs to another model. "
                f"Leave _wrap_model and accelerator.prepare as they are, and give the Trainer its optimizer with the "
                f"model whose parameters it has. {rarely}. {_ON_PURPOSE}"
            )
        case "unwrapped":
            return TargetError(
                f"{seen} Nothing wraps the model that the optimizer{made} trains, and no gradient and no parameter was "
                f"exchanged: each rank trains a model of its own, probably because DistributedDataParallel is missing. "
                f"{_WRAP} {rarely}. {_ON_PURPOSE}"
            )
        case "past the wrapper":
            past, call = "model.module", "Call the wrapped model"
            if of_rank.has_trainer:
                past = f"self.model or {past}"
                call = "In compute_loss and training_step of a Trainer, call the model that they are given"
            return TargetError(
                f"{seen} They are inside DistributedDataParallel{made}, which was never called with gradients: the "
                f"script probably calls {past}, so that nothing averages their gradients. {call}. {rarely}."
            )
        case "no_sync":
            return TargetError(
                f"{seen} They are inside DistributedDataParallel, and its last forward pass before a step{called} is "
                f"inside no_sync(), so that their gradients are not averaged. Leave no_sync() before the last forward "
                f"pass of a step. {rarely}."
            )
    return TargetError(
        f"{seen} They are inside DistributedDataParallel{made}, and probably the script changes them or their "
        f"gradients with random numbers that differ between ranks, or computes them by a part that is called past the "
        f"wrapper. Seed all ranks alike, and call the wrapped model."
    )
