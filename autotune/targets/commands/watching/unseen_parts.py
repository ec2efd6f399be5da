"""The parts of a training that hooks cannot see: limits from which they are reported, and the sentences."""

MOST_OTHER_STEPS = 50  # of another optimizer without a counted step: the program has switched to it
MOST_BACKWARDS_WITHOUT_OPTIMIZER = 20  # then its updates are written by hand, and may go on for hours
TELL = "write autotune.step(loss=loss, samples=len(batch)) after each update"
BY_HAND = (
    "{} computes gradients and steps no optimizer of torch.optim. Its updates are probably written by hand. Write "
    "autotune.step(loss=loss, samples=len(batch)) after each, which does nothing in other runs."
)
NO_MODULE = (
    "{} trains parameters that belong to no nn.Module, and its model is looked into to compare "
    "losses. It cannot be found. Leave that comparison out: --stability off."
)
NO_BATCH = (
    "{} trains with batches that cannot be seen: neither a DataLoader gave them, nor was a model called with tensors. "
    "Its samples are not known, and without them no rate is. Write autotune.step(loss=loss, samples=len(batch)) at the "
    "end of each of its optimizer steps, which does nothing in other runs."
)
