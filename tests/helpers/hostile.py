"""Names that would do harm if a page or a table took them for its own."""

HOSTILE = "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "{{ 7 * 7 }}", "a\u202eb\x07"
