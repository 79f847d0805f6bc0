"""Charts: drawn from records of every form, and each of those kept is on a page."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from make_charts import CHARTS, draw

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "scripts" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shortened(path):
    """A kept record with few of its results, graphs, forms and runs."""
    record = json.loads(path.read_text("utf-8"))
    for name in ("results", "summary"):
        if name in record:
            record[name] = record[name][::9]
    for name in ("graphs", "forms"):
        if name in record:
            record[name] = dict(list(record[name].items())[:2])
    return record


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_drawn_from_its_records(name, tmp_path):
    for path in RESULTS.glob(f"{CHARTS[name][0]}.json"):
        (tmp_path / path.name).write_text(json.dumps(shortened(path)))
    assert draw(tmp_path, tmp_path) == [tmp_path / f"{name}.png"]
    with Image.open(tmp_path / f"{name}.png") as image:
        image.load()
        assert image.format == "PNG"
        assert image.width > 600
        assert len(image.convert("RGB").getcolors(1 << 20)) > 2


def test_pages_show_every_chart():
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"!\[[^\]]*\]\((?!\w+:)([^)]+)\)", page.read_text("utf-8"))
    }
    assert all(path.is_file() for path in shown)
    kept = set(RESULTS.glob("*.png"))
    assert kept == {RESULTS / f"{name}.png" for name in CHARTS}
    assert kept <= shown
