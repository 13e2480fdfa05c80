# tests/tools/check_report_page.py — a page of tools/report in headless Chromium. A person calls
# it, and no test: Chromium is 100 MB, and not everywhere.
#
#   apt-get install chromium
#   tools/report RUN... -o report.html
#   python3 tests/tools/check_report_page.py report.html pictures/
#
# Says what the console says of the page; and at 360 and 1600 pixels, light and dark, whether
# each chart is drawn once, its text is at least so large as can be read and inside of its
# picture, and the page is no wider than the screen. The pictures are to be looked at.
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SMALLEST_TEXT = 9.5  # pixels
WIDTHS = (360, 1600)
MEASURE = """
const frame = document.querySelector('iframe');
function texts(name, svg, box, scale, found) {
  for (const text of svg.querySelectorAll('text')) {
    const place = text.getBoundingClientRect();
    const size = scale * parseFloat(getComputedStyle(text).fontSize);
    const what = name + ': "' + text.textContent + '" ';
    if (size < SMALLEST) found.push(what + 'is ' + size.toFixed(1) + ' high');
    if (place.left < box.left - 2 || place.right > box.right + 2 ||
        place.top < box.top - 2 || place.bottom > box.bottom + 2) found.push(what + 'is cut');
  }
}
function measure() {
  const page = frame.contentDocument, whole = page.documentElement, found = [];
  const figures = page.querySelectorAll('figure.chart');
  if (whole.scrollWidth > frame.clientWidth + 1)
    found.push('the page is ' + whole.scrollWidth + ' pixels wide');
  for (const figure of figures) {
    const name = figure.dataset.chart;
    const seen = [...figure.querySelectorAll('svg')].filter(
      svg => svg.getBoundingClientRect().width > 0);
    if (seen.length != 1) {
      found.push(name + ': ' + seen.length + ' pictures are seen');
      continue;
    }
    const box = seen[0].getBoundingClientRect();
    if (box.width < 280 || box.height < 60)
      found.push(name + ': is ' + box.width + ' x ' + box.height);
    if (seen[0].querySelectorAll('path, use').length < 5) found.push(name + ': is empty');
    texts(name, seen[0], box, box.width / seen[0].viewBox.baseVal.width, found);
  }
  document.title = JSON.stringify({charts: figures.length, height: whole.scrollHeight,
                                   found: found});
}
frame.addEventListener('load', measure);
if (frame.contentDocument && frame.contentDocument.readyState == 'complete') measure();
""".replace("SMALLEST", str(SMALLEST_TEXT))


def chromium(scratch, dark, *arguments):
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser",
                                                   "google-chrome"))), None)
    if program is None:
        sys.exit("no chromium here: apt-get install chromium")
    theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--enable-logging=stderr", f"--user-data-dir={scratch}/profile", *theme, *arguments],
        check=True, capture_output=True, text=True, timeout=180)
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


def wrapper(page, width, height, script):
    """The page in a frame: a window of Chromium is never as narrow as a phone's."""
    text = re.sub(r"<meta http-equiv[^>]*>", "", page)  # which forbids scripts, also the frame's
    return ("<!DOCTYPE html><meta charset=utf-8><meta name=color-scheme content='light dark'>"
            "<body style='margin:0'>"
            f"<iframe style='border:0;width:{width}px;height:{height}px' "
            f"srcdoc=\"{html.escape(text)}\"></iframe><script>{script}</script>")


def check(page, name, width, dark, scratch, pictures):
    frame = Path(scratch) / "frame.html"
    frame.write_text(wrapper(page, width, 4000, MEASURE), "utf-8")
    dom, _ = chromium(scratch, dark, "--virtual-time-budget=8000", "--dump-dom",
                      f"--window-size={max(width, 500)},4000", f"file://{frame}")
    title = re.search(r"<title>(\{.*?\})</title>", dom, re.S)
    if title is None:
        return ["nothing could be measured"]
    result = json.loads(html.unescape(title.group(1)))
    height = min(result["height"], 16000)
    frame.write_text(wrapper(page, width, height, ""), "utf-8")
    picture = pictures / f"{name}-{width}-{'dark' if dark else 'light'}.png"
    chromium(scratch, dark, f"--window-size={max(width, 500)},{height}",
             f"--screenshot={picture}", f"file://{frame}")
    print(f"{width} pixels, {'dark' if dark else 'light'}: {result['charts']} charts, "
          f"{len(result['found'])} findings, {picture}")
    return result["found"]


def main(path, directory):
    page, pictures = Path(path).resolve(), Path(directory).resolve()
    pictures.mkdir(parents=True, exist_ok=True)
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        _, console = chromium(scratch, False, f"--screenshot={scratch}/page.png",
                              f"file://{page}")
        found += console
        for width in WIDTHS:
            for dark in (False, True):
                found += check(page.read_text("utf-8"), page.stem, width, dark, scratch,
                               pictures)
    for line in dict.fromkeys(found):
        print(f"  {line}")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: check_report_page.py PAGE.html DIRECTORY_FOR_PICTURES")
    sys.exit(main(*sys.argv[1:]))
