"""Every command and every Python block of the README runs as it stands there."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess

import PIL.Image
import pytest

from benchmarks.serve import server
from multimodel.cli import run_command
from multimodel.quickstart import write_examples

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory, quickstart):
    """A folder with a run of two steps where the README has one of many, and with a user's files."""
    folder = tmp_path_factory.mktemp("readme")
    run = folder / "runs" / "quickstart"
    shutil.copytree(quickstart[0], run)
    write_examples(run / "examples")
    rows = [json.dumps({"quiet": f"hello {i}", "loud": f"HELLO {i}"}) for i in range(40)]
    (folder / "pairs.jsonl").write_text("\n".join(rows))
    (folder / "shout.py").write_text(next(code for code in blocks("python") if "def recipe" in code))
    for name in ("photos/cat/1", "photos/dog/2"):
        file = folder / f"{name}.png"
        file.parent.mkdir(parents=True)
        PIL.Image.effect_noise((30, 20), 90).save(file)
    return folder


def test_commands(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    commands = [line[2:] for block in blocks("console") for line in block.splitlines()]
    assert len(commands) >= 5
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "multimodel"
        if arguments[0] == "train":
            arguments[arguments.index("--steps") + 1] = "1"
        assert run_command(arguments) == 0, command


def test_python(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    found = [code for code in blocks("python") if "localhost" not in code]
    assert len(found) == 8
    for code in found:
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "(64, 64, 3)" in printed
    assert "No such file" in printed


def test_the_server_and_its_clients(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    starting, asking = blocks("sh")
    program, command, *arguments = shlex.split(starting)
    assert (program, command, arguments[-2:]) == ("multimodel", "serve", ["--port", "8501"])
    with server(*arguments[:-2]) as (address, _):
        port = re.search(r":(\d+)/", address)[1]
        (client,) = [code for code in blocks("python") if "localhost" in code]
        exec(compile(client.replace("8501", port), "README.md", "exec"), {"__name__": "readme"})
        assert capsys.readouterr().out.count("'scores': -") == 4
        if not shutil.which("curl"):
            pytest.skip("there is no curl")
        script = asking.replace("8501", port)
        result = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count('"predictions":') == 2
    assert result.stdout.count('{"outputs":{') == 1


def test_a_task_takes_under_twenty_lines(place, monkeypatch):
    monkeypatch.chdir(place)
    assert len(pathlib.Path("shout.py").read_text().splitlines()) < 20
    assert run_command(["train", "shout.py", "--steps", "2"]) == 0
    assert json.loads(pathlib.Path("runs/shout/metrics.json").read_text())["tasks"]["shout"]["examples"] in (4, 5)


def test_no_figure_is_left_open():
    assert not re.search(r"@\w+@", README)


def test_the_tree_names_every_file_of_the_packages():
    tree = README.split("## What is where")[1].split("```")[1]
    for package in ("multimodel", "modality_nets", "recipes", "benchmarks", "tests"):
        for file in (ROOT / package).rglob("*.py"):
            assert file.name in tree or file.name == "__init__.py" or file.name == "__main__.py", file.name
