"""A run on one page: scores, curves, experts, data, examples and settings, in a file that needs no other."""

import json
import pathlib

from multimodel.errors import UserError
from multimodel.training import report_facts, report_sections
from multimodel.training.page import element, page
from multimodel.training.run import read_run

CSS = pathlib.Path(__file__).with_name("report.css")


def write_report(folder):
    """Writes `report.html` from what a run's folder holds by now, and returns its path.

    Args:
        folder: of a run; one that failed or has not ended gets a page of what is there.

    Raises:
        UserError: if it holds no readable `run.json`, or cannot be written.
    """
    folder = pathlib.Path(folder)
    run, metrics, history = read_run(folder), _read_metrics(folder), _read_history(folder)
    logged = [record for record in history if "loss" in record]
    parts = {
        "Scores": report_sections.scores(run, metrics),
        "Curves": report_sections.curves(run, history),
        "Experts": report_sections.experts(logged),
        "Data": report_facts.data(folder, run, logged),
        "Examples": report_sections.examples(folder / "samples", run),
        "Settings": report_facts.settings(run),
    }
    parts = {name: content for name, content in parts.items() if content}
    links = [element("a", name, href=f"#{name.lower()}") for name in parts]
    html = page(
        f"{run.get('recipe', folder.name)}: report of a run",
        CSS.read_text(encoding="utf-8"),
        element("header", *report_facts.head(run, metrics, logged), element("nav", *links, aria_label="Sections")),
        element("main", *(_section(name, content) for name, content in parts.items())),
    )
    file = folder / "report.html"
    try:
        file.write_text(html, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(
            f"A run's folder can be written. Received: {str(file)!r} ({error.strerror}). "
            f"Make room, or let it be written."
        ) from None
    return file


def _section(name, content):
    return element("section", element("h2", name), *content, id=name.lower())


def _read_metrics(folder):
    """`metrics.json`; nothing for a run that was not scored."""
    file = folder / "metrics.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _read_history(folder):
    """The lines of `history.jsonl` in the order of their steps; a line that a kill cut short is passed over."""
    file = folder / "history.jsonl"
    latest = {}  # a step that was done again, after a recovery, replaces what it was before
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "step" in record:
            latest[record["step"], "validation" in record] = record
    return [latest[key] for key in sorted(latest)]
