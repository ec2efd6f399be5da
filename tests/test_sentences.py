import pytest

from autotune.sentences import capitalized, first_few


def test_only_the_first_letter_changes():
    assert [capitalized(text) for text in ("untried in GiB", "", "64 of 90")] == ["Untried in GiB", "", "64 of 90"]


@pytest.mark.parametrize(
    ("texts", "told"),
    [([], ""), (["a"], "a"), (["a", "b"], "a; b"), (["a", "b", "c"], "a; b; and 1 more")],
)
def test_a_list_says_how_many_it_leaves_out(texts, told):
    assert first_few(texts, 2, "; ") == told
