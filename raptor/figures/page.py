"""A table of text as one HTML page that asks nothing of the network."""

from __future__ import annotations

import re

import pandas as pd

STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; }
table { border-collapse: collapse; }
th { text-align: left; border-bottom: 2px solid #444; vertical-align: bottom; }
td { border-bottom: 1px solid #ddd; white-space: nowrap; }
th, td { padding: .3em .8em .3em 0; font-variant-numeric: tabular-nums; }
"""


def page(rows: pd.DataFrame) -> str:
    """`rows` (text, headers as column names) as a page; the text is escaped."""
    table = rows.to_html(index=False, border=0, na_rep="–", justify="unset")
    table = table.replace("<th>", '<th scope="col">')
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<style>{STYLE}</style></head>\n<body>\n{table}\n</body>\n</html>\n"
    )


def table_of(page: str) -> str:
    """The table of a page that `page` made, for another page to hold."""
    return re.search(r"<table.*</table>", page, re.S).group()
