"""What faults cost a study, and who recognises the messages of memory that ran out.

    python -m benchmarks.faults [--messages-only]        from the repository's root; about two minutes

First every case of the fault suite, a real target in a real probe: it survived if the launcher came back with the
right outcome, nothing was left running, and a healthy probe worked afterwards. Then the table of real messages, as
exceptions, through our classifier (which was written against this table: for it this is a check, for the others a
measurement) and through the recognisers of Lightning and Accelerate, if these are installed.
"""

import argparse
import builtins
import tempfile
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path

from autotune.core.results import Isolation, Outcome
from autotune.failures.classify import Link, classify
from autotune.study import disk
from tests.faults.suffering import House, suffer_all  # found only from the root of the repository
from tests.faults.targets import FAULTS
from tests.known_failures import SINGLE

RIVALS = {  # distribution: module and function that answer whether an exception means memory
    "lightning": ("lightning.pytorch.utilities.memory", "is_oom_error"),
    "accelerate": ("accelerate.utils.memory", "should_reduce_batch_size"),
}
MEMORY = (Outcome.OOM_DEVICE, Outcome.OOM_HOST, Outcome.OOM_SHM)
Recogniser = Callable[[Exception, Link], bool]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages-only", action="store_true", help="leave the real faults out")
    parser.add_argument("--isolation", choices=("fork", "fresh"), default="fork", help="how their probes start")
    options = parser.parse_args()
    failed = 0 if options.messages_only else faults(options.isolation)
    messages()
    return int(failed > 0)


def faults(isolation: Isolation) -> int:
    """Print the table of real faults; how many did not survive."""
    with tempfile.TemporaryDirectory() as place:
        study = Path(place) / "study"
        with House(study, isolation) as house:
            possible = [fault for fault in FAULTS if house.can(fault)]
        suffered = suffer_all(possible, study, isolation)
        stored = {trial.number: trial.result for trial in disk.read_trials(study)}
    survived = orphans = lost = 0
    print(f"{'fault':46}{'outcome':16}{'phase':10}{'seconds':>8}")
    for fault in possible:
        case = suffered[fault.name]
        result, failure = case.result, case.result.failure
        good = fault.outcome is result.outcome and not case.survivors and case.next_result.outcome is Outcome.OK
        survived += good
        orphans += len(case.survivors)
        lost += stored.get(int(case.folder.name)) != result
        phase = failure.phase if failure else ""
        verdict = "" if good else "  NOT SURVIVED"
        print(f"{fault.name:46}{result.outcome:16}{phase:10}{result.elapsed_seconds:8.1f}{verdict}")
    skipped = len(FAULTS) - len(possible)
    print(f"\nsurvived {survived} of {len(possible)} ({skipped} not possible on this machine), "
          f"processes left behind: {orphans}, trials lost: {lost} of {len(possible)}\n")  # fmt: skip
    return len(possible) - survived


def messages() -> None:
    """Print how many messages of memory each recogniser knows, and what else it takes for one."""
    recognisers: dict[str, Recogniser] = {"autotune": lambda _, link: classify([link])[0] in MEMORY}
    for name, (module, function) in RIVALS.items():
        try:
            recognise = getattr(import_module(module), function)
        except ImportError:
            print(f"{name} is not installed: left out")
            continue
        recognisers[f"{name} {metadata.version(name)}"] = lambda error, _, recognise=recognise: recognise(error)
    rows = [(exception(kind, message, code), Link(type_name=kind, message=message, error_code=code), expected)
            for kind, message, code, expected, _ in SINGLE]  # fmt: skip
    memory = [(error, link) for error, link, expected in rows if expected in MEMORY]
    other = [(error, link) for error, link, expected in rows if expected not in MEMORY]
    for name, knows in recognisers.items():
        known = sum(knows(*row) for row in memory)
        wrong = sum(knows(*row) for row in other)
        print(f"{name:20} knows {known:2d} of {len(memory)} of memory and takes {wrong} of {len(other)} others for one")
    print()
    for error, link in memory:
        marks = " ".join("yes" if knows(error, link) else "no " for knows in recognisers.values())
        print(
            f"{marks}  {link.type_name.rpartition('.')[2]}: {link.message.splitlines()[0][:90] if link.message else ''}"
        )


def exception(type_name: str, message: str, code: int | None) -> Exception:
    """A real exception of this type; of a package that is not here, a RuntimeError of the same name."""
    module, _, name = type_name.rpartition(".")
    try:
        kind = getattr(builtins if module == "builtins" else import_module(module), name)
        error = kind(message)
    except (ImportError, AttributeError, TypeError):
        error = type(name, (RuntimeError,), {})(message)
    if code is not None:
        error.error_code = code
    return error


if __name__ == "__main__":
    raise SystemExit(main())
