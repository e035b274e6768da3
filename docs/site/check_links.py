"""Checks every link of the built pages: python docs/site/check_links.py build/docs/html.

Links within the site must lead to a file that is there and, with #, to a place in it. Addresses of other sites are not
fetched, so that it works without network: only their form is checked, and that they say https.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


class Page(HTMLParser):
    """The links of a page and the places in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = [], {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name in ("id", "name") and tag != "meta" and value:
                self.places.add(value)


def faults(root):
    """Returns a sentence for every link that leads nowhere, and how many were looked at, within and outside."""
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(root.rglob("*.html"))
        if "_static" not in path.parts
    }
    found, inside, outside = [], 0, set()
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                outside.add(link)
                wrong = None if parts.scheme in ("data", "mailto") else wrong_address(parts)
            else:
                inside += 1
                wrong = wrong_place(path, parts, pages, root)
            if wrong:
                found.append(f"{path.relative_to(root)}: {link}: {wrong}")
    return sorted(set(found)), inside, len(outside)


def wrong_address(parts):
    """Returns what is wrong with the address of another site, or None."""
    if parts.scheme != "https":
        return f"must begin with https, got {parts.scheme or 'nothing'}"
    return None if HOST.fullmatch(parts.hostname or "") else "has no host"


def wrong_place(path, parts, pages, root):
    """Returns what is wrong with a link within the site, or None."""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(root) or not target.is_file():
        return "no such file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
        return "no such place in the page"
    return None


def main():
    """Prints every fault and ends with exit code 1 where there is one."""
    root = Path(sys.argv[1]).resolve()
    found, inside, outside = faults(root)
    print("\n".join(found), file=sys.stderr)
    print(f"{inside:,} links within the site followed, {outside} other addresses of good form (not fetched)")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
