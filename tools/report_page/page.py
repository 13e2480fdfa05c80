# tools/report_page/page.py — the page: HTML with its style and pictures inside, no script and
# nothing fetched, which the first line of its head forbids too. Every picture stands in it twice,
# for wide screens and narrow ones; the style shows one.
import html

from report_page.figures import FONT, NARROW, css_variables, svg_of

STYLE = """
:root{color-scheme:light dark;%(light)s}
@media(prefers-color-scheme:dark){:root{%(dark)s}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 %(font)s}
main{max-width:1080px;margin:0 auto;padding:1rem 1.2rem 3rem}
h1{font-size:1.7rem;line-height:1.2;margin:.6rem 0}
h2{font-size:1.35rem;margin:2.6rem 0 .6rem;padding-top:.6rem;border-top:2px solid var(--frame)}
h3{font-size:1.08rem;margin:1.8rem 0 .3rem}
h1,h2{overflow-wrap:anywhere}
p{margin:.4rem 0;max-width:46rem}
nav a{margin-right:1rem;display:inline-block}
a{color:var(--blue)}
.note{color:var(--muted);font-size:.92rem}
.warning{border-left:4px solid var(--orange);padding:.15rem 0 .15rem .7rem;margin:.5rem 0}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(10.2rem,1fr));gap:.6rem;
margin:1rem 0}
.facts div{border:1px solid var(--grid);border-radius:6px;padding:.45rem .7rem}
.facts b{display:block;font-size:1.15rem;line-height:1.3}
.facts span{color:var(--muted);font-size:.85rem}
figure{margin:0}
figcaption{color:var(--muted);font-size:.92rem;max-width:46rem}
svg{display:block;width:100%%;height:auto}
svg text{font-family:%(font)s}
.narrow{display:none;max-width:%(narrow)spx}
.table{overflow-x:auto;margin:.2rem 0 .6rem}
table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}
.caption{font-weight:600;font-size:.95rem;margin:1.2rem 0 0}
th,td{padding:.25rem 1.1rem .25rem 0;text-align:right;border-bottom:1px solid var(--grid);
vertical-align:top}
th{color:var(--muted);font-weight:600;vertical-align:bottom}
td{white-space:nowrap}
.text{text-align:left;min-width:3.5rem}
.long{white-space:normal}
.long{min-width:13rem}
@media(max-width:640px){.wide{display:none}.narrow{display:block}
main{padding:.6rem .7rem 2rem}h1{font-size:1.35rem}h2{font-size:1.15rem}
table{font-size:.85rem}td,th{padding-right:.7rem}.text{min-width:0}.long{min-width:7.4rem;
overflow-wrap:anywhere}}
@media print{:root{%(light)s}main{max-width:none;padding:0}nav{display:none}
.wide{display:block;max-width:760px}.narrow{display:none}
figure,tr,.facts{break-inside:avoid}h2,h3,.caption{break-after:avoid}h2{border-top:1px solid}
.table{overflow:visible}table{font-size:.75rem}.long{min-width:0}}
"""


def escaped(text):
    return html.escape(str(text).encode("utf-8", "replace").decode("utf-8"))


def paragraph(text, kind="note"):
    return f'<p class="{kind}">{escaped(text)}</p>' if text else ""


def chart_html(chart, slug):
    """Both widths of a chart; slug makes the ids of its picture its own in the page."""
    own, chart.slug = chart.slug, slug
    wide, narrow = svg_of(chart), svg_of(chart, narrow=True)
    chart.slug = own
    return (f'<figure class="chart" data-chart="{escaped(own)}"><h3>{escaped(chart.title)}</h3>'
            f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
            + (f"<figcaption>{escaped(chart.note)}</figcaption>" if chart.note else "")
            + "</figure>")


def cell_class(kind, rows, column):
    if kind not in ("text", "name"):
        return ""
    is_long = any(len(row[column]) > 40 for row in rows)
    return ' class="text long"' if is_long else ' class="text"'


def table_html(table):
    rows = table.texts()
    if not rows:
        return ""
    columns = table.columns[:table.shown_columns]
    classes = [cell_class(kind, rows, place) for place, (_, _, kind) in enumerate(columns)]
    head = "".join(f"<th{chosen}>{escaped(heading)}</th>"
                   for chosen, (_, heading, _) in zip(classes, columns))
    body = "".join("<tr>" + "".join(
        f"<td{chosen}>{escaped(text)}</td>" for chosen, text in zip(classes, row)) + "</tr>\n"
        for row in rows)
    more = len(table.rows) - len(rows)
    note = table.note + (f" {more} more rows are in the CSV file." if more else "")
    return (f'<p class="caption">{escaped(table.title)}</p><div class="table">'
            f'<table data-table="{escaped(table.slug)}" aria-label="{escaped(table.title)}">'
            f"<thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>{paragraph(note)}")


def facts_html(facts):
    return '<div class="facts">' + "".join(
        f"<div><b>{escaped(value)}</b><span>{escaped(what)}</span></div>"
        for what, value in facts) + "</div>"


def section_html(section):
    out = [f'<section id="{escaped(section.slug)}"><h2>{escaped(section.title)}</h2>',
           paragraph(section.about)]
    out += [paragraph(text, "warning") for text in section.warnings]
    out += [facts_html(section.facts)] if section.facts else []
    for part in section.parts:
        if hasattr(part, "make"):
            out.append(chart_html(part, f"{section.slug}-{part.slug}"))
        elif hasattr(part, "rows"):
            out.append(table_html(part))
        else:
            out.append(paragraph(part))
    return "\n".join(out) + "</section>"


def page_html(title, about, warnings, sections):
    style = STYLE % {"light": css_variables(0), "dark": css_variables(1), "font": FONT,
                     "narrow": NARROW + 60}
    links = "".join(f'<a href="#{escaped(section.slug)}">{escaped(section.title)}</a>'
                    for section in sections)
    return "\n".join((
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escaped(title)}</title><style>{style}</style></head><body><main>",
        f"<h1>{escaped(title)}</h1>", paragraph(about),
        *(paragraph(text, "warning") for text in warnings),
        f"<nav>{links}</nav>" if len(sections) > 1 else "",
        *(section_html(section) for section in sections), "</main></body></html>\n"))
