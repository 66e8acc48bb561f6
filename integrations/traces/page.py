"""The ranking as HTML: a section for other reports, or a page of its own."""

from __future__ import annotations

from html import escape

from integrations.traces.report import HotReport, HotTarget

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ksmith hot</title>
<style>body{{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em}}
table{{border-collapse:collapse;width:100%}}td,th{{padding:.3em .6em;text-align:right;
border-bottom:1px solid #8884}}td:nth-child(2),th:nth-child(2){{text-align:left}}
code{{overflow-wrap:anywhere}}details{{text-align:left;color:#777}}
.bar{{height:4px;background:#3b82f6;border-radius:2px}}</style>
{section}</html>
"""
_COLUMNS = (
    "#", "function", "score", "saving", "open", "device", "share", "inclusive", "launches",
    "calls", "gaps", "perfect", "kernels are",
)  # fmt: skip


def render_page(report: HotReport) -> str:
    """Return a whole page, without scripts or anything from a network."""
    return _PAGE.format(section=render_section(report))


def render_section(report: HotReport) -> str:
    """Return the ranking as one ``<section>``."""
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    most = max((t.score.value for t in report.targets), default=0.0) or 1.0
    rows = "".join(_row(target, target.score.value / most) for target in report.targets)
    lost = "".join(
        f"<li>{escape(p.name)}: {p.device_us / 1e3:.3f} ms, {p.count} kernels</li>"
        for p in report.unattributed
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return (
        "<section><h2>Hot functions</h2>"
        f"<p>{report.device_us / 1e3:.3f} ms of device time over {report.span_us / 1e3:.3f} ms; "
        f"{report.unattributed_share:.1%} of it unattributed.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<ul>{lost}{notes}</ul></section>"
    )


def _row(target: HotTarget, part: float) -> str:
    kernels = "".join(
        f"<li>{escape(k.name)}: {k.device_us:.1f} us, {k.count}</li>" for k in target.kernels
    )
    shapes = "".join(
        f"<li>{escape(s.operator)}({escape(s.inputs)}): {s.count}</li>" for s in target.shapes
    )
    perfect = "–" if target.perfect_us is None else f"{target.perfect_us:.1f} us"
    cells = (
        str(target.rank),
        f"<code>{escape(target.target)}</code><div class=bar style='width:{part:.0%}'></div>"
        f"<details><summary>kernels, shapes</summary><ul>{kernels}{shapes}</ul></details>",
        f"{target.score.value:.2f}",
        f"{target.score.saving_share:.1%}",
        f"{target.score.openness:.2f}",
        f"{target.device_us:.1f} us",
        f"{target.share:.1%}",
        f"{target.inclusive_share:.1%}",
        str(target.launches),
        str(target.calls),
        f"{target.gaps_us:.1f} us",
        perfect,
        target.state.value.replace("_", " "),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
