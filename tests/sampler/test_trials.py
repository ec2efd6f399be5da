"""Of many observations the model is fitted to the most telling ones."""

from autotune.sampler.trials import MOST_FITTED, most_telling


def test_a_search_of_usual_length_is_fitted_to_all_of_it():
    assert most_telling([float(at % 7) or None for at in range(MOST_FITTED)]) == list(range(MOST_FITTED))


def test_of_more_the_best_half_is_fitted_and_others_from_all_of_the_search():
    values = [None if at % 5 == 0 else float(at) for at in range(2000)]  # the later, the better

    kept = most_telling(values)

    rest = [at for at in kept if at < 1500]
    assert len(set(kept)) == MOST_FITTED and kept == sorted(kept)
    assert {at for at in range(1876, 2000) if at % 5} <= set(kept)
    assert len(rest) > MOST_FITTED / 3 and any(values[at] is None for at in rest)
