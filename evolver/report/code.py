"""Source code as HTML: escaped and coloured by Pygments, with classes for light and dark."""

from __future__ import annotations

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import DiffLexer, PythonLexer

LIGHT_STYLE, DARK_STYLE = "default", "github-dark"


def python_html(source: str) -> Markup:
    """Return Python source as an escaped, coloured ``<div class="code">``."""
    return Markup(highlight(source, PythonLexer(), _formatter(LIGHT_STYLE)))  # noqa: S704 Pygments escapes


def diff_html(diff: str) -> Markup:
    """Return a unified diff as an escaped, coloured ``<div class="code">``."""
    return Markup(highlight(diff, DiffLexer(), _formatter(LIGHT_STYLE)))  # noqa: S704 Pygments escapes


def colours() -> Markup:
    """Return the CSS of the colours, light by default and dark where the reader wants it."""
    light = _formatter(LIGHT_STYLE).get_style_defs(".code")
    dark = _formatter(DARK_STYLE).get_style_defs(".code")
    return Markup(f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}")  # noqa: S704 constants


def _formatter(style: str) -> HtmlFormatter[str]:
    return HtmlFormatter(style=style, cssclass="code")
