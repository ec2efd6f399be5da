"""What is said of processes that train together: how they start, who shares the data out, how each joins the others."""

from __future__ import annotations

from autotune.errors import UsageError
from autotune.export.data import ExportedData
from autotune.knobs import KNOBS
from autotune.knobs.strategy import FSDP
from autotune.knobs.wording import Framework
from autotune.study.recommendation import Recommendation, command_of
from autotune.targets.commands.command import is_command

OWN_LOADER = (Framework.TORCH, Framework.DEEPSPEED)  # whose exported loader shares the data out
ON_GPUS = (Framework.HUGGING_FACE, Framework.LIGHTNING, Framework.ACCELERATE)  # that share weights out there alone
# What a probe wraps is the loss (decisions/0082); these loops wrap the model.
CALLED = "Your loss has to call model(...), not its parts or methods: ranks exchange gradients around that call."


def ranks_of(best: Recommendation) -> int:
    """Return the number of processes that trained together when it was measured."""
    return 1 if best.facts is None else best.facts.ranks


def starting(best: Recommendation, count: int, framework: Framework, data: ExportedData) -> tuple[str, ...]:
    """Return a remark on how the `count` processes start and who gives them their data; of a command, its line."""
    if is_command(best.target):
        if count != ranks_of(best):  # which the command itself says
            return ()
        return (f"Your script stays as it is, and is started by: {command_of(best).text}",)
    if count == 1:
        return ()
    share = _share(framework, data, count)
    if framework is Framework.LIGHTNING:
        return (f"Its Trainer starts {count} processes: {share}.",)
    start = f"torchrun --nproc-per-node {count}"
    if framework is Framework.ACCELERATE:
        if best.environment.device_kind == "cuda":  # on a CPU it starts one (1.15)
            start = f"accelerate launch --multi_gpu --num_processes {count}"
        start += " (or accelerate launch --config_file with the file that --write makes)"
    said = f"Start your training once by {_threads(best, count)}{start}, which runs {count} processes: {share}."
    return (said, *(CALLED,) * (data.has_loss and framework in (Framework.TORCH, Framework.ACCELERATE)))


def _threads(best: Recommendation, count: int) -> str:
    """Return the variable by which a process has as many threads as measured: torchrun gives each one."""
    threads = (best.environment.default_threads or 1) * ranks_of(best) // count
    is_set = any(one.computing_threads(best.params[one.name], 0) for one in KNOBS)
    return "" if is_set or threads <= 1 else f"OMP_NUM_THREADS={threads} "


def _share(framework: Framework, data: ExportedData, count: int) -> str:
    """Return who gives each process its share of the data."""
    own = f"your {data.sharing}" if data.sharing else ""
    if own and (framework is Framework.ACCELERATE or (framework is Framework.HUGGING_FACE and data.kind == "iterable")):
        return f"Accelerate shares out what {own} gives, so let it give all samples on every rank"
    if own:
        return f"let {own} give each its share, by torch.distributed.get_rank()"
    if framework in OWN_LOADER and data.kind == "batch":
        return "give each its share of the data"
    if framework in OWN_LOADER and data.has_sampler:
        return f"give each one of every {count} indices of your sampler, unless it is a DistributedSampler"
    return "each gets its share of the dataset"


def joining(device: str) -> tuple[str, ...]:
    """Return the statements by which a process joins the others that train with it, on a device of its own."""
    own = ("torch.cuda.set_device(torch.distributed.get_node_local_rank())",) * (device == "cuda")
    return (*own, "torch.distributed.init_process_group()")


def reshards(strategy: str) -> bool:
    """Return whether each rank lets gathered weights go after the forward pass."""
    return strategy == FSDP


def check_strategy(strategy: str | None, framework: Framework, device: str) -> None:
    """Raise `UsageError` where a framework would train with another strategy than the measured one."""
    if strategy is not None and device == "cpu" and framework in ON_GPUS:
        raise UsageError(
            f"--to {framework} cannot share weights out on a CPU, and the study recommends strategy {strategy} there. "
            f"Accelerate 1.15 and transformers 5.23 would train by DistributedDataParallel without a word, and "
            f"Lightning 2.6 wants GPUs. Use --to torch or --to deepspeed, or search again with --strategy none."
        )
