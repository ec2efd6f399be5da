"""The probes of a study as CSV: for a spreadsheet, a data frame, or any tracker that has no exporter here."""

from __future__ import annotations

import csv
import io

from autotune.core.records import Value
from autotune.export.rows import rows
from autotune.harmless import csv_cell
from autotune.study.view import StudyView


def table(view: StudyView) -> str:
    """Header and one line per probe, as RFC 4180 has it; empty cells for what was not measured.

    Texts that a spreadsheet would compute get an apostrophe before them: error messages are the user's program's.
    """
    found = rows(view)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(found[0]) if found else ["number"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in found)
    return text.getvalue()


def _cell(value: Value) -> Value:
    return csv_cell(value) if isinstance(value, str) else value
