"""Takes `decisions/`, which lies beside `docs/`, into the site: MkDocs reads one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DECISIONS = Path(__file__).parent.parent / "decisions"


def on_files(files: Any, config: Any) -> Any:
    """Add every decision as a page."""
    from mkdocs.structure.files import File

    for path in sorted(DECISIONS.glob("*.md")):
        files.append(File.generated(config, f"decisions/{path.name}", content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links that leave `docs/` for `decisions/` stay in the site."""
    up = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"]({up}../decisions/", f"]({up}decisions/")
