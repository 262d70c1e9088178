"""A run's page: what it shows, that data cannot break it, and how it looks in a browser."""

import html.parser
import io
import json
import re

import numpy as np
import PIL.Image
import pytest
import soundfile

from multimodel import UserError
from multimodel.cli import run_command
from multimodel.training.report import CSS, write_report
from tests.chromium import Chromium, find

EVIL = "<script>alert('x')</script> & \"quoted\" </style>"
TASKS = {"seen": "image", "heard": "audio", "read": "text"}


def attention(pieces, sources, grid=None):
    weights = np.random.default_rng(0).dirichlet(np.ones(len(sources)), len(pieces)).round(4).tolist()
    return {"pieces": pieces, "sources": sources, "grid": grid, "weights": weights}


def sample(**changes):
    record = {"input": "test[3]", "target": "a cat", "output": "a dog", "score": -1.25, "right": False}
    return record | dict.fromkeys(("picture", "clip", "spectrogram", "attention")) | changes


SAMPLES = {
    "seen": sample(
        picture="seen.png", attention=attention(["a", " dog", "</s>"], [f"1, {i}" for i in range(4)], [2, 2])
    ),
    "heard": sample(clip="heard.wav", spectrogram="heard.png", attention=attention(["a"], ["0.00 s", "0.10 s"])),
    "read": sample(input=EVIL, target=EVIL, output=EVIL, right=True, attention=attention([EVIL, "</s>"], [EVIL] * 30)),
}


def logged(step, **changes):
    each = {name: dict.fromkeys(TASKS, value) for name, value in {"loss": 9 / step, "accuracy": 0.5}.items()}
    used = {
        "examples": dict.fromkeys(TASKS, 40 * step),
        "tokens": dict.fromkeys(TASKS, 0),
        "epochs": {"seen": 2.5, "heard": 1, "read": 1},
    }
    load = {"encoder_experts": {"seen": [0.75, 0.25], "read": [0.1, 0.9]}}
    padding = {"seen": {}, "heard": {"inputs": 0.62}, "read": {"inputs": 0.25, "targets": 0.5}}
    rest = {"step": step, "seconds": 2.0 * step, "learning_rate": 1e-3, "padding": padding, "expert_load": load}
    return each | used | rest | changes


def scores(value, baseline):
    return {"split": "test", "examples": 20, "exact": value, "bleu": 80.5, "baseline": {"exact": baseline, "bleu": 0.0}}


def write_run(folder, history, metrics=None, **changes):
    """A run's folder without its model."""
    tasks = {name: {"input_modality": kind, "target_modality": "text"} for name, kind in TASKS.items()}
    run = {
        "recipe": "tiny",
        "status": "finished",
        "seed": 7,
        "settings": {"steps": 20, "betas": [0.9, 0.98], "rates": dict.fromkeys(TASKS, 1)},
        "parameters": {"total": 2_154_762, "body": 1000},
        "tasks": tasks,
        "versions": {"keras": "3.15.1"},
        "left_out": {"seen": {"train": {"unusable": 2}, "test": {"too long": 1}}},
        "something new": 1,
    }
    (folder / "samples").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run | changes))
    (folder / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in history))
    if metrics:
        (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of three tasks with samples."""
    metrics = {"step": 20, "seconds": 40.0, "peak_memory_mb": 2900, "tasks": {}, "usage": {}}
    metrics["tasks"] = {"seen": scores(0.9, 0.1), "heard": scores(0.8, 0.2), "read": scores(0.625, 0.125)}
    history = [logged(step, surprise={"a": 1}) for step in (5, 10, 15, 20)]
    made = write_run(tmp_path_factory.mktemp("report") / "run", history, metrics)
    PIL.Image.effect_noise((32, 24), 90).save(made / "samples" / "seen.png")
    PIL.Image.effect_noise((20, 64), 90).save(made / "samples" / "heard.png")
    soundfile.write(made / "samples" / "heard.wav", np.zeros(800), 8000)
    for task, record in SAMPLES.items():
        (made / "samples" / f"{task}.jsonl").write_text(json.dumps(record) + "\n")
    left_out = {"task": "seen", "split": "train", "row": 3, "kind": "unusable", "path": EVIL, "reason": "broken"}
    (made / "left_out.jsonl").write_text(json.dumps(left_out) + "\n")
    write_report(made)
    return made


class Page(html.parser.HTMLParser):
    """The elements `[(tag, attributes)]` and the text of a page."""

    def __init__(self, file):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def test_all_parts_are_there(folder):
    page = Page(folder / "report.html")
    ids = [attributes["id"] for attributes in page.all("section")]
    assert ids == ["scores", "curves", "experts", "data", "examples", "settings"]
    assert [attributes["href"] for attributes in page.all("a")] == [f"#{name}" for name in ids]
    for shown in (
        "0.625",
        "80.5",
        "2.15 million",
        "0.50",
        "2.9 GB",
        "90%",
        "62%",
        "1,000",
        "0.9, 0.98",
        "3.15.1",
        "broken",
    ):
        assert shown in page.text, shown
    assert len(page.all("polyline")) == 2 * len(TASKS) + 1
    assert len(page.all("audio")) == 1
    assert page.text.count("✗ wrong") == 2
    assert page.text.count("✓ right") == 1


def test_each_picture_says_what_it_is(folder):
    page = Page(folder / "report.html")
    titled = page.text.count("at step 20")  # the title of a curve
    described = [attributes for attributes in page.all("svg") if attributes.get("aria-label")]
    hidden = [attributes for attributes in page.all("svg") if attributes.get("aria-hidden")]
    assert len(page.all("svg")) == titled + len(described) + len(hidden)
    assert any(attributes["aria-label"].startswith("dog: looks most at row ") for attributes in described)
    assert [tag[1] for tag, _ in page.elements if tag in ("h1", "h2", "h3")][:3] == ["1", "2", "3"]


def test_data_appears_as_text(folder):
    page = Page(folder / "report.html")
    assert not page.all("script")
    assert page.text.count(EVIL) >= 3
    assert EVIL in page.text.split("broken")[0]  # the path of what was left out


def test_the_page_needs_no_other_file(folder):
    file = folder / "report.html"
    page = Page(file)
    links = [value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href")]
    assert sum(link.startswith("data:") for link in links) == 3
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "http" not in file.read_text(encoding="utf-8")
    assert "url(" not in file.read_text(encoding="utf-8")


def test_a_curve_lies_where_its_values_are(folder):
    points = Page(folder / "report.html").all("polyline")[0]["points"]
    steps, losses = zip(*(map(float, point.split(",")) for point in points.split()), strict=True)
    assert np.allclose(np.diff(steps), 62.5, atol=0.2)
    assert np.allclose(90 - np.array(losses), (90 - losses[0]) * np.array([1, 1 / 2, 1 / 3, 1 / 4]), atol=0.2)


def test_a_run_that_failed_says_so(tmp_path):
    page = Page(write_report(write_run(tmp_path / "run", [], status="failed", reason=f"ValueError: {EVIL}")))
    assert f"ValueError: {EVIL}" in page.text
    assert "There are no scores" in page.text
    assert "There are no curves" in page.text
    assert "0 of 20" in page.text


def test_lines_that_are_broken_or_not_finite_are_passed_over(tmp_path):
    diverged = dict.fromkeys(TASKS, float("nan"))
    folder = write_run(tmp_path / "run", [logged(5), logged(10), logged(15, loss=diverged)], status="failed")
    with (folder / "history.jsonl").open("a") as lines:
        lines.write('{"step": 20, "lo')
    page = Page(write_report(folder))
    assert [len(line["points"].split()) for line in page.all("polyline")[:2]] == [2, 3]
    assert "nan," not in (folder / "report.html").read_text()


def test_validation_resumption_and_recovery_are_shown(tmp_path):
    held_out = [{"step": step, "validation": {"seen": {"exact": step / 20}}} for step in (10, 20)]
    recovered = [
        {"step": 15, "task": f"read{EVIL}", "loss": "nan", "restored": 10, "passed_over": [14], "examples": {"14": [3]}}
    ]
    history = [logged(5), logged(10), held_out[0], logged(15), logged(15), logged(20), held_out[1]]
    page = Page(write_report(write_run(tmp_path / "run", history, resumed_at=[10], recovered=recovered)))
    assert page.text.count("held-out exact") == 2  # the caption, and the title of the curve
    assert "held-out exact: 0.5 at step 10, 1 at step 20" in page.text
    marks = [line for line in page.all("line") if line.get("class") == "mark"]
    assert len(marks) == 2 * (2 * len(TASKS) + 2)
    told = f"step 15, task read{EVIL}, a loss of nan: back to step 10, batch 14 passed over; worst examples train[3]"
    assert told in page.text
    assert len(page.all("polyline")[0]["points"].split()) == 4  # step 15 was done twice and counts once


def test_many_experts_and_many_points_stay_small(tmp_path):
    load = {"encoder_experts": {task: [1 / 240] * 240 for task in TASKS}}
    folder = write_run(tmp_path / "run", [logged(step, expert_load=load) for step in range(1, 3000)])
    file = write_report(folder)
    assert max(len(line["points"].split()) for line in Page(file).all("polyline")) < 500
    assert file.stat().st_size < 200_000


def test_the_command_writes_it_again(folder, capsys):
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert run_command(["report", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert (folder / "report.html").read_bytes() == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    folder = write_run(tmp_path / "run", [])
    (folder / "report.html").mkdir()
    with pytest.raises(UserError, match=r"Received: '.*report.html' \(Is a directory\)"):
        write_report(folder)


def luminance(colour):
    """Relative luminance of `#rrggbb`, by WCAG 2.2."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark", "print"])
def test_text_has_the_contrast_that_wcag_asks_for(scheme):
    block = re.findall(r":root {(.*?)}", CSS.read_text(), re.DOTALL)[scheme]
    colours = dict(re.findall(r"--(\w+): (#\w{6});", block))
    writing = ("text", "muted", "accent", "second", "third", "right", "wrong")
    for pair in [(name, ground) for name in writing for ground in ("page", "card")] + [("text", "heat")]:
        lower, higher = sorted(luminance(colours[name]) for name in pair)
        assert (higher + 0.05) / (lower + 0.05) >= 4.5, pair


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find() is None:
        pytest.skip("no chromium on this machine")
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_follows_the_colour_scheme(folder, browser, width, scheme):
    browser.show(folder / "report.html", width, scheme)
    assert browser.value("innerWidth") == width
    assert browser.value("document.scrollingElement.scrollWidth") == width
    outside = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroller, .unseen') && "
    outside += "(e.getBoundingClientRect().right > innerWidth || e.getBoundingClientRect().left < 0)).length"
    assert browser.value(outside) == 0
    pixels = np.asarray(PIL.Image.open(io.BytesIO(browser.screenshot())).convert("L"))
    assert pixels.shape[1] == width
    background = pixels[:, 2]  # a column of the margin
    assert (background > 235).all() if scheme == "light" else (background < 30).all()
    assert 0.02 < np.mean(np.abs(pixels.astype(int) - background[0]) > 60) < 0.5  # something is written on it


def test_it_is_printed_on_white(folder, browser):
    browser.show(folder / "report.html", 800, "dark", media="print")
    pixels = np.asarray(PIL.Image.open(io.BytesIO(browser.screenshot())).convert("L"))
    assert (pixels[:, 2] == 255).all()
    assert browser.value("getComputedStyle(document.querySelector('audio')).display") == "none"
