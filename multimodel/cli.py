"""The commands. No logic: each reads its options and calls one function."""

import io
import json
import os
import pathlib
import sys
import traceback
from dataclasses import replace
from typing import Annotated, Any, Optional

import typer
from typer.exceptions import TyperException

from multimodel.errors import UserError
from multimodel.quiet import no_stderr

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with no_stderr():  # TensorFlow's notes on this machine are not the user's
    import tensorflow
tensorflow.get_logger().setLevel("ERROR")

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Train, score and use multi-task models over text, images and audio.",
    rich_markup_mode=None,
    add_completion=False,
)
FOUND_SOMETHING = 3  # exit code of a command that did its work and has something to report

Tasks = Annotated[Optional[str], typer.Option(metavar="A,B", help="Only these tasks.")]
RunFolder = Annotated[pathlib.Path, typer.Argument(metavar="RUN", help="A run's folder.")]
RecipeOfRun = Annotated[Optional[str], typer.Option(help="The run's recipe, where run.json does not lead to it.")]
Beams = Annotated[Optional[int], typer.Option(help="Search by so many beams.")]
LengthPenalty = Annotated[Optional[float], typer.Option(help="Of beams: 0 for none, more for longer outputs.")]
MinLength = Annotated[Optional[int], typer.Option(help="Pieces at least, before an output may end.")]
MaxLength = Annotated[Optional[int], typer.Option(help="Pieces at most, the end included.")]


@app.command(epilog="Example: multimodel recipes")
def recipes():
    """List the shipped recipes: tasks, data, expected time and scores."""
    from multimodel.shipped import describe_recipes

    typer.echo(describe_recipes())


@app.command(epilog="Example: multimodel train quickstart --out runs/mine --steps 100")
def train(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A shipped name, or a .py file with recipe().")],
    out: Annotated[Optional[pathlib.Path], typer.Option(help="The run's folder; runs/NAME if not given.")] = None,
    steps: Annotated[Optional[int], typer.Option(help="Optimizer steps.")] = None,
    batch_size: Annotated[
        Optional[Any],
        typer.Option(
            parser=lambda text: int(text) if text.lstrip("-").isdigit() else text,
            metavar="INTEGER|auto",
            help="Examples of a step, all tasks together; auto for as many as memory takes.",
        ),
    ] = None,
    accumulate: Annotated[Optional[int], typer.Option(help="Batches whose gradients make one update.")] = None,
    learning_rate: Annotated[Optional[float], typer.Option(help="Its peak, after warm-up.")] = None,
    schedule: Annotated[
        Optional[str], typer.Option(help="cosine, constant, inverse_sqrt or exponential_tail, after warm-up.")
    ] = None,
    ema: Annotated[
        Optional[float], typer.Option(help="Score and save a moving average of the weights, of this momentum.")
    ] = None,
    seed: Annotated[Optional[int], typer.Option(help="Of weights, dropout and batches.")] = None,
    tasks: Tasks = None,
    precision: Annotated[str, typer.Option(help="float32, mixed_bfloat16, or mixed_float16 for GPUs.")] = "float32",
    xla: Annotated[str, typer.Option(help="Compile steps with XLA: on, off, or auto, where it wins.")] = "auto",
    remat: Annotated[bool, typer.Option("--remat", help="Compute more, keep less: less memory, more time.")] = False,
    log_every: Annotated[int, typer.Option(help="Steps from one logged line to the next.")] = 50,
    save_every: Annotated[
        Optional[int], typer.Option(help="Steps from one checkpoint to the next; else as often as costs 1 % at most.")
    ] = None,
    validate_every: Annotated[
        Optional[int], typer.Option(help="Steps from one scoring of the validation splits to the next.")
    ] = None,
    patience: Annotated[
        Optional[int], typer.Option(help="Validations without a better score until training stops.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that is in the folder.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace the run that is in the folder.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the model and full errors.")] = False,
):
    """Train a recipe, score it on held-out data, and write a run's folder."""
    from multimodel.shipped import load_recipe
    from multimodel.training.train import train as train_recipe

    make_recipe, callbacks = context.obj
    train_recipe(
        replace(make_recipe(), origin=recipe) if make_recipe else load_recipe(recipe),
        out,
        tasks=_names(tasks),
        fresh=fresh,
        resume=resume,
        log_every=log_every,
        save_every=save_every,
        precision=precision,
        xla=xla,
        remat=remat,
        verbose=verbose,
        callbacks=callbacks,
        steps=steps,
        batch_size=batch_size,
        accumulation_steps=accumulate,
        learning_rate=learning_rate,
        schedule=schedule,
        ema=ema,
        seed=seed,
        validate_every=validate_every,
        patience=patience,
    )


@app.command(epilog="Example: multimodel evaluate runs/quickstart --tasks speech --limit 100")
def evaluate(
    run: RunFolder,
    tasks: Tasks = None,
    split: Annotated[str, typer.Option(help="Split of the data to score on.")] = "test",
    limit: Annotated[Optional[int], typer.Option(min=1, help="Examples of each task at most.")] = None,
    recipe: RecipeOfRun = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tasks object of metrics.json.")] = False,
):
    """Score a run on held-out data, from generated output."""
    from multimodel.shipped import evaluate_run
    from multimodel.training.console import Reporter

    reporter = Reporter(quiet=as_json)
    scores = evaluate_run(run, recipe, _names(tasks), split, limit, reporter.evaluating)
    if as_json:
        typer.echo(json.dumps(scores, indent=1))
    else:
        reporter.scores(scores)


@app.command(epilog="Example: multimodel report runs/quickstart")
def report(run: RunFolder):
    """Write a run's report.html anew, from what its folder holds, and print its path."""
    from multimodel.training.report import write_report

    typer.echo(write_report(run))


@app.command(epilog="Example: multimodel predict runs/quickstart captions scene.png another.png")
def predict(
    run: Annotated[pathlib.Path, typer.Argument(metavar="RUN", help="A run's folder, or an export's.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="One of the run's tasks.")],
    inputs: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="[INPUT ...]", help="Text, or paths of images or clips; from stdin, one a line, if none."
        ),
    ] = None,
    n_best: Annotated[int, typer.Option(help="Outputs of each input, the best first.")] = 1,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    temperature: Annotated[Optional[float], typer.Option(help="Draw outputs; the lower, the less it dares.")] = None,
    top_k: Annotated[Optional[int], typer.Option(help="Draw among the so many most probable pieces.")] = None,
    top_p: Annotated[Optional[float], typer.Option(help="Draw among pieces of so much probability together.")] = None,
    seed: Annotated[Optional[int], typer.Option(help="Of what is drawn.")] = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: input, output, score, and n_best if asked for.")
    ] = False,
):
    """Answer raw inputs: prints one output a line."""
    from multimodel.export.load import load

    predictor = load(run)
    search = predictor.search(
        task,
        beams=beams,
        length_penalty=length_penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        min_length=min_length,
        max_length=max_length,
    )
    values = inputs or [line.rstrip("\r\n") for line in sys.stdin]
    failed = False
    for value, prediction in zip(values, predictor.try_predict(task, values, search, n_best), strict=True):
        if prediction.error:
            failed = True
            typer.echo(f"Error: {value[:200]}: {prediction.error}", err=True)
        if as_json:
            record = {"input": value, "output": prediction.output, "score": prediction.score}
            if prediction.error:
                record["error"] = prediction.error
            elif n_best > 1:
                record["n_best"] = [{"output": output, "score": score} for output, score in prediction.n_best]
            typer.echo(json.dumps(record, ensure_ascii=False))
        else:
            for output, _ in prediction.n_best:
                typer.echo(output)
    if failed:
        raise typer.Exit(FOUND_SOMETHING)


@app.command(epilog="Example: multimodel export runs/quickstart exports/quickstart --tasks captions,speech")
def export(
    run: RunFolder,
    folder: Annotated[
        pathlib.Path, typer.Argument(metavar="DIR", help="Of the export: DIR/1, then DIR/2, as TF Serving has it.")
    ],
    tasks: Tasks = None,
    recipe: RecipeOfRun = None,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    int8: Annotated[bool, typer.Option("--int8", help="Quantise weights, and show what it costs in score.")] = False,
):
    """Write a SavedModel with one signature a task, proven equal to the run on held-out examples."""
    from multimodel.shipped import export_run

    changes = {"beams": beams, "length_penalty": length_penalty, "min_length": min_length, "max_length": max_length}
    version, proof, losses = export_run(run, folder, recipe, _names(tasks), changes, int8)
    for task, found in proof.items():
        typer.echo(
            f"{task}: {found['equal']} of {found['examples']} outputs equal, scores within "
            f"{found['largest_score_difference']:.1e}"
        )
    for task, (metric, before, after) in losses.items():
        typer.echo(f"{task}: {metric} {before:.3f} in float, {after:.3f} in int8")
    typer.echo(version)


@app.command(epilog="Example: multimodel serve exports/quickstart --port 8501")
def serve(
    folder: Annotated[pathlib.Path, typer.Argument(metavar="DIR", help="Of an export: the newest of DIR/1, DIR/2 ...")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any free one.")] = 8501,
    name: Annotated[Optional[str], typer.Option(help="The model's name in addresses; DIR's last part else.")] = None,
    body_mb: Annotated[float, typer.Option(help="MiB of one request at most.")] = 32,
    queue: Annotated[int, typer.Option(help="Rows that may wait; more are refused with 429.")] = 1024,
    timeout: Annotated[float, typer.Option(help="Seconds until a request is answered, or given up.")] = 60,
):
    """Answer requests over HTTP as TF Serving does; a newer version in DIR is taken up by itself."""
    from multimodel.serving.limits import Limits
    from multimodel.serving.server import serve as serve_folder

    serve_folder(folder, host, port, name, Limits(body_mb=body_mb, rows=queue, answer_seconds=timeout))


@app.command(epilog="Example: multimodel check photos/")
def check(
    data: Annotated[
        str, typer.Argument(metavar="RECIPE_OR_PATH", help="A recipe, a folder, a .jsonl or .csv file, or one file.")
    ],
    tasks: Tasks = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
):
    """Read data before a run: what is unusable, odd, too long, or there twice."""
    from multimodel.shipped import check_data
    from multimodel.training.console import Reporter

    report = check_data(data, _names(tasks))
    if as_json:
        typer.echo(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        Reporter().check(report)
    if report["unusable"]:
        raise typer.Exit(FOUND_SOMETHING)


def main(recipe=None, callbacks=()):
    """Runs the command line.

    Args:
        recipe: a function without arguments that returns a Recipe. The script that calls this takes the flags of
            `multimodel train`. None for the `multimodel` command itself.
        callbacks: those of that recipe's training, as for `multimodel.train`.
    """
    arguments = sys.argv[1:]
    if recipe is not None:
        arguments = ["train", str(pathlib.Path(sys.argv[0]).resolve()), *arguments]
    sys.exit(run_command(arguments, recipe, callbacks))


def run_command(arguments, recipe=None, callbacks=()):
    """Runs one command and returns its exit code: 2 for a user's mistake, in one line; 1 for an internal failure.

    Args:
        arguments: those of the command line.
        recipe: a function that gives the recipe to train, in place of the one that is named.
        callbacks: of its training.
    """
    for stream in (sys.stdin, sys.stdout):  # bytes that are no UTF-8 must not keep the other inputs from an answer
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdin else "backslashreplace")
    try:
        return app(arguments, standalone_mode=False, prog_name="multimodel", obj=(recipe, callbacks)) or 0
    except TyperException as error:
        _complain(error.format_message())
    except UserError as error:
        if "--verbose" in arguments:
            traceback.print_exc()
        for line in error.lines:
            _complain(line)
        return error.exit_code
    except KeyboardInterrupt:
        _complain("stopped")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains again at exit
        return 1
    return 2


def _complain(message):
    typer.echo(f"Error: {' '.join(message.split())}", err=True)


def _names(tasks):
    return None if tasks is None else [name.strip() for name in tasks.split(",") if name.strip()]
