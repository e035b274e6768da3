"""Pages in headless Chromium: what it says of them at several widths, in light and dark, without a driver or a network.

A page is put into frames of the widths that are asked for, with a probe of ours at its beginning and its end, and
Chromium prints the document that the frames have told their findings to.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NONE = "no browser: install Debian's chromium, or Chrome, to check the page as it is seen"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--virtual-time-budget=8000",
)
DARK, LIGHT = 0, 1  # Chromium's numbers
SECONDS = 90

ERRORS = """<script>
window.found = {errors: [], refused: []};
window.addEventListener("error", function (e) { found.errors.push(String(e.message)); });
document.addEventListener("securitypolicyviolation", function (e) { found.refused.push(e.blockedURI); });
window.alert = function (words) { found.errors.push("alert " + words); };
</script>"""
PROBE = """<script>
window.addEventListener("load", function () {
  function numbers(colour) { return colour.match(/[\\d.]+/g).map(Number); }
  function light(colour) {
    return numbers(colour).slice(0, 3).map(function (c) {
      c /= 255;
      return c <= 0.03928 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4);
    }).reduce(function (sum, c, i) { return sum + c * [0.2126, 0.7152, 0.0722][i]; }, 0);
  }
  function behind(element) {
    for (var e = element; e; e = e.parentElement) {
      var colour = getComputedStyle(e).backgroundColor;
      if (numbers(colour).length === 3 || numbers(colour)[3] === 1) { return colour; }
    }
    return "rgb(255, 255, 255)";
  }
  document.querySelectorAll("details").forEach(function (each) { each.open = true; });
  var least = 99, where = "", walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    var element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.tagName === "SCRIPT") { continue; }
    var pair = [light(getComputedStyle(element).color), light(behind(element))].sort();
    var ratio = (Math.max(pair[0], pair[1]) + 0.05) / (Math.min(pair[0], pair[1]) + 0.05);
    if (ratio < least) { least = ratio; where = element.tagName + ": " + walker.currentNode.data.trim().slice(0, 40); }
  }
  found.contrast = least;
  found.contrast_at = where;
  found.width = window.innerWidth;
  found.needs = document.documentElement.scrollWidth;
  var box = document.querySelector("#probability ~ .wide");
  found.hidden = box ? box.scrollWidth - box.clientWidth : 0;
  found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  found.page = getComputedStyle(document.body).backgroundColor;
  found.fetched = performance.getEntriesByType("resource").map(function (e) { return e.name; })
    .filter(function (name) { return name.slice(0, 5) !== "data:"; });
  found.broken = Array.from(document.images).filter(function (i) { return !i.naturalWidth; }).length;
  found.pictures = document.images.length;
  found.font = parseFloat(getComputedStyle(document.body).fontSize);
  var tables = Array.from(document.querySelectorAll("table.sort"))
    .filter(function (t) { return t.tBodies[0].rows.length > 2; });
  found.sorted = tables.length === 0 ? null : (function (table) {
    function column() { return Array.from(table.tBodies[0].rows).map(function (r) { return r.cells[0].textContent; }); }
    var button = table.querySelector("th button"), before = column();
    button.focus();
    var focused = document.activeElement === button;
    button.click();
    var up = column(), state = button.parentElement.getAttribute("aria-sort");
    button.click();
    return {focused: focused, state: state, before: before, up: up, down: column()};
  })(tables[0]);
  var search = document.querySelector("input[type=search]");
  found.filtered = search === null ? null : (function (rows) {
    function shown() { return rows.filter(function (row) { return row.offsetParent !== null; }).length; }
    var every = shown(), word = rows[3].cells[0].textContent;
    search.value = word.toUpperCase();
    search.dispatchEvent(new Event("input"));
    var some = shown(), right = rows.filter(function (row) { return row.textContent.indexOf(word) >= 0; }).length;
    search.value = "";
    search.dispatchEvent(new Event("input"));
    return {label: search.getAttribute("aria-label"), every: every, some: some, right: right, again: shown()};
  })(Array.from(search.parentElement.querySelectorAll("tbody tr")));
  var cells = ["1,072", " 3", "10.2 %", "1.8 %", "-0.5", "1e-7", "", "1,07", "acc-1"];
  found.numbers = typeof number === "undefined" ? [] : cells.map(number).map(String);
  found.text = document.body.innerText;
  parent.postMessage(JSON.stringify(found), "*");
});
</script>"""
WRAPPER = """<!doctype html><meta charset="utf-8"><body>%s<pre id="found"></pre><script>
window.addEventListener("message", function (e) {
  document.getElementById("found").textContent += btoa(unescape(encodeURIComponent(e.data))) + "\\n";
});
</script><!--%s--></body>"""


@cache
def browser() -> str | None:
    """Returns Chromium's path; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def looked_at(page: Path, widths: tuple[int, ...], scheme: int, folder: Path) -> dict[int, dict[str, Any]]:
    """Returns what Chromium says of a page at each width (pixels), in a colour scheme (`DARK` or `LIGHT`).

    Args:
        page: the file.
        widths: of the frames that it is shown in.
        scheme: that the reader prefers.
        folder: for files of ours.
    """
    import base64

    text = page.read_text(encoding="utf-8")
    probed = text.replace("<head>", "<head>" + ERRORS, 1).replace("</body>", PROBE + "</body>", 1)
    assert probed.count("<script>") == text.count("<script>") + 2
    srcdoc = html.escape(probed)
    frames = "".join(f'<iframe width="{w}" height="1000" style="border:0" srcdoc="{srcdoc}"></iframe>' for w in widths)
    wrapper = folder / f"wrapper-{scheme}.html"
    wrapper.write_text(WRAPPER.replace("%s", frames, 1).replace("%s", "", 1), encoding="utf-8")
    dom = run(f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom", wrapper.as_uri())
    told = re.search(r'<pre id="found">([^<]*)</pre>', dom)
    assert told is not None, dom[-2000:]
    every = [json.loads(base64.b64decode(line)) for line in told[1].split()]
    return {each["width"]: each for each in every}


def run(*words: str) -> str:
    """Returns what Chromium prints with some options."""
    path = browser()
    assert path is not None, NONE
    done = subprocess.run([path, *FLAGS, *words], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
