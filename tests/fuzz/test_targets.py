"""Agreed names of a target that stand for the wrong thing: the user's mistake is explained, and is never our fault."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.targets.contract import NAMES
from tests.targets_support import COMPLETE, inspect

VALUES = (
    "None", "0", "-1", "2.5", "True", "''", "'text'", "b'bytes'", "[]", "[1, 'a', None]", "()", "{}", "{1: 2}",
    "{'batch_size': 'x'}", "{'batch_size': [8, 'x', None]}", "{'batch_size': (None, None)}", "{'bitch': 1}", "object()",
    "object", "type", "...", "float('nan')", "10**400", "torch", "torch.nan", "torch.zeros(0)", "torch.randn(4)",
    "nn.Linear", "nn.Linear(4, 2)", "nn.Linear(3, 2)", "iter([])", "(x for x in 'ab')", "lambda: None", "lambda: 1",
    "lambda x: x", "lambda a, b, c: a", "lambda *a, **k: None", "lambda *, z: z", "print", "int", "Exception",
    "ValueError('x')", "lambda: 1 / 0", "lambda: (_ for _ in ()).throw(KeyboardInterrupt)", "lambda: exit(3)",
    "lambda batch_size: torch.randn(3)", "lambda batch_size: iter([])", "lambda batch_size: [1, 2]",
    "lambda params: torch.optim.SGD(params, lr=float('nan'))", "lambda model, batch: torch.zeros(2)",
    "lambda model, batch: float('nan')", "lambda model, batch: 'x'", "lambda model, batch: {'a': 1}",
)  # fmt: skip


def _fault(folder: Path, name: str, value: str) -> str:
    """What is wrong with the refusal of a target in which `name` is `value`; empty: nothing, or it fits."""
    text = f"{COMPLETE}\n{name} = {value}\n"
    try:
        inspect(folder, text, name=f"{name}_{abs(hash(value))}.py")
    except AutotuneError as error:
        return "" if len(str(error)) > 20 else f"{name} = {value}: says only {error}"
    except (KeyboardInterrupt, SystemExit):  # the target's own word, which a probe's process takes as one
        return ""
    except Exception as error:
        return f"{name} = {value}: {error!r}\n{traceback.format_exc()[-600:]}"
    return ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")  # of torch, about what no user writes
def test_a_name_of_the_wrong_type_is_explained(name: str, tmp_path: Path) -> None:
    faults = list(filter(None, (_fault(tmp_path, name, value) for value in VALUES)))

    assert not faults, "\n".join(faults)
