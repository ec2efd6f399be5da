"""The house keeps its floors: imports go down, torch stays in the child, Optuna in the search wing."""

import ast
import functools
import inspect
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from autotune.knobs import KNOBS

PACKAGE = Path(__file__).parent.parent / "autotune"
FLOORS = {  # the highest floor that a room may import from; a file of a feature may have a floor of its own
    "errors": 0, "units": 0, "harmless": 0, "sentences": 0, "telling": 0, "interrupts": 0,
    "core": 1, "sampler/names": 1, "sampler/prediction": 1, "memory/model": 1, "profile/memory_records": 1,
    "profile/storage_records": 1,
    "machine": 2, "failures": 2, "knobs": 2, "targets": 2, "objectives": 2,
    "gradient_noise/estimate": 2, "study/summary": 2, "study/compiling_seconds": 2,
    "child": 3, "fleet": 3, "launch": 3, "sampler": 3, "study": 3,
    "profile/profile": 6, "profile/failed": 6, "profile/page": 8, "profile/output": 8,
    "answer": 4, "export": 4, "testing": 4,
    "preparation": 5,
    "context": 6,
    "tuning": 7, "races": 7, "scaling": 7,
    "report": 8, "dashboard": 8,
    "cli": 9, "api": 9, "__init__": 9, "__main__": 9,
}  # fmt: skip
FEATURE_FLOORS = {"records": 1, "stage": 6, "chart": 8, "table": 8}  # other files of a feature: 3
CHILD_ONLY = ("child", "targets", "export")  # and inside functions of knobs
CHILD_PLACES = ("child", "measuring", "tensor_tracker", "workspaces", "breakdown")  # of the features
OPTUNA_HOMES = ("sampler/structured.py", "sampler/encoding.py", "sampler/optuna.py", "study/store.py")


def _modules():
    return sorted(PACKAGE.rglob("*.py"))


@functools.cache  # hundreds of tests ask for the same thousands of names
def _is_file(name, package):
    return (package / name).is_file()


@functools.cache
def _tree(path):
    return ast.parse(path.read_text())


def _room(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


@functools.cache
def _imports(path, *, top_level_only=False):
    return tuple(_names_imported(path, top_level_only))


def _names_imported(path, top_level_only):
    nodes = _tree(path).body if top_level_only else ast.walk(_tree(path))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _floor(parts):
    """Of a module, by the names of its path below the package. Raises `KeyError` for a room that nobody knows."""
    if "/".join(parts[:2]) in FLOORS:
        return FLOORS["/".join(parts[:2])]
    return FEATURE_FLOORS.get(parts[1] if parts[1:] else "", 3) if _is_feature(parts[0]) else FLOORS[parts[0]]


def _is_feature(room):
    """A feature measures in a process of its own and is a stage of the search."""
    return all(_is_file(f"{room}/{name}.py", PACKAGE) for name in ("child", "stage"))


def _parts(path):
    return path.relative_to(PACKAGE).with_suffix("").parts


def _is_module(name):
    place = "/".join(name.split(".")[1:])
    return _is_file(f"{place}.py", PACKAGE) or _is_file(f"{place}/__init__.py", PACKAGE)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_go_down(path):
    here = _floor(_parts(path))

    named = {name for name in _imports(path) if name.startswith("autotune.")}
    unknown = {room for name in named if (room := name.split(".")[1]) not in FLOORS and not _is_feature(room)}
    used = {name for name in named if _is_module(name)}
    higher = {name for name in used if _floor(name.split(".")[1:]) > here and _room(path) != "__init__"}

    assert unknown == set()
    assert higher == set()


def test_every_room_has_a_floor():
    rooms = {_room(path) for path in _modules()}

    assert {room for room in rooms if not _is_feature(room)} == {name for name in FLOORS if "/" not in name}
    assert [name for name in FLOORS if "/" in name and not (PACKAGE / f"{name}.py").is_file()] == []


def test_no_imports_go_in_a_circle():
    graph = {
        ".".join(("autotune", *(part for part in _parts(path) if part != "__init__"))): {
            name for name in _imports(path, top_level_only=True) if name.startswith("autotune.") and _is_module(name)
        }
        for path in _modules()
    }

    tuple(TopologicalSorter(graph).static_order())  # raises CycleError with the circle


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
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]

    assert relative == []


def _is_of_the_child(parts):
    return parts[0] == "child" or parts[1:2] in [(place,) for place in CHILD_PLACES]


def test_the_two_wings_share_records_only():
    search_wing = {"sampler", "study", "answer", "preparation", "context", "tuning", "races"}

    crossing = [
        (str(path.relative_to(PACKAGE)), name)
        for path in _modules()
        for name in _imports(path)
        if name.startswith("autotune.") and _is_module(name)
        if (_room(path) in search_wing and _is_of_the_child(name.split(".")[1:]))
        or (_is_of_the_child(_parts(path)) and name.split(".")[1] in search_wing and _floor(name.split(".")[1:]) > 1)
    ]

    assert crossing == []


def test_torch_is_imported_only_where_the_child_is_at_home():
    strays = [
        str(path.relative_to(PACKAGE))
        for path in _modules()
        if _room(path) not in CHILD_ONLY
        and not _is_of_the_child(_parts(path))
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


# Names of PyTorch's too, and so of the user's dataloader(); of Lightning's Trainer.
ARGUMENTS = {*inspect.signature(DataLoader).parameters, "strategy"}
ARGUMENT_ROOMS = ("targets", "export")


def _strings(path):
    return {node.value for node in ast.walk(_tree(path)) if isinstance(node, ast.Constant)}


def test_no_knob_is_known_by_name_outside_its_file():
    """The simulated machine is a model of what knobs do, so it names them."""
    known = {knob.name for knob in KNOBS} - {"batch_size", "gradient_accumulation_steps"}

    named = {
        (str(path.relative_to(PACKAGE)), name)
        for path in _modules()
        if _room(path) not in ("knobs", "testing")
        for name in known & {text for text in _strings(path) if isinstance(text, str)}
        if not (name in ARGUMENTS and _room(path) in ARGUMENT_ROOMS)
    }

    assert named == set()


def test_what_is_shown_asks_every_knob_alike():
    files = {type(knob).__module__ for knob in KNOBS}
    shown = [path for path in _modules() if _room(path) in ("report", "dashboard", "cli")]

    assert [(str(path.relative_to(PACKAGE)), name) for path in shown for name in _imports(path) if name in files] == []


def _words(path):
    """The names that a module uses, imports or gives."""
    return {getattr(node, field, None) for node in ast.walk(_tree(path)) for field in ("id", "attr", "name")}


def test_no_knobs_class_is_named_outside_their_room():
    classes = {type(knob).__name__ for knob in KNOBS}

    named = {
        (str(path.relative_to(PACKAGE)), name)
        for path in _modules()
        if _room(path) != "knobs"
        for name in classes & _words(path)
    }

    assert named == set()


def test_no_objective_is_asked_for_by_name_outside_its_file():
    asking = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in _modules()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "objective"
        if any(isinstance(other, ast.Constant) for other in node.comparators)
    ]

    assert asking == []


def test_no_two_types_share_a_name():
    homes = {}
    for path in _modules():
        for name in {name for node in _tree(path).body for name in _types_named(node)}:
            homes.setdefault(name, []).append(path.relative_to(PACKAGE).as_posix())

    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def _types_named(node):
    """Return the public types that a statement names: a class, or an alias, which alone is written `LikeThis`.

    A `TypeVar` belongs to the functions that use it.
    """
    if isinstance(node, ast.ClassDef):
        return [] if node.name.startswith("_") else [node.name]
    if not isinstance(node, ast.Assign | ast.AnnAssign) or ast.unparse(node.value or node).startswith("TypeVar("):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [one.id for one in targets if isinstance(one, ast.Name) and one.id[0].isupper() and not one.id.isupper()]


@pytest.mark.parametrize(
    ("code", "types"),
    [
        ("class Rates: ...", ["Rates"]),
        ("Rates = tuple[int, float]", ["Rates"]),
        ("Rates: TypeAlias = tuple[int, float]", ["Rates"]),
        ("RATES = (1.0, 2.0)", []),
        ("_Rates = tuple[int, float]", []),
        ("rates = make()", []),
        ('Module = TypeVar("Module", bound=nn.Module)', []),
    ],
)
def test_types_are_known_by_how_they_are_written(code, types):
    assert _types_named(ast.parse(code).body[0]) == types


def test_no_two_thresholds_share_a_name():
    homes = {}
    for path in _modules():
        if _room(path) == "report" or path.stem == "chart":  # where ROW and GAP are the pixels of one drawing
            continue
        for node in _tree(path).body:
            if isinstance(node, ast.Assign) and _is_number(node.value):
                for name in (one for one in ast.walk(node) if isinstance(one, ast.Name)):
                    homes.setdefault(name.id, set()).add(path.relative_to(PACKAGE).as_posix())

    public = {name: sorted(found) for name, found in homes.items() if name.isupper() and not name.startswith("_")}
    assert {name: found for name, found in public.items() if len(found) > 1} == {}


def _is_number(node):
    if isinstance(node, ast.Tuple):
        return all(map(_is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def test_no_module_is_longer_than_three_hundred_lines():
    long = {str(path): count for path in _modules() if (count := len(path.read_text().splitlines())) > 300}

    assert long == {}


@pytest.mark.parametrize(
    "code",
    [
        "import autotune",
        "import autotune; autotune.load_best; autotune.load_result",
        "import autotune.cli.app",
        "import autotune.report.page, autotune.dashboard, autotune.report.blocks",
        "from autotune.targets import resolve",
    ],
)
def test_no_heavy_library_is_loaded_by(code):
    program = f"{code}\nimport sys\nprint([name for name in ('torch', 'optuna', 'scipy') if name in sys.modules])"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert loaded == "[]\n"


def test_the_searching_process_does_not_load_torch():
    program = "import autotune; autotune.search; autotune.race\nimport sys\nprint('torch' in sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert loaded == "False\n"


def test_every_public_name_exists():
    import autotune

    assert [name for name in autotune.__all__ if getattr(autotune, name, None) is None] == []
    assert dir(autotune) == autotune.__all__
