"""The documents tell the truth: what they link to and cite exists, and what they tell to type is understood."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from autotune.cli.app import app
from tests.commandline import run_here

ROOT = Path(__file__).parent.parent
SECTION = re.compile(r"^## (\d+)\. ", re.M)
CITATION = re.compile(r"\bdocs/(?P<page>[\w/-]+\.md)(?P<sections>(?:\s+(?:and )?\d+\b(?![.%]\d| %))*)")
OLD = re.compile(r"\b(theory|measurement|optuna|research) note\b|\bnote (distributed|[A-H]\d?)\b")


@functools.cache
def _tracked(*patterns: str) -> list[Path]:
    """Files of the repository, also those about to be added; in a copy without its history, all that is there."""
    if not (ROOT / ".git").exists():
        found = [path for pattern in patterns or ("*",) for path in ROOT.rglob(pattern) if path.is_file()]
        return [path for path in found if not {".venv", "build"} & set(path.relative_to(ROOT).parts)]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


DOCUMENTS = [path for path in _tracked("*.md") if path.name != "CHANGELOG.md"]
CODE = [path for path in _tracked("*.py", "*.md", "*.sh", "*.toml") if path.name != Path(__file__).name]


def test_every_note_that_a_comment_cites_exists_with_its_sections():
    missing = []
    for path in CODE:
        for cited in CITATION.finditer(path.read_text()):
            page = ROOT / "docs" / cited["page"]
            held = SECTION.findall(page.read_text()) if page.is_file() else None
            wanted = re.findall(r"\d+", cited["sections"])
            if held is None or set(wanted) - set(held):
                missing.append((path.relative_to(ROOT).as_posix(), cited[0]))

    assert missing == []


def test_links_out_of_the_site_lead_to_decisions_which_it_takes_along():
    outside = [found for path in _tracked("docs/*.md") for found in re.findall(r"\]\((\.\./[^)]*)\)", path.read_text())]

    assert outside
    assert [link for link in outside if not re.match(r"(\.\./)+decisions/", link)] == []


def test_every_page_of_the_notes_is_cited_somewhere():
    text = "\n".join(path.read_text() for path in CODE if "docs" not in path.relative_to(ROOT).parts)
    cited = {
        (found["page"], number) for found in CITATION.finditer(text) for number in re.findall(r"\d+", found["sections"])
    }
    pages = [path for path in _tracked("docs/notes/*.md") if path.name != "README.md"]

    assert pages
    assert [path.name for path in pages if not any(page == f"notes/{path.name}" for page, _ in cited)] == []


def test_no_comment_cites_a_note_that_is_not_here():
    old = {path.relative_to(ROOT).as_posix(): OLD.findall(path.read_text()) for path in CODE}

    assert {name: found for name, found in old.items() if found} == {}


@pytest.mark.parametrize("number", [1, 99])
def test_a_citation_is_read_with_its_section(number):
    (found,) = CITATION.finditer(f"so many (docs/notes/timing.md {number}); and 3 % more")

    assert (found["page"], found["sections"].strip()) == ("notes/timing.md", str(number))


def _anchors(page: Path) -> set[str]:
    """What may follow `#` in a link to this page: its headings, as GitHub and MkDocs write them."""
    headings = re.findall(r"^#+ (.+)$", _without_code(page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@functools.cache
def _there() -> set[Path]:
    """What a link may lead to."""
    tracked = {path.resolve() for path in _tracked()}
    return tracked | {folder for path in tracked for folder in path.parents}


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    tracked = _there()
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_code(page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if there not in tracked or (anchor and anchor not in _anchors(there)):
            broken.append(target)

    assert broken == []


def _commands() -> list[tuple[str, str]]:
    """Every `autotune ...` line of a shell block or of a recorded session, with its page."""
    found = []
    for page in DOCUMENTS:
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S):
            start = "" if language in ("bash", "sh") else r"\$ "
            found += [
                (page.relative_to(ROOT).as_posix(), line)
                for line in re.findall(rf"^{start}((?:\.venv/bin/)?autotune .*)$", block, re.M)
                if language in ("", "bash", "sh")
            ]
    return found


COMMANDS = _commands()


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line}" for page, line in COMMANDS])
def test_the_command_line_understands_what_documents_tell_to_type(page: str, line: str) -> None:
    _, name, *words = shlex.split(line, comments=True)
    group: Any = typer.main.get_command(app)

    command = group.commands[name]
    context = command.make_context(name, words)  # parses and converts, and runs nothing

    assert context.params


def test_documents_hold_commands_at_all() -> None:
    assert {page for page, _ in COMMANDS} >= {"README.md", "docs/using-the-answer.md", "docs/knobs.md"}


READS = ("best", "show", "export", "compare", "log")  # from a recorded study: cheap, and they write nothing
CHEAP = sorted(
    {line for _, line in COMMANDS if line.split()[1] in READS and re.search(r"studies/\w+-(epyc|xeon)", line)}
)


@pytest.mark.parametrize("line", CHEAP)
def test_commands_on_recorded_studies_run(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]

    ended = run_here(ROOT, *words)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_options_in_the_text_exist(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    known = {
        name
        for command in group.commands.values()
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    inline = re.findall(r"`(?:autotune [a-z]+ )?(--[a-z][a-z0-9-]+)[^`]*`", _without_code(page.read_text()))

    assert {option for option in inline if option not in known | {"--help"}} == set()


@pytest.mark.parametrize("name", ["command_line", "messages"])
def test_the_pages_that_are_written_from_the_code_are_up_to_date(name: str) -> None:
    script = ROOT / "docs" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, script)
    assert spec and spec.loader
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)

    assert generator.PAGE.read_text() == generator.text(), "run `make docs`"


def test_every_decision_is_in_the_list() -> None:
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (ROOT / "decisions" / "README.md").read_text())

    assert listed == sorted(path.name for path in (ROOT / "decisions").glob("0*.md"))


def test_every_benchmark_is_in_the_list() -> None:
    started_by_others = {"peer_searches", "plain_loop"}
    commands = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()}
    listed = (ROOT / "benchmarks" / "README.md").read_text()

    assert {one for one in commands - started_by_others if one not in listed} == set()


def test_every_page_is_in_the_table_of_the_documents() -> None:
    listed = re.findall(r"^\| \[.*?\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text(), re.M)

    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} == {*listed}


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text()

    pages = [path.relative_to(ROOT / "docs").as_posix() for path in _tracked("docs/*.md")]
    assert [page for page in pages if f"- {page}\n" not in site] == []


def test_the_gate_is_what_contributors_run() -> None:
    gate = (ROOT / ".ci" / "run").read_text()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)

    typed = re.findall(
        r"^make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / "README.md").read_text(), re.M
    )
    assert "make lint" in gate
    assert set(typed) - set(targets) == set()
