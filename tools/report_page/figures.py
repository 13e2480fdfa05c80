# tools/report_page/figures.py — how every chart looks, and how it comes into the page: as SVG
# that matplotlib drew, whose colours are those of the page around it. A chart is drawn twice, for
# wide screens and for a phone's, in pixels as they will be seen, so that its text has the size of
# the page's; for light and dark it is drawn once, as each colour of the palette becomes a
# variable of CSS.
import html
import io
import re

import matplotlib

matplotlib.use("Agg")
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

WIDE, NARROW = 760, 336  # pixels
# Name: of light pages, of dark ones. No two of the light ones may be the same, as the SVG knows
# them by these alone.
PALETTE = {
    "ink": ("#2b2d30", "#e0e2e5"), "muted": ("#666b72", "#a2a8b0"),
    "frame": ("#a4a9af", "#6a7078"), "grid": ("#e4e5e1", "#2d3137"),
    "page": ("#fdfdfb", "#16181c"), "plan": ("#d9dcdf", "#41464d"),
    "blue": ("#1f6fb4", "#66b2ee"), "orange": ("#c8501e", "#f0935f"),
    "green": ("#2e8b57", "#6cc796"), "violet": ("#8b4fb0", "#c79be8"),
    "gold": ("#a8790a", "#e0b84c"), "rose": ("#b03060", "#ee85a8"),
    "teal": ("#157f8c", "#5cc4d0"), "lime": ("#7d9a2c", "#b5cf66"),
    "pink": ("#d681a4", "#f5bbd0"), "brick": ("#8e3b32", "#d98c82"),
    "plum": ("#5f3a66", "#a87fb0"), "salmon": ("#e59a86", "#f7c9bc"),
    "mauve": ("#9c6f86", "#c4a1b4"), "mist": ("#8fa9b8", "#7d97a6"),
    "grey": ("#8b9097", "#8a9098"), "wait": ("#c6c8c4", "#565b64"),
}
COLOUR = {name: light for name, (light, _) in PALETTE.items()}
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
SETTINGS = {
    "svg.fonttype": "none", "svg.hashsalt": "trireme", "font.family": "DejaVu Sans",
    "font.size": 12, "axes.titlesize": 13, "axes.labelsize": 12, "legend.fontsize": 11.5,
    "xtick.labelsize": 11.5, "ytick.labelsize": 11.5, "text.color": COLOUR["ink"],
    "axes.edgecolor": COLOUR["frame"], "axes.labelcolor": COLOUR["ink"],
    "axes.titlecolor": COLOUR["ink"], "axes.titlelocation": "left",
    "xtick.color": COLOUR["muted"], "ytick.color": COLOUR["muted"],
    "xtick.labelcolor": COLOUR["ink"], "ytick.labelcolor": COLOUR["ink"],
    "axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none",
    "axes.grid": False, "grid.color": COLOUR["grid"], "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "lines.linewidth": 1.6, "figure.dpi": 72, "path.simplify": True,
}


class Chart:
    """make(narrow) gives a Figure."""

    def __init__(self, slug, title, make, note=""):
        self.slug, self.title, self.make, self.note = slug, title, make, note
        self.drawn, self.pictures = {}, {}

    def figure(self, narrow=False):
        if narrow not in self.drawn:
            with matplotlib.rc_context(SETTINGS):
                self.drawn[narrow] = self.make(narrow)
        return self.drawn[narrow]

    def picture(self, narrow=False):
        """The figure as SVG, as matplotlib writes it."""
        if narrow not in self.pictures:
            out, figure = io.StringIO(), self.figure(narrow)
            with matplotlib.rc_context(SETTINGS):
                figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
            self.pictures[narrow] = out.getvalue()
        return self.pictures[narrow]


def new_figure(narrow, height):
    """A Figure of so many pixels height, laid out so that all text has room."""
    figure = Figure(figsize=((NARROW if narrow else WIDE) / 72, height / 72), dpi=72,
                    layout="constrained")
    # A browser's fonts may be a little wider.
    figure.get_layout_engine().set(w_pad=8 / 72, h_pad=4 / 72)
    return figure


def tip(artist, text):
    """Says text where a pointer rests on the artist."""
    artist.set_gid("tip:" + text)
    return artist


def legend_below(figure, handles, labels, narrow):
    """A legend under the axes, in as many columns as have room; the figure grows by it."""
    longest = max(len(label) for label in labels)
    room = (NARROW if narrow else WIDE) / (6.6 * longest + 40)
    columns = max(1, min(len(labels), int(room)))
    rows = -(-len(labels) // columns)
    whole = 72 * figure.get_figheight() + 18 * rows + 8
    figure.set_figheight(whole / 72)
    below = (18 * rows + 8) / whole
    figure.get_layout_engine().set(rect=(0, below, 1, 1 - below))
    figure.legend(handles, labels, loc="lower left", ncols=columns, handlelength=1.1,
                  columnspacing=1.2, handleheight=0.9, borderaxespad=0.1, labelspacing=0.35)


def svg_of(chart, narrow=False):
    """The chart as <svg> for a page."""
    return for_page(chart.picture(narrow), f"{chart.slug}-{'n' if narrow else 'w'}",
                    chart.title)


def weighted(match):
    """The size and weight of a `font:`, without the family: that is the page's."""
    is_bold = re.search("bold|[67]00", match.group(1))
    return f"font-size: {match.group(2)}" + ("; font-weight: 600" if is_bold else "")


def for_page(text, prefix, title):
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)
    text = re.sub(r"<style[^>]*>\*\{[^<]*\}</style>", "", text)
    box = re.search(r'viewBox="[^"]*"', text).group(0)
    text = re.sub(r"<svg[^>]*>", f'<svg {box} role="img" aria-label="{html.escape(title)}" '
                  'stroke-linejoin="round" stroke-linecap="butt">', text, count=1)
    text = re.sub(r'<g id="tip:([^"]*)">', r"<g><title>\1</title>", text)
    # Ids of several pictures in one page must not be the same.
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda match: f' id="{prefix}-{match.group(1)}"'
                  if match.group(1) in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r"font: ((?:[a-z]+ |[0-9]+ )*)([0-9.]+px) [^;\"]*", weighted, text)
    text = re.sub(r"; ?stroke-linejoin: (?:miter|round)|; ?stroke-linecap: (?:butt|square)", "",
                  text)
    # A hundredth of a pixel is enough of coordinates; numbers that are read stay as they are.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag.group()), text)
    text = re.sub(r"\n\s*", "\n", text)
    for name, light in COLOUR.items():
        text = text.replace(light, f"var(--{name})")
    return text


def standalone_svg(chart):
    """The chart as a file of its own, with its background and a palette for dark pages."""
    text = svg_of(chart)
    light = "".join(f"--{name}:{pair[0]};" for name, pair in PALETTE.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in PALETTE.items())
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text).groups()
    style = (f"<style>svg{{{light}}} text{{font-family:{FONT}}} "
             f"@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
             f"<title>{html.escape(chart.title)}</title>"
             '<rect width="100%" height="100%" rx="6" style="fill:var(--page)"/>')
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'style="padding:0" ')
    return re.sub(r"<svg ([^>]*)>", lambda match: head + match.group(1) + ">" + style, text,
                  count=1)


def write_png(chart, path):
    """Twice as many pixels as on a page, on the light background."""
    figure = chart.figure()
    FigureCanvasAgg(figure)
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(path, format="png", dpi=144, facecolor=COLOUR["page"])


def css_variables(theme):
    return "".join(f"--{name}:{pair[theme]};" for name, pair in PALETTE.items())
