"""How reports look: on screens, light and dark, and on paper."""

__all__ = ["PAPER", "SCREEN"]

_SHAPES = """
* { box-sizing: border-box; }
body { margin: 0 auto; color: var(--ink); background: var(--ground); }
h1, h2, h3 { line-height: 1.25; overflow-wrap: anywhere; }
p, li, dd, figcaption { overflow-wrap: anywhere; }
.lead { font-size: 1.2em; line-height: 1.4; margin: 0.8em 0 1.2em; }
.facts { display: flex; flex-wrap: wrap; gap: 0.7em 2em; margin: 1em 0; }
.facts dt { font-size: 0.8em; color: var(--quiet); }
.facts dd { margin: 0; }
.note { padding: 0.5em 0.8em; border-left: 4px solid var(--line); background: var(--card); }
.note.ok { border-color: #1a7f4b; }
.note.warn { border-color: #b57500; }
.note.fail { border-color: #c0262d; }
.small, figcaption, footer { font-size: 0.85em; color: var(--quiet); }
.table { overflow-x: auto; margin: 1em 0 0.4em; }
table { border-collapse: collapse; font-size: 0.9em; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4em; color: var(--quiet); }
th, td { padding: 0.25em 0.8em 0.25em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; min-width: 8em; max-width: 30em; }
th:last-child, td:last-child { padding-right: 0; }
.r { text-align: right; min-width: 0; }
.short { min-width: 0; }
td.r, td.short, tbody .short { white-space: nowrap; }
thead th { vertical-align: bottom; border-bottom: 2px solid var(--quiet); max-width: 9em;
  overflow-wrap: break-word; }
tbody th { font-weight: 500; }
figure { margin: 1em 0; }
img { display: block; width: 100%; max-width: 52rem; height: auto; background: #fff; }
figcaption { margin-top: 0.4em; }
pre { padding: 0.7em 1em; background: var(--card); white-space: pre-wrap; overflow-wrap: anywhere;
  font-size: 0.85em; }
.long { columns: 3; }
footer { margin-top: 3em; border-top: 1px solid var(--line); }
"""

_PRINTED = """
@page { margin: 16mm 15mm 18mm; @bottom-right { content: counter(page) " / " counter(pages);
  font: 9pt system-ui, sans-serif; color: #555; } }
"""

_UNCUT = """
  body { max-width: none; margin: 0; padding: 0; font-size: 10pt; }
  h2 { margin-top: 1.6em; }
  h2, h3, caption, .lead { break-after: avoid; }
  .table { overflow: visible; }
  table { max-width: 100%; }
  thead { display: table-header-group; }
  tr, figure, img, pre:not(.long), .whole, .note, .facts, li { break-inside: avoid; }
  figure img { max-width: 100%; max-height: 105mm; object-fit: contain; object-position: left; }
  thead { break-after: avoid; }
  tbody tr:nth-child(-n+2) { break-before: avoid; }
  p { orphans: 3; widows: 3; }
  .appendix { break-before: page; }
"""

_LIGHT = "--ink: #1b1f24; --ground: #fff; --quiet: #57606a; --line: #d5d9de; --card: #f4f6f8;"
_DARK = "--ink: #e6e8eb; --ground: #14171a; --quiet: #a3abb4; --line: #3a4149; --card: #1f242a;"
_BLACK = "--ink: #000; --ground: #fff; --quiet: #444; --line: #bbb; --card: #fff;"

SCREEN = f"""
:root {{ {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }}
  img {{ padding: 0.5em; border-radius: 6px; }} }}
{_SHAPES}
body {{ font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; padding: 1.5rem 1rem 3rem; }}
h2 {{ margin-top: 2.4em; padding-bottom: 0.2em; border-bottom: 1px solid var(--line); }}
{_PRINTED}
@media print {{
  :root {{ {_BLACK} }}
  img {{ padding: 0; }}
{_UNCUT}}}
"""

PAPER = f"""
:root {{ {_BLACK} }}
{_SHAPES}
body {{ font: 10pt/1.45 system-ui, sans-serif; max-width: 180mm; padding: 8mm 0; }}
h1 {{ font-size: 20pt; }}
h2 {{ font-size: 13.5pt; margin-top: 1.6em; border-bottom: 0.5pt solid #000; }}
h3 {{ font-size: 11pt; }}
.note, pre {{ border: 0.5pt solid #bbb; }}
.note {{ border-left-width: 3pt; }}
{_PRINTED}
@media print {{
{_UNCUT}}}
"""
