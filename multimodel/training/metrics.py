"""Scores of generated outputs against targets, by established libraries."""

import collections

import jiwer
import sacrebleu

from multimodel.errors import unknown
from multimodel.training.brackets import bracket_f1
from multimodel.training.teacher_forcing import FORCED_METRICS


def exact(outputs, targets):
    """Share of outputs that equal their target, 0 to 1."""
    return sum(output == target for output, target in zip(outputs, targets, strict=True)) / len(targets)


def bleu(outputs, targets):
    """Corpus BLEU of sacrebleu, 0 to 100."""
    return sacrebleu.corpus_bleu(outputs, [targets]).score


def chrf(outputs, targets):
    """Corpus chrF of sacrebleu, 0 to 100."""
    return sacrebleu.corpus_chrf(outputs, [targets]).score


def wer(outputs, targets):
    """Word error rate of jiwer: 0 is right, above 1 where more is inserted than there was."""
    return jiwer.wer(targets, outputs)


def cer(outputs, targets):
    """Character error rate of jiwer: 0 is right, above 1 where more is inserted than there was."""
    return jiwer.cer(targets, outputs)


METRICS = {
    "accuracy": exact,
    "exact": exact,
    "bleu": bleu,
    "chrf": chrf,
    "wer": wer,
    "cer": cer,
    "bracket_f1": bracket_f1,
}


def check_metrics(names):
    """Raises a UserError for a name that is no metric."""
    known = METRICS | FORCED_METRICS
    for name in names:
        if name not in known:
            raise unknown("metric", name, known)


def score(names, outputs, targets):
    """`{metric: value}` of generated outputs, rounded to five digits."""
    return {name: round(METRICS[name](outputs, targets), 5) for name in names}


def most_frequent(outputs):
    """The commonest of some outputs; of equally common ones the first in the alphabet."""
    counts = collections.Counter(outputs)
    return min(counts, key=lambda output: (-counts[output], output))
