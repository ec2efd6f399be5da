"""The documents tell the truth: what they link to and cite exists, and what they tell to type is understood."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SECTION = re.compile(r"^## (\d+)\. ", re.M)
CITATION = re.compile(r"\bdocs/(?P<page>[\w/-]+\.md)(?P<sections>(?:\s+(?:and )?\d+\b(?![.%]\d| %))*)")
OLD = re.compile(r"\b(theory|measurement|optuna|research) note\b|\bnote (distributed|[A-H]\d?)\b")


def _tracked(*patterns: str) -> list[Path]:
    """Files of the repository, those that are about to be added too."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


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
