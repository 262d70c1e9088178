"""Bracketing F1: by hand, against EVALB's own sample, and on whatever a model may write."""

import itertools
import random

import pytest

from multimodel.tasks.treebank import linearise
from multimodel.training.brackets import bracket_f1

CAT = "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .))"  # S 0 to 3, NP 0 to 2, VP 2 to 3


@pytest.mark.parametrize(
    ("output", "target", "f1"),
    [
        ("S NP DT NN /NP VP VBZ /VP . /S", CAT, 1),
        ("(S (NP (DT) (NN)) (VP (VBZ)) (.))", CAT, 1),
        ("S VP DT NN /VP VP VBZ /VP . /S", CAT, 2 / 3),  # a wrong label
        ("S NP DT /NP NN VP VBZ /VP . /S", CAT, 2 / 3),  # a wrong span
        ("S DT NN VBZ . /S", CAT, 2 / 4),  # brackets that are missing: precision 1, recall 1/3
        ("S NP X X /NP VP X /VP . /S", CAT, 1),  # tags of leaves are not brackets
        ("(Assign (Name) (BinOp (Name) (Num)))", "(Assign (Name) (Name) (Num))", 2 / 3),
        ("(Expr (Call (Name)))", "(Expr (Call (Name)))", 1),
        ("(Name)", "(Name)", 1),  # one leaf: no bracket to find
        ("(Expr (Name))", "(Name)", 0),
        ("", "", 1),
        ("", CAT, 0),
        (CAT, "", 0),
    ],
)
def test_by_hand(output, target, f1):
    assert bracket_f1([output], [target]) == pytest.approx(f1, abs=1e-12)


@pytest.mark.parametrize(
    ("output", "target", "f1"),
    [
        ("S NP DT NN . /NP VP VBZ /VP /S", CAT, 1),  # where punctuation hangs is not scored
        ("S NP DT NN /NP VP VBZ /VP /S", CAT, 1),
        ("S `` : '' , NP DT NN /NP VP VBZ /VP /S", CAT, 1),
        ("S NP DT NN /NP VP VBZ /VP NN /S", CAT, 0),  # punctuation taken for a word is one leaf more
        ("(S (NP (-NONE- *)) (VP (VB go)))", "(S (VP (VB go)))", 1),
        ("S NP , /NP NN /S", "S NN /S", 1),  # a constituent of punctuation alone
        ("S NP /NP NN /S", "S NN /S", 1),
        ("S PRT RP /PRT NN /S", "S ADVP RP /ADVP NN /S", 1),
        ("(NP (NP (NN x) (NN y)))", "(NP (NN x) (NN y))", 2 / 3),  # brackets are multisets
        ("(NP (NP (NN x)))", "(NP (NP (NP (NN x))))", 4 / 5),
        ("(ADVP (PRT (RP x)))", "(PRT (PRT (RP x)))", 1),
        ("(TOP (S (NN x)))", "(S (NN x))", 1),
        ("( (S (NN x)))", "(ROOT (S (NN x)))", 1),
        ("(S1 (S (NN x)))", "((S (NN x)))", 1),
        ("(S (NP-SBJ-1 (NN x)) (NP=2 (NN y)))", "S NP NN /NP NP NN /NP /S", 1),
        ("S NN /S", "S NN NN /S", 0),  # unequal leaves, though S is there
    ],
)
def test_rules_of_evalb(output, target, f1):
    assert bracket_f1([output], [target]) == pytest.approx(f1, abs=1e-12)


@pytest.mark.parametrize(
    ("output", "target"),
    [
        ("(S (NP (DT the) (NN cat", "(S (NP (DT the) (NN cat)))"),
        ("(S (NP (DT the) (", "(S (NP (DT the) (NN cat)))"),
        ("(S (NN x)))) )", "(S (NN x))"),
        (") (S (NN x))", "(S (NN x))"),
        ("(P x) (S (NN y))", "P S NN /S"),
        ("(NP the (NN cat) !)", "NP NN NN NN /NP"),
        ("(NP the cat)", "NP NN NN /NP"),
        ("( S\n\t(NN   x )\n)", "S NN /S"),
        ("/NP S NN /VP /S / /S", "S NN /S"),
        ("S NP NN /S", "S NN NN /S"),  # a tag that is never closed is a leaf
        ("NP NP NN /NP NN /NP", "(NP (NP (NN)) (NN))"),  # a closing belongs to the nearest opening
        ("NP VP NN /NP /VP", "(NP (VP) (NN))"),  # brackets do not cross
        ("X NP NN /X", "(X (NN) (NN))"),
    ],
)
def test_malformed_trees_are_read_as(output, target):
    assert bracket_f1([output], [target]) == 1
    assert bracket_f1([""], [target]) == 0  # there was something to find


def test_brackets_are_summed_over_the_corpus():
    outputs, targets = ["S NP DT NN /NP VP VBZ /VP /S", "VP NN /VP"], [CAT, "NP NN /NP"]
    assert bracket_f1(outputs, targets) == pytest.approx(2 * 3 / (4 + 4))
    assert bracket_f1([], []) == 1


THIS = "(A (P this)) (B (Q is) (A (R a) (T test)))"


@pytest.mark.parametrize(
    ("output", "right", "found"),
    [
        (f"(S {THIS})", 4, 4),
        ("(S (A (P this)) (B (Q is) (C (R a) (T test))))", 3, 4),
        ("(S (A (P this)) (B (Q is) (A (R a) (U test))))", 4, 4),
        ("(S (C (P this)) (B (Q is) (A (R a) (U test))))", 3, 4),
        ("(S (A (P this)) (B (Q is) (R a) (A (T test))))", 3, 4),
        ("(S (A (P this) (Q is)) (A (R a) (T test)))", 2, 3),
        ("(S (P this) (Q is) (R a) (T test))", 1, 1),
        ("(P this) (Q is) (R a) (T test)", 0, 0),
        ("(S (A (P this)) (B (Q is) (A (A (R a) (T test)))))", 4, 5),
        ("(S (A (P this)) (B (Q is) (A (A (A (A (A (R a) (T test))))))))", 4, 8),
        (f"(TOP (S {THIS}))", 4, 4),
        (f"(S {THIS} (-NONE- *))", 4, 4),
        (f"(S {THIS} (: *))", 4, 4),
    ],
)
def test_sample_of_evalb(output, right, found):
    """Counts that EVALB documents for these outputs, sample.tst and sample.rsl; the target has four brackets."""
    assert bracket_f1([output], [f"(S {THIS})"]) == pytest.approx(2 * right / (found + 4), abs=1e-12)


def test_random_strings_have_a_score():
    """Whatever is written scores 0 to 1 both ways round, and 1 against itself."""
    draw = random.Random(0)
    pieces = "( ) (( )) (S (NP (, (-NONE- S NP DT . , / // /S /NP /DT ( /( ) \n \t ü \0 a(b )/S - = -S".split(" ")
    strings = [draw.choice(["", " "]).join(draw.choices(pieces, k=draw.randrange(20))) for _ in range(3000)]
    for output, target in itertools.pairwise(strings):
        f1 = bracket_f1([output], [target])
        assert 0 <= f1 <= 1
        assert f1 == bracket_f1([target], [output])
        assert bracket_f1([output], [output]) == 1


@pytest.mark.parametrize("text", ["(A " * 5000, ")" * 5000, "A " * 5000 + "/A " * 5000, "/A " * 5000, "(" + " " * 5000])
def test_long_outputs_have_a_score(text):
    assert 0 <= bracket_f1([text], [CAT]) <= 1


def random_tree(draw, leaves, labels, chain):
    """Brackets over some leaves; each has another of the same span around it with probability `chain`."""
    if len(leaves) == 1:
        tree = leaves[0]
        if draw.random() < 0.5:
            return tree
    else:
        cut = sorted(draw.sample(range(1, len(leaves)), draw.randint(1, min(3, len(leaves) - 1))))
        parts = [leaves[start:end] for start, end in itertools.pairwise([0, *cut, len(leaves)])]
        tree = " ".join(random_tree(draw, part, labels, chain) for part in parts)
    tree = f"({draw.choice(labels)} {tree})"
    while draw.random() < chain:
        tree = f"({draw.choice(labels)} {tree})"
    return tree


def test_a_linearised_tree_equals_its_nested_form():
    draw = random.Random(0)
    tags, labels = ["NN", "VB", ".", ",", "-NONE-", "-LRB-", "PRP$"], ["S", "NP-SBJ-1", "NP=2", "ADVP", "PRT", "VP"]
    for _ in range(300):
        leaves = [f"({draw.choice(tags)} w{i})" for i in range(draw.randint(2, 12))]
        tree = f"({draw.choice(['', 'TOP', 'ROOT', 'S1'])} {random_tree(draw, leaves, labels, 0.3)})"
        words, linear = linearise(tree)
        assert bracket_f1([linear], [tree]) == bracket_f1([tree], [linear]) == 1
        other = f"(TOP {random_tree(draw, leaves, labels, 0.3)})"
        assert bracket_f1([other], [linear]) == bracket_f1([linearise(other)[1]], [tree])
        assert words.split() == [leaf[1:-1].split()[1] for leaf in leaves if "-NONE-" not in leaf]
