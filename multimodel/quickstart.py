"""What `make quickstart` runs: the quickstart recipe, unless a finished run of it is there."""

import json
import pathlib

import PIL.Image
import soundfile

from multimodel.cli import run_command
from multimodel.tasks.animal_pictures import scenes
from multimodel.tasks.spoken_words import SAMPLE_RATE, speech
from multimodel.training.console import Reporter
from multimodel.training.run import status

RUN = pathlib.Path("runs/quickstart")


def main():
    """Trains or reports, and shows what to try next. Returns the exit code."""
    if status(RUN) == "finished":
        print(f"{RUN} is finished; remove it to train again.")
        Reporter().scores(json.loads((RUN / "metrics.json").read_text())["tasks"])
    else:
        code = run_command(["train", "quickstart", "--out", str(RUN), "--resume"])
        if code:
            return code
    picture, clip = write_examples(RUN / "examples")
    print(
        f"A SavedModel to serve is in {RUN}/export.\n"
        "Try next:\n"
        f"  .venv/bin/multimodel predict {RUN} captions {picture}\n"
        f"  .venv/bin/multimodel predict {RUN} speech {clip}\n"
        f"  .venv/bin/multimodel predict {RUN} numbers_en_de 'four thousand and two' --json"
    )
    return 0


def write_examples(folder):
    """A scene and a clip of the test split, as files to try."""
    folder.mkdir(parents=True, exist_ok=True)
    picture, clip = folder / "scene.png", folder / "clip.wav"
    PIL.Image.fromarray(scenes().examples("test")[0]["image"]).save(picture)
    soundfile.write(clip, speech().examples("test")[0]["audio"], SAMPLE_RATE)
    return picture, clip


if __name__ == "__main__":
    raise SystemExit(main())
