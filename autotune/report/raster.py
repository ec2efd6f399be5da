"""Converts SVG to PNG by a browser on this machine, because none of our libraries draws fonts."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

from autotune.errors import UsageError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
SPARE = 120  # pixels below the picture: the lower part of a window is never drawn (87 px, Chromium 156)
BROWSER_SECONDS = 60.0  # a cold start of a browser takes a few seconds
SIGNATURE = b"\x89PNG\r\n\x1a\n"
SIZE = re.compile(r'viewBox="0 0 ([0-9]+) ([0-9]+)"')


def png(svg: str) -> bytes:
    """Return the picture as PNG, light, two pixels for each of a chart. Raises `UsageError` without a browser."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise UsageError(
            "PNG needs a browser to draw it, and none was found here: Chromium, Chrome or Edge. One was probably never "
            "installed. Write SVG, which browsers and most programs read, or install Chromium."
        )
    found = SIZE.search(svg)
    assert found is not None, "every drawing has a view box"
    width, height = map(int, found.groups())
    sized = re.sub(r'^<svg ([^>]*?) ?width="[0-9]+"(?: height="[0-9]+")?', r"<svg \1", svg, count=1)
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        page, picture = Path(folder, "page.html"), Path(folder, "picture.png")
        page.write_text(_page(sized, width, height), encoding="utf-8")
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()  # Chromium refuses to run as root otherwise
        words = (
            browser, "--headless", *root, "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/user",
            "--force-device-scale-factor=2", f"--window-size={width},{height + SPARE}", f"--screenshot={picture}",
            page.as_uri(),
        )  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(words, capture_output=True, timeout=BROWSER_SECONDS, check=False)
        if not picture.is_file():
            raise UsageError(
                f"{browser} drew no picture. It probably cannot run without a display here. Write SVG, and convert it "
                f"where a browser runs."
            )
        return _upper(picture.read_bytes(), 2 * height)


def _upper(picture: bytes, height: int) -> bytes:
    """Return the upper rows of a PNG: each row depends only on those above it (PNG specification, 9.2)."""
    chunks, place = list[tuple[bytes, bytes]](), len(SIGNATURE)
    while place < len(picture):
        (size,) = struct.unpack_from(">I", picture, place)
        chunks.append((picture[place + 4 : place + 8], picture[place + 8 : place + 8 + size]))
        place += size + 12
    head = chunks[0][1]
    (whole,) = struct.unpack_from(">I", head, 4)
    rows = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    kept = rows[: len(rows) // whole * height]
    parts = ((b"IHDR", head[:4] + struct.pack(">I", height) + head[8:]), (b"IDAT", zlib.compress(kept)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def _page(svg: str, width: int, height: int) -> str:
    """Return a page with only the drawing: it loads nothing and runs no script."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    size = f"width:{width}px;height:{height}px"
    return (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<style>html{{color-scheme:only light}}body{{margin:0}}body>svg{{display:block;{size}}}</style>"
        f"{svg}"
    )
