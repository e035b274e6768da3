"""The report's pictures under a mouse and a keyboard: what is pointed at tells its numbers, wherever it lies."""

from __future__ import annotations

import re

import pytest

from tests.helpers.browser import NONE, browser
from tests.helpers.command import succeed
from tests.helpers.pointing import opened

pytestmark = [pytest.mark.slow, pytest.mark.skipif(browser() is None, reason=NONE)]
DESK, PHONE = (1280, 900), (390, 844)
READABLE = 4.5  # contrast of text, WCAG 2.1 AA

OPEN = 'document.querySelectorAll("details").forEach(function (each) { each.open = true; })'
GROUPS = 'document.querySelectorAll("[role=radiogroup]").length'
SEEN = """(function (group, i) {
  var input = document.querySelectorAll("[role=radiogroup]")[group].querySelectorAll("input")[i];
  input.scrollIntoView({block: "center", inline: "center"});
  var box = input.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
})(%d, %d)"""
TOLD = """(function () {
  function light(colour) {
    return colour.match(/[\\d.]+/g).map(Number).slice(0, 3).map(function (c) {
      c /= 255;
      return c <= 0.03928 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4);
    }).reduce(function (sum, c, i) { return sum + c * [0.2126, 0.7152, 0.0722][i]; }, 0);
  }
  return Array.from(document.querySelectorAll(".points span")).filter(function (e) { return e.offsetHeight > 0; })
    .map(function (tip) {
      var box = tip.getBoundingClientRect(), style = getComputedStyle(tip), input = tip.parentElement.firstChild;
      var frame = tip.closest(".points").getBoundingClientRect(), ring = input.nextSibling.getBoundingClientRect();
      var pair = [light(style.color), light(style.backgroundColor)].sort();
      return {
        words: tip.textContent, label: input.getAttribute("aria-label"), focused: input === document.activeElement,
        box: [box.left, box.top, box.right, box.bottom], frame: [frame.left, frame.top, frame.right, frame.bottom],
        ring: [(ring.left + ring.right) / 2, (ring.top + ring.bottom) / 2],
        width: input.getBoundingClientRect().width,
        contrast: (Math.max(pair[0], pair[1]) + 0.05) / (Math.min(pair[0], pair[1]) + 0.05),
        cut: [tip.scrollWidth - tip.clientWidth, tip.scrollHeight - tip.clientHeight]
      };
    });
})()"""


@pytest.fixture(scope="module")
def page(hostile_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    succeed("report", "--run", hostile_run / "run", "--against", hostile_run / "run", "--out", path)
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_each_panel_tells_the_numbers_of_what_is_pointed_at(tab, page, size, dark):
    """The first point, the last and one between of each panel: next to it, or on a phone at the lower edge."""
    tab.show(page, *size, dark=dark)
    tab.value(OPEN)
    groups = tab.value(GROUPS)
    assert groups >= 3 + 1 + 4 + 3 + 3, "P(rare), the curve, the confidence, and P(rare) of both runs"
    for group in range(groups):
        last = (
            tab.value(f'document.querySelectorAll("[role=radiogroup]")[{group}].querySelectorAll("input").length') - 1
        )
        for i in sorted({0, last // 2, last}):
            tab.point(*tab.value(SEEN % (group, i)))
            (told,) = tab.value(TOLD)
            left, top, right, bottom = told["box"]
            frame = told["frame"]
            assert re.search(r"\d", told["words"])
            assert told["label"] == told["words"].replace("\n", "; ")
            assert told["contrast"] >= READABLE
            assert max(told["cut"]) <= 0, "no word is cut"
            assert frame[0] - 1 <= told["ring"][0] <= frame[2] + 1
            assert frame[1] - 1 <= told["ring"][1] <= frame[3] + 1
            assert told["width"] > 1, "each can be pointed at"
            if size == DESK:
                assert frame[0] - 1 <= left < right <= frame[2] + 1
                assert frame[1] - 1 <= top < bottom <= frame[3] + 1
                assert left - 1 <= told["ring"][0] <= right + 1
                assert not top < told["ring"][1] < bottom, "the point itself stays in sight"
            else:
                assert 0 <= left < right <= size[0]
                assert size[1] * 0.5 <= top < bottom <= size[1]
    tab.point(1, 1)
    assert tab.value(TOLD) == []


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_tab_goes_to_a_panel_and_arrow_keys_from_point_to_point(tab, page, size):
    tab.show(page, *size)
    tab.point(1, 1)
    first = 'document.querySelector("[role=radiogroup] input")'
    links = "Array.from(document.querySelectorAll('a, button, summary, input[type=search]'))"
    tab.value(f"{links}.filter(function (e) {{ return e.compareDocumentPosition({first}) & 4; }}).pop().focus()")
    told = []
    for key in ("Tab", "ArrowRight", "ArrowRight", "ArrowLeft", "Tab"):
        tab.press(key)
        (each,) = tab.value(TOLD)
        assert each["focused"]
        assert 0 <= each["ring"][1] <= size[1]
        assert 0 <= each["box"][1] < each["box"][3] <= size[1], "the page follows the focus"
        told.append(each)
    words = [each["words"] for each in told]
    assert words[1] == words[3]
    assert len({*words}) == 4
    assert told[0]["ring"][0] < told[1]["ring"][0] < told[2]["ring"][0]
    name = "document.activeElement.name"
    group = tab.value(name)
    tab.press("Tab")
    assert tab.value(name) != group, "a panel is one stop"
    names = tab.value("Array.from(new Set(Array.from(document.querySelectorAll('.points input'), (e) => e.name)))")
    assert len(names) == tab.value(GROUPS), "no two panels are one group"


def test_it_is_not_printed_and_nothing_needs_a_script(tab, page):
    text = page.read_text(encoding="utf-8")
    (script,) = re.findall("<script>.*?</script>", text, flags=re.DOTALL)
    assert "points" not in script
    tab.show(page, *DESK)
    tab.value(OPEN)
    tab.value('document.querySelector("[role=radiogroup] input").focus({focusVisible: true})')
    assert len(tab.value(TOLD)) == 1
    assert "Point at it" in tab.value("document.body.innerText")
    tab.ask("Emulation.setEmulatedMedia", media="print")
    assert tab.value(TOLD) == []
    assert "Point at it" not in tab.value("document.body.innerText")
    tab.ask("Emulation.setEmulatedMedia", media="")
