"""Names that would do harm if a page took them for markup."""

from __future__ import annotations

__all__ = [
    "HOSTILE_EXPERIMENT",
    "HOSTILE_FACTORS",
    "HOSTILE_NAMES",
    "HOSTILE_TOKEN",
    "LONG_NAME",
]

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "<b>bold</b>",
    "'-alert(1)-' ${alert(1)} %3Cscript%3E",
    "</script></style></textarea></title><svg onload=alert(1)>",
    "=cmd|'/c calc'!A1",
    "שלום עולם (abc) 123",
    "w" * 200,
    "🦊 fox & 🎉 party &amp; &lt;i&gt;",
)
HOSTILE_FACTORS = {
    "<i>headline</i>": ["<script>alert(2)</script>", "{{7*7}}"],
    '"><u>picture</u>': ["<img src=x onerror=alert(3)>", "x" * 120],
}
HOSTILE_EXPERIMENT = '"><img src=x onerror=alert(4)> & {{7*7}}'
HOSTILE_TOKEN = "<img src=x onerror=alert(5)> {{7*7}}"
LONG_NAME = "n" * 100
