"""The pages of docs/compatibility: what they promise to list is listed, and their tables say what they mean."""

from pathlib import Path

import pytest

from tools import catalogue
from tools.generate import compatibility


@pytest.mark.parametrize("product", compatibility.COMPLETE)
def test_every_row_of_these_areas_is_shown_or_different_or_missing(product: str) -> None:
    told = compatibility.table(product)
    listed = {*compatibility.shown(), *told["different"], *told["missing"]}
    rows = [row for row in catalogue.rows().values() if row.product == product]
    asked = {row.id for row in rows if row.area in compatibility.COMPLETE[product]}
    assert asked
    assert sorted(asked - listed) == []


@pytest.mark.parametrize("product", compatibility.TABLES)
def test_what_is_listed_says_how_in_a_sentence_and_leads_to_rows_that_are_there(product: str) -> None:
    told = compatibility.table(product)
    for part in told.values():
        for id, text in part.items():
            assert text == text.strip(), id
            assert text.endswith((".", "!")), id
            named = [word.strip("().,:;") for word in text.split()]
            ids = [word for word in named if word.count("-") == 2 and word.partition("-")[0] in catalogue.PRODUCTS]
            assert catalogue.unknown(ids) == [], id
            assert id not in ids, id


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[different]\n", "has the parts"),
        ("[different]\n[missing]\n[other]\n", "has the parts"),
        ('[different]\nUM-DEST-A99 = "x."\n[missing]\n', "not in the catalogue: UM-DEST-A99"),
        ('[different]\nEMS-DEST-A01 = "x."\n[missing]\n', "not of Universal Messaging: EMS-DEST-A01"),
    ],
)
def test_a_table_that_means_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, fault: str
) -> None:
    (tmp_path / "table.toml").write_text(text)
    monkeypatch.setitem(compatibility.TABLES, "UM", str(tmp_path / "table.toml"))
    with pytest.raises(ValueError, match=fault):
        compatibility.table("UM")
