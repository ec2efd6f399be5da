"""The digest of a target: of its own file, and of the user's own files that it imports."""

import ast
import importlib.util
import sys
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from autotune.targets import own_imports
from autotune.targets.source import difference, digest_of, is_same, modules_of, unfound

NET, CHANGED = "class Net: ...\n", "class Net: width = 2\n"
FILES = ["model.py", "-- python model.py --lr 1", "-- python -m torch.distributed.run --nproc-per-node 2 model.py"]
MODULES = ["pkg.model", "-- python -m pkg.model", "-- python -m torch.distributed.run --nproc-per-node 2 -m pkg.model"]


@pytest.fixture(autouse=True)
def checkout(tmp_path, monkeypatch) -> Path:
    """The working folder of the test."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(files):
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def own(name="model.py"):
    return sha256(Path(name).read_bytes()).hexdigest()


def with_path(monkeypatch, folder):
    """As with PYTHONPATH: behind the folder of the program."""
    monkeypatch.setattr(sys, "path", [sys.path[0], str(folder), *sys.path[1:]])


@pytest.mark.parametrize("target", FILES)
def test_a_target_that_imports_nothing_of_the_users_has_the_digest_of_its_file(target):
    text = "import math\nimport torch.nn as nn\nfrom autotune import apply\nfrom .net import Net\n"
    write({"model.py": text, "net.py": NET})

    assert digest_of(target) == own()
    assert modules_of(target) == "nothing"


def test_what_cannot_be_read_or_is_installed_has_none():
    assert [digest_of(target) for target in ("missing.py", "json", "json.tool", "-- python", "no target")] == [""] * 5


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("import net\n", {"net.py": NET}),
        ("import math, net as other\n", {"net.py": NET}),
        ("from net import Net\n", {"net.py": NET}),
        ("def model():\n    from net import Net\n    return Net()\n", {"net.py": NET}),
        ("try:\n    import net\nexcept ImportError:\n    net = None\n", {"net.py": NET}),
        ("try:\n    import absent\nexcept ImportError:\n    import net\n", {"net.py": NET}),
        ("try:\n    x = 1\nexcept KeyError:\n    x = 2\nelse:\n    import net\n", {"net.py": NET}),
        ("try:\n    x = 1\nfinally:\n    import net\n", {"net.py": NET}),
        ("class Model:\n    with open(__file__):\n        from net import Net\n", {"net.py": NET}),
        ("match 1:\n    case 1:\n        import net\n", {"net.py": NET}),
        ("import lib.net\n", {"lib/__init__.py": "", "lib/net.py": NET}),
        ("from lib import net\n", {"lib/__init__.py": "", "lib/net.py": NET}),
        ("from lib.net import Net\n", {"lib/net.py": NET}),
        ("from lib import Net\n", {"lib/__init__.py": "from .net import Net\n", "lib/net.py": NET}),
        ("import lib.deep.top\n", {"lib/deep/top.py": "from ..net import Net\n", "lib/net.py": NET}),
        ("import lib.deep.top\n", {"lib/deep/top.py": "from ... import x\nfrom .. import net\n", "lib/net.py": NET}),
        ("from lib import *\n", {"lib/__init__.py": NET}),
        ("import first\n", {"first.py": "import second\n", "second.py": "import first, model, net\n", "net.py": NET}),
    ],
)
def test_a_change_of_what_is_imported_is_a_change_of_the_imports(target, text, files):
    write({"model.py": text, **files})
    before, again = digest_of(target), digest_of(target)
    write({name: CHANGED for name, content in files.items() if content == NET})

    assert before == again
    assert before.startswith(own())
    assert difference(before, digest_of(target)) == "imports"


@pytest.mark.parametrize("target", MODULES)
def test_a_module_imports_its_packages_and_what_is_in_them_and_in_the_working_folder(target):
    write({
        "pkg/__init__.py": "import top\n", "pkg/model.py": "from . import net\nfrom .absent import x\n",
        "pkg/net.py": "from ..out import of_the_package\n", "top.py": NET, "net.py": NET, "pkg/top.py": NET,
    })  # fmt: skip

    before = digest_of(target)

    assert before.startswith(f"{own('pkg/model.py')}+")
    assert modules_of(target) == "pkg, pkg.net, top"


def test_a_package_that_is_run_imports_relative_to_itself():
    write({"pkg/__main__.py": "from .net import Net\n", "pkg/net.py": NET, "net.py": CHANGED})

    assert modules_of("-- python -m pkg") == "pkg.net"


def test_an_empty_file_of_a_package_is_no_import():
    write({"pkg/__init__.py": "\n", "pkg/model.py": "import math\n"})

    assert digest_of("pkg.model") == own("pkg/model.py")


def test_a_checkout_elsewhere_has_the_same_digest_and_so_has_another_working_folder(tmp_path, monkeypatch):
    files = {"model.py": "import net, lib.data\n", "net.py": NET, "lib/data.py": "import net\n"}
    write(files)
    write({f"code/{name}": text for name, text in files.items()})
    here, from_above = digest_of("model.py"), digest_of("code/model.py")
    monkeypatch.chdir(tmp_path)
    write({f"elsewhere/{name}": text for name, text in files.items()})

    assert {digest_of("elsewhere/model.py"), digest_of(str(tmp_path / "elsewhere" / "model.py"))} == {here}
    assert from_above == here


def test_the_file_that_python_finds_first_counts(monkeypatch):
    write({"code/model.py": "import net, other\n", "code/net.py": NET, "net.py": NET, "other.py": NET})
    with_path(monkeypatch, Path.cwd())
    before = digest_of("code/model.py")

    write({"net.py": CHANGED})
    hidden = digest_of("code/model.py")
    write({"other.py": CHANGED})

    assert hidden == before
    assert difference(before, digest_of("code/model.py")) == "imports"


def test_an_installed_package_hides_a_folder_of_data_that_has_its_name(monkeypatch):
    installed = Path("env/site-packages").absolute()
    write({"model.py": "import datasets.read\n", "datasets/read.py": NET})
    write({f"{installed}/datasets/__init__.py": NET, f"{installed}/datasets/read.py": NET})
    with_path(monkeypatch, installed)

    assert digest_of("model.py") == own()


def test_code_on_the_path_counts_wherever_it_lies_and_from_every_folder(tmp_path, monkeypatch):
    write({"scripts/model.py": "import lib.net\n", "lib/net.py": NET})
    model, found = str(Path("scripts/model.py").absolute()), {}
    with_path(monkeypatch, Path.cwd())

    for folder in (Path.cwd(), Path("scripts").absolute(), tmp_path):
        monkeypatch.chdir(folder)
        found[folder] = digest_of(model)

    assert modules_of(model) == "lib.net"
    assert len(found) == 3
    assert len(set(found.values())) == 1


def test_code_that_only_the_folder_of_this_process_has_does_not_count(monkeypatch):
    write({"scripts/model.py": "try:\n    import net\nexcept ImportError:\n    net = None\n", "net.py": NET})
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path[1:]])  # as of `python -m autotune`

    assert digest_of("scripts/model.py") == own("scripts/model.py")


def test_code_counts_that_the_path_reaches_through_a_link(tmp_path, monkeypatch):
    write({"scripts/model.py": "import lib.net\n", "lib/net.py": NET})
    (tmp_path / "link").symlink_to(Path.cwd())
    with_path(monkeypatch, Path.cwd())
    before = digest_of("scripts/model.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "link") if one == str(Path.cwd()) else one for one in sys.path])

    assert modules_of("scripts/model.py") == "lib.net"
    assert digest_of("scripts/model.py") == before


def test_another_checkout_of_autotune_is_not_the_users_code(tmp_path, monkeypatch):
    write({"model.py": "from autotune.knobs import apply\n"})
    write({f"{tmp_path}/other/autotune/{name}.py": NET for name in ("__init__", "knobs")})
    monkeypatch.setattr(sys, "path", [sys.path[0], str(tmp_path / "other")])

    assert digest_of("model.py") == own()


@pytest.mark.parametrize("test", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_an_import_for_type_checkers_never_runs(test):
    write({"model.py": f"if {test}:\n    import net\nelse:\n    import other\n", "net.py": NET, "other.py": NET})

    assert modules_of("model.py") == "other"


@pytest.mark.parametrize("table", ["ROWS = [\n{}]\n", "{}", "def rows():\n    return [\n{}    ]\n"])
def test_a_long_table_is_not_parsed_to_its_end_and_counts(monkeypatch, table):
    parsed, parse = [], ast.parse
    monkeypatch.setattr(own_imports, "MOST_TEXT_BYTES", 1000)
    monkeypatch.setattr(ast, "parse", lambda text, *more, **named: parsed.append(text) or parse(text, *more, **named))
    row = "        [0.25, 0.5],\n" if "[" in table else "row(0.25, 0.5)\n"
    write({"model.py": f"import net\n{table.format(row * 1000)}", "net.py": NET})
    before = digest_of("model.py")
    write({"model.py": Path("model.py").read_text() + "# the end\n"})

    assert modules_of("model.py") == "net"
    assert max(map(len, parsed)) <= 1000
    assert difference(before, digest_of("model.py")) == "file"


def test_a_package_of_the_working_folder_that_is_installed_editable_counts(monkeypatch):
    write({"scripts/model.py": "from mine.net import Net\n", "src/mine/__init__.py": "", "src/mine/net.py": NET})
    write({"scripts/other.py": "import mine_not\n"})

    class Finder:
        """As setuptools makes one."""

        @classmethod
        def find_spec(cls, name, path=None, target=None):
            if name != "mine":
                raise RuntimeError("a finder that fails")
            return importlib.util.spec_from_file_location(name, Path("src/mine/__init__.py").absolute())

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])

    assert modules_of("scripts/model.py") == "mine.net"
    assert digest_of("scripts/other.py") == own("scripts/other.py")


@pytest.mark.parametrize("text", [b"def (:\n", b"\x00", b"\xff\xfe", b"(" * 100_000, b"'\\d'\nimport math\n"])
def test_a_file_that_does_not_parse_counts_by_its_content(text):
    write({"model.py": "import broken\n"})
    Path("broken.py").write_bytes(text)
    before = digest_of("model.py")
    Path("broken.py").write_bytes(text + b"\n# more\n")

    assert difference(before, digest_of("model.py")) == "imports"
    assert digest_of("broken.py") == own("broken.py")


def test_a_file_that_cannot_be_opened_is_left_out(monkeypatch):
    write({"model.py": "import net, other\n", "net.py": NET, "other.py": NET})
    opened = Path.open

    def refused(path, *how, **options):
        if path.name == "net.py":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *how, **options)

    monkeypatch.setattr(Path, "open", refused)

    assert modules_of("model.py") == "other"


@pytest.mark.parametrize(("bound", "value"), [("MOST_FILES", 3), ("MOST_TEXT_BYTES", 3 * len("import net0004\n"))])
def test_no_more_than_so_many_files_and_bytes_are_looked_at(monkeypatch, bound, value):
    monkeypatch.setattr(own_imports, bound, value)
    write({"model.py": "import net0000\n", **{f"net{at:04}.py": f"import net{at + 1:04}\n" for at in range(9)}})

    assert modules_of("model.py") == "net0000, net0001, net0002"


@pytest.mark.parametrize(("before", "found"), [(2, "net"), (3000, "nothing")])
def test_no_more_than_so_many_names_are_looked_up(monkeypatch, before, found):
    monkeypatch.setattr(own_imports, "MOST_NAMES", 100)
    asked, find = [], PathFinder.find_spec
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, *more: asked.append(name) or find(name, *more))
    absent = "".join(f"    import absent{at}\n" for at in range(before))
    write({"model.py": f"def model():\n{absent}    import net\n", "net.py": NET})

    assert modules_of("model.py") == found
    assert len(set(asked)) <= 100


def test_a_message_names_a_few_modules():
    names = [f"net{at}" for at in range(7)]
    write({"model.py": f"import {', '.join(names)}\n", **{f"{name}.py": NET for name in names}})

    assert modules_of("model.py") == "net0, net1, net2, net3, net4, and 2 more"


@pytest.mark.parametrize(
    ("there", "here", "expected"),
    [
        ("a+b", "a+b", ""),
        ("a", "a", ""),
        ("a", "a+b", ""),  # an earlier version knew nothing of imports
        ("a+b", "a+c", "imports"),
        ("a+b", "a", "unfound"),
        ("a+b+n:1,o:2", "a+c+n:1", "unfound"),
        ("a+b+n:1", "a+c+n:1,o:2", ""),  # what was not found there was not compared there, either
        ("a+b+n:1,o:2", "a+c+n:2", "imports"),
        ("a+b", "a+c+n:1", "imports"),  # an earlier version did not note the names
        ("a+b", "a+b+n:1", ""),
        ("a+b", "d+b", "file"),
        ("a", "d+b", "file"),
        ("", "a", "file"),
        ("a+b", "", "file"),
        ("", "", ""),
    ],
)
def test_two_digests_tell_what_differs(there, here, expected):
    assert difference(there, here) == expected


@pytest.mark.parametrize("target", ["scripts/model.py", "-- python scripts/model.py"])
def test_what_is_found_in_one_folder_only_is_named_and_the_rest_is_compared(monkeypatch, target):
    write({"scripts/model.py": "import lib.net, near\n", "scripts/near.py": NET, "lib/net.py": NET})
    with monkeypatch.context() as there:
        with_path(there, Path.cwd())
        before = digest_of(target)
    here = digest_of(target)

    assert (difference(before, here), unfound(before, here)) == ("unfound", "lib.net")
    assert difference(here, before) == ""
    write({"scripts/near.py": CHANGED})
    assert difference(before, digest_of(target)) == "imports"


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("code/model.py", "model.py"),
        ("code/model.py:build", "model.py:build"),
        ("code/model.py", "../../checkout/code/model.py"),
        ("code/model.py", "../../link/code/model.py"),
        ("code/model.py", "latest.py"),  # a link
        ("code/model.py", "{here}/model.py"),
        ("-- python code/model.py --bs {batch_size=64}", "-- python model.py --bs {batch_size=64}"),
        ("-- python code/model.py --bs {batch_size=64}", "-- python {here}/model.py --bs {batch_size=64}"),
        (
            "-- python -m torch.distributed.run --nproc-per-node 2 code/model.py 'a b'",
            "-- python -m torch.distributed.run --nproc-per-node 2 ./model.py 'a b'",
        ),
    ],
)
def test_a_target_may_be_spelled_otherwise_from_another_folder(tmp_path, monkeypatch, there, here):
    write({"code/model.py": "import net\n", "code/net.py": NET})
    (tmp_path / "link").symlink_to(Path.cwd())
    digest = digest_of(there)
    monkeypatch.chdir("code")
    Path("latest.py").symlink_to("model.py")

    assert is_same(there, digest, here.replace("{here}", str(Path.cwd())))


@pytest.mark.parametrize("target", FILES)
def test_two_paths_to_one_file_are_one_target_whatever_its_content(target):
    write({"model.py": NET})

    for path in ("./model.py", str(Path("model.py").resolve()), "../checkout/model.py"):
        assert is_same(target, sha256(b"before").hexdigest(), target.replace("model.py", path))


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("code/model.py", "copy.py"),  # of another name
        ("code/model.py", "changed/model.py"),  # of another content
        ("code/model.py", "missing/model.py"),
        ("code/model.py:build", "model.py"),
        ("code/model.py:build", "model.py:other"),
        ("code/model.py", "-- python model.py"),
        ("-- python code/model.py", "-- python model.py --lr 1"),
        ("-- python code/model.py --lr 2", "-- python model.py --lr 1"),
        ("-- python model.py --config code/other.py", "-- python model.py --config other.py"),
        ("-- python code/model.py", "-- python3 model.py"),
        ("-- python -m code.model", "-- python -m model"),
        ("torch.nn", "torch.optim"),
    ],
)
def test_another_target_is_not_taken_for_the_same(monkeypatch, there, here):
    write({"code/model.py": NET, "code/copy.py": NET, "code/changed/model.py": CHANGED, "code/other.py": NET})
    digest = digest_of(there)
    monkeypatch.chdir("code")

    assert not is_same(there, digest, here)
    assert not is_same(there, "", here)
