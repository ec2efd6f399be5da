"""The house keeps its floors: imports go down, torch stays in the child, Optuna in the search wing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.knobs import KNOBS

PACKAGE = Path(__file__).parent.parent / "autotune"
FLOORS = {  # the highest floor that a room may import from; rooms and single modules by their first name
    "errors": 0, "units": 0, "harmless": 0,
    "records": 1, "requests": 1, "results": 1, "interference": 1, "codec": 1, "kinds": 1,
    "prediction": 1, "gradients": 1, "forecast": 1,
    "knobs": 2, "targets": 2, "failures": 2, "failure_rules": 2, "stats": 2,
    "environment": 2, "host": 2, "nvml": 2, "sampler_names": 2, "objectives": 2,
    "noise_scale": 2, "summary": 2,
    "probe": 3, "launch": 3, "space": 3, "guard": 3, "objective": 3, "sampler": 3, "study": 3, "lock": 3, "folder": 3,
    "stability": 3,
    "tuning": 4, "export": 4, "testing": 4,
    "report": 5,
    "cli": 6, "__init__": 6, "__main__": 6,
}  # fmt: skip
CHILD_ONLY = ("probe", "targets", "export")  # and inside functions of knobs
OPTUNA_HOMES = ("sampler/structured.py", "sampler/optuna.py", "study.py", "tuning/engine.py")


def _modules():
    return sorted(PACKAGE.rglob("*.py"))


def _room(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def _imports(path, *, top_level_only=False):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_go_down(path):
    here = FLOORS[_room(path)]

    rooms = {name.split(".")[1] for name in _imports(path) if name.startswith("autotune.")}
    unknown = rooms - set(FLOORS)
    higher = {room for room in rooms & set(FLOORS) if FLOORS[room] > here and _room(path) != "__init__"}

    assert unknown == set()
    assert higher == set()


def test_every_room_has_a_floor():
    assert {_room(path) for path in _modules()} == set(FLOORS)


def test_what_is_for_tests_is_imported_by_tests_and_benchmarks_only_and_needs_no_pytest():
    users = {
        str(path.relative_to(PACKAGE))
        for path in _modules()
        if any(f"{name}.".startswith("autotune.testing.") for name in _imports(path)) and _room(path) != "testing"
    }
    needing = {str(path) for path in _modules() if any(name.split(".")[0] == "pytest" for name in _imports(path))}

    assert users == set()
    assert needing == set()


def test_a_room_that_nobody_knows_fails(tmp_path, monkeypatch):
    (tmp_path / "cellar").mkdir()
    (tmp_path / "cellar" / "wine.py").write_text("from autotune.attic import dust\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)

    with pytest.raises(AssertionError):
        test_every_room_has_a_floor()
    with pytest.raises(KeyError, match="cellar"):
        test_imports_only_go_down(tmp_path / "cellar" / "wine.py")
    monkeypatch.setitem(FLOORS, "cellar", 0)
    with pytest.raises(AssertionError, match="attic"):
        test_imports_only_go_down(tmp_path / "cellar" / "wine.py")


def test_imports_name_their_room():
    relative = [
        str(path.relative_to(PACKAGE))
        for path in _modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]

    assert relative == []


def test_the_two_wings_share_records_only():
    search_wing = {"space", "guard", "objective", "sampler", "study", "folder"}

    crossing = [
        (str(path.relative_to(PACKAGE)), name)
        for path in _modules()
        for name in _imports(path)
        if (_room(path) in search_wing and name.startswith("autotune.probe"))
        or (_room(path) == "probe" and name.split(".")[1:2] and name.split(".")[1] in search_wing)
    ]

    assert crossing == []


def test_torch_is_imported_only_where_the_child_is_at_home():
    strays = [
        str(path.relative_to(PACKAGE))
        for path in _modules()
        if _room(path) not in CHILD_ONLY
        and any(name.split(".")[0] == "torch" for name in _imports(path, top_level_only=True))
    ]

    assert strays == []


def test_optuna_is_imported_only_in_the_search():
    homes = [
        str(path.relative_to(PACKAGE))
        for path in _modules()
        if any(name.split(".")[0] == "optuna" for name in _imports(path))
    ]

    assert set(homes) <= set(OPTUNA_HOMES)


ARGUMENT = "num_workers"  # also a name of PyTorch's: of an argument of DataLoader, and so of the user's dataloader()
ARGUMENT_ROOMS = ("targets", "export")


def _strings(path):
    return {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}


def test_no_knob_is_known_by_name_outside_its_file():
    """The simulated machine is a model of what knobs do, so it names them."""
    known = {knob.name for knob in KNOBS} - {"batch_size", "gradient_accumulation_steps"}

    named = {
        (str(path.relative_to(PACKAGE)), name)
        for path in _modules()
        if _room(path) not in ("knobs", "testing")
        for name in known & {text for text in _strings(path) if isinstance(text, str)}
        if not (name == ARGUMENT and _room(path) in ARGUMENT_ROOMS)
    }

    assert named == set()


def test_no_module_is_longer_than_three_hundred_lines():
    long = {str(path): count for path in _modules() if (count := len(path.read_text().splitlines())) > 300}

    assert long == {}


@pytest.mark.parametrize(
    "code",
    [
        "import autotune",
        "import autotune; autotune.load_best; autotune.load_result",
        "import autotune.cli.app",
        "import autotune.report.page, autotune.report.dashboard, autotune.report.blocks",
        "from autotune.targets import resolve",
    ],
)
def test_neither_torch_nor_optuna_is_loaded_by(code):
    program = f"{code}\nimport sys\nprint([name for name in ('torch', 'optuna') if name in sys.modules])"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert loaded == "[]\n"


def test_the_searching_process_does_not_load_torch():
    program = "import autotune; autotune.search\nimport sys\nprint('torch' in sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert loaded == "False\n"


def test_every_public_name_exists():
    import autotune

    assert [name for name in autotune.__all__ if getattr(autotune, name, None) is None] == []
    assert dir(autotune) == autotune.__all__
