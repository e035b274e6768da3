"""The first line of a table in text: names of columns, or a row that has none above it."""

from __future__ import annotations

import pytest

from calirare import InputError
from calirare._util.text_tables import read_text


@pytest.fixture
def table(tmp_path):
    def write(text, name="t.csv"):
        (tmp_path / name).write_text(text)
        return read_text(tmp_path / name)

    return write


@pytest.mark.parametrize(
    "rows",
    [
        "0,1.5,US,1\n1,0.5,DE,0\n2,2.5,US,0\n3,1,DE,1\n",
        "ann,1.5,US,fraud\nbob,0.5,DE,ok\ncy,2.5,US,ok\ndee,1.5,FR,fraud\n",
        "1.5,2.5\n0.5,3.5\n",
        "ann;bob;2024-01-01\nbob;cy;2024-01-02\n",
    ],
)
def test_a_first_line_that_is_a_row_is_refused(table, rows):
    with pytest.raises(InputError, match=r"t.csv: .* got .* write a line with the names of the columns above"):
        table(rows)


@pytest.mark.parametrize(
    "text",
    [
        "id,0.5\n1,2.5\n2,0.5\n",
        "0,1,2\n0,1,2\n1,0,2\n",
        "country,2019,2020\nUS,3,2020\nDE,4,5\n",
        "name,0.25,0.5\na,3.5,4.5\nb,4.5,0.5\n",
        "user,item\nuser,a\nann,a\n",
        "word,2024-01-01\na,3\nb,4\n",
        "a,b\n",
    ],
)
def test_names_of_columns_are_no_row(table, text):
    assert list(table(text).columns) == text.split("\n", 1)[0].split(",")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["amount, EUR", "a; b", "a\tb", 'the "a", b'])
def test_a_name_in_quotes_may_hold_what_separates_cells(table, separator, name):
    quoted = '"' + name.replace('"', '""') + '"'
    for names in ((quoted, "label"), ("label", quoted)):
        lines = [separator.join(names), separator.join("12"), separator.join("34")]
        found = table("\n".join(lines) + "\n", "t.tsv" if separator == "\t" else "t.csv")
        assert sorted(found.columns) == sorted([name, "label"])
        assert found.to_numpy().tolist() == [[1, 2], [3, 4]]
