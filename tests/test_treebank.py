"""The Penn Treebank: linearised trees, splits by section, and data that is missing or broken."""

import pytest

from multimodel import UserError
from multimodel.tasks.treebank import PennTreebankSource, linearise

CAT = "( (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))"
DOG = """
( (S
    (NP-SBJ-1 (NNP Rex) )
    (VP (VBD was)
      (VP (VBN fed)
        (NP (-NONE- *-1) )))
    (. .) ))
"""


@pytest.mark.parametrize(
    ("tree", "words", "tags"),
    [
        (CAT, "The cat sleeps .", "S NP DT NN /NP VP VBZ /VP . /S"),
        (DOG, "Rex was fed .", "S NP NNP /NP VP VBD VP VBN /VP /VP . /S"),
        ("(S (NN x))", "x", "S NN /S"),
        ("(TOP (S (NN x)))", "x", "S NN /S"),
        ("(ROOT (S (NN x)))", "x", "S NN /S"),
        ("(S1 (S (NN x)))", "x", "S NN /S"),
        ("((S (NN x)))", "x", "S NN /S"),
        ("( (NN x))", "x", "NN"),
        ("(NN x)", "x", "NN"),
        ("( (NP (NN x)) (. .))", "x .", "NP NN /NP ."),
        ("(S (S1 (NN x)))", "x", "S S1 NN /S1 /S"),  # a top label below the top is a label
        ("(S (NP=2 (NN x)) (NP-LOC-CLR=3 (NN y)))", "x y", "S NP NN /NP NP NN /NP /S"),
        ("(PRN (-LRB- -LRB-) (NN x) (-RRB- -RRB-))", "-LRB- x -RRB-", "PRN -LRB- NN -RRB- /PRN"),
        ("(S (ADVP|PRT (RP up)) (PRP$ its))", "up its", "S ADVP RP /ADVP PRP$ /S"),
        ("(S (SBAR (-NONE- 0) (S (-NONE- *T*-1))) (VP (VB go) (NP-1 (-NONE- *))))", "go", "S VP VB /VP /S"),
        ("(NP (NP (NP (NN x))))", "x", "NP NP NP NN /NP /NP /NP"),
        (r"(NP (CD 1\/2) (: --) (NN /S))", r"1\/2 -- /S", "NP CD : NN /NP"),
        ("( (S (NP (-NONE- *)) (-NONE- *)))", "", ""),
    ],
)
def test_linearise(tree, words, tags):
    assert linearise(tree) == (words, tags)


def test_a_deep_tree_is_no_matter():
    words, tags = linearise("(A " * 9999 + "(NN x)" + ")" * 9999)
    assert (words, len(tags.split())) == ("x", 2 * 9999 + 1)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("(S (NN x)", "a bracket opens that never closes"),
        ("(S (NN x)))", "a bracket closes that never opened"),
        ("(S (NP) (NN x))", "a bracket holds nothing"),
        ("( )", "a bracket holds nothing"),
        ("(S (NN x) stray)", "'stray' is not in a"),
        ("(NP the cat)", "'the' is not in a"),
        ("word", "'word' is not in a"),
        ("", "Received: 0 trees"),
        (CAT + CAT, "Received: 2 trees"),
    ],
)
def test_a_malformed_tree_is_refused_in_one_line(tree, message):
    with pytest.raises(UserError, match=message) as error:
        linearise(tree)
    assert "\n" not in str(error.value)


def treebank(folder, files):
    """A copy of the Treebank with `{file name: content}`, laid out as the LDC does."""
    for name, content in files.items():
        path = folder / "parsed" / "mrg" / "wsj" / name[4:6] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def leaf_trees(*words):
    return "\n".join(f"( (NP (NN {word})))" for word in words)


def sentences(source):
    return {split: [example["sentence"] for example in source.examples(split)] for split in source.splits}


def test_sections_make_the_standard_splits(tmp_path):
    names = [f"wsj_{section:02}01.mrg" for section in range(25)]
    source = PennTreebankSource(treebank(tmp_path, {name: leaf_trees(f"in{name[4:6]}") for name in names}))
    assert source.missing() is None
    assert sentences(source) == {
        "train": [f"in{section:02}" for section in range(2, 22)],
        "validation": ["in22"],
        "test": ["in23"],
    }


def test_examples_are_sentences_and_linearised_trees(tmp_path):
    traces = "( (S (-NONE- *)))"
    folder = treebank(tmp_path, {"wsj_0000.mrg": f"\n{CAT}\n{traces}{DOG}"})
    assert PennTreebankSource(folder, {"train": [0]}).examples("train") == [
        {"sentence": "The cat sleeps .", "tree": "S NP DT NN /NP VP VBZ /VP . /S"},
        {"sentence": "Rex was fed .", "tree": "S NP NNP /NP VP VBD VP VBN /VP /VP . /S"},
    ]


def test_order_is_that_of_file_names(tmp_path):
    files = {"wsj_0102.mrg": leaf_trees("c", "a"), "WSJ_0110.MRG": leaf_trees("b"), "wsj_0009.mrg": leaf_trees("d")}
    source = PennTreebankSource(str(treebank(tmp_path, files)), {"train": (1, 0)})
    assert sentences(source) == {"train": ["d", "c", "a", "b"]}


def test_any_layout_will_do_and_other_files_are_left_alone(tmp_path):
    treebank(tmp_path, {"wsj_0001.mrg": leaf_trees("later")})
    combined = tmp_path / "combined"
    combined.mkdir()
    (combined / "WSJ_0001.MRG").write_text(leaf_trees("first"))
    for name in ("wsj_0001.pos", "wsj_00010.mrg", "brown_0001.mrg", "wsj_0001.mrg.bak"):
        (combined / name).write_text("not a tree")
    assert sentences(PennTreebankSource(tmp_path, {"train": [0]})) == {"train": ["first"]}


@pytest.mark.parametrize("folder", ["nowhere", ".", "file"])
def test_missing_data_is_told_in_one_line(tmp_path, folder):
    (tmp_path / "file").write_text("")
    source = PennTreebankSource(tmp_path / folder)
    text = source.missing()
    for part in ("LDC99T42", str(tmp_path / folder), "02-21 (train), 22 (validation), 23 (test)", "wsj_SSNN.mrg"):
        assert part in text
    assert "\n" not in text
    with pytest.raises(UserError) as error:
        source.examples("train")
    assert str(error.value) == text


def test_missing_sections_are_named(tmp_path):
    folder = treebank(tmp_path, {"wsj_0001.mrg": leaf_trees("a"), "wsj_0101.mrg": leaf_trees("b")})
    text = PennTreebankSource(folder, {"train": [0], "validation": [4, 2], "test": [1]}).missing()
    assert "sections 02, 04 (validation). Put" in text
    assert PennTreebankSource(folder, {"train": [0], "test": [1]}).missing() is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{CAT}\n\n( (S (NN x))\n", "line 3, tree 2: a bracket opens that never closes"),
        (f"{CAT}\n{CAT})", "line 2, tree 3: a bracket closes that never opened"),
        (f"{CAT}\n( (S\n  (NP )))", "line 3, tree 2: a bracket holds nothing"),
        ("*x* header\n", r"line 1, tree 1: '\*x\*' is not in a"),
        ("\n", "line 1, tree 1: no bracket opens"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, message):
    folder = treebank(tmp_path, {"wsj_0001.mrg": content})
    with pytest.raises(UserError, match=f"wsj_0001.mrg, {message}") as error:
        PennTreebankSource(folder, {"train": [0]}).examples("train")
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_is_named(tmp_path):
    folder = treebank(tmp_path, {"wsj_0001.mrg": ""})
    next(folder.rglob("*.mrg")).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"wsj_0001.mrg: not a readable text file"):
        PennTreebankSource(folder, {"train": [0]}).examples("train")


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": [2, 25]}, r"sections of 0 to 24. Received: \[2, 25\] for split 'train'"),
        ({"train": []}, r"Received: \[\] for split 'train'"),
        ({"train": "02"}, r"Received: \['0', '2'\]"),
        ({"train": [2, 3], "test": [3]}, "section 3 in 'train' and 'test'"),
    ],
)
def test_mistakes_in_splits_are_named(tmp_path, splits, message):
    with pytest.raises(UserError, match=message):
        PennTreebankSource(tmp_path, splits)
