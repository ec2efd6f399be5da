"""What the codes of `codes.py` say of what users expect to be searched or measured and is not: their sentences, 12xx.

`labels` and `label` are the titles of knobs in tables; a notice has their names beside them, as `knobs` or `knob`.
"""

WITHOUT_ARGUMENT = "{labels:values} not tuned: no argument was recognised for {labels:them} "
HELD = "{label} not searched: {samples} samples are held per optimizer step, and "
EXACT_HOLDS = "{label} not searched: --exact holds it, because "
NOTHING = "{values:do} nothing here: {why}"
ALIKE = "{values:do} the same as {instead} here: {why}"

KNOBS_WITHOUT_ARGUMENT = WITHOUT_ARGUMENT + "(type one with its value of today, or name it with --map {example}=--NAME)"
COMMAND_WITHOUT_ARGUMENTS = (
    WITHOUT_ARGUMENT + "(if there is one, name it with --map {example}=--NAME; else add one for each to your script, "
    "or write a model.py: autotune init)"
)
BF16_NEEDS_OPTION = (
    "{label} not tuned: without a GPU, transformers takes bf16 only with --use_cpu True: type it, and precision is "
    "tuned"
)
ACCUMULATION_NOT_TAKEN = HELD + "{taker} takes no gradient accumulation (free them with --global-batch free)"
VALUES_NOT_AVAILABLE = "{values:values} not tried: {why}"
VALUES_IDLE = "{values:values} " + NOTHING
VALUES_ALIKE = "{values:values} " + ALIKE
BASELINE_IDLE = "{values:values} in the baseline " + NOTHING
BASELINE_ALIKE = "{values:values} in the baseline " + ALIKE
LOOP_ONLY_OBSERVED = (
    "autotune only observes this loop: it does not measure computing and loading alone, the largest batch or "
    "validation, and does not predict memory"
)
WORKERS_NOT_TAKEN = "{label} not tuned: dataloader() takes no num_workers"
WORKERS_REPEAT_SAMPLES = (
    "{label} above 1 not searched: each would give all samples again (search them with --workers 0:8)"
)
EXACT_HOLDS_BATCH = EXACT_HOLDS + "BatchNorm takes its statistics from it"
EXACT_HOLDS_KNOB = EXACT_HOLDS + "it changes what is computed"
ACCUMULATION_NOT_SEARCHED = (
    "{label} not searched: it changes what the model learns and hardly the speed (search it with --accum 1:8)"
)
BATCHES_DO_NOT_DIVIDE = (
    "{label} {batches:values} not searched: the held global batch {samples} is not a multiple of {batches:them} (free "
    "it with --global-batch free)"
)
BATCHES_EXCEED_DATA = "{label} {batches:values} not searched: more samples than the data have for one step"
NO_OTHER_BATCH_DIVIDES = (
    HELD + "no other batch from {smallest} up divides them (search smaller ones with --batch {divisors}, or free them "
    "with --global-batch free)"
)
ONLY_VALUE = "{label} not tuned: {value} is its only value here"
STUDY_WITHOUT_KNOB = (
    "{label} not tuned: the study was begun by an earlier version, which could not set it (begin a new one with "
    "--fresh)"
)
MACHINE_LACKS_VALUES = "{label} not tuned: {why}"
LOSS_HOLDS_BATCH = (
    "{label} not searched: the loss is no mean over samples, so another micro-batch trains another loss[ (search it "
    "with {option})]"
)
MODEL_COMPILED_BY_CODE = "{label} not tuned: your code compiles the model itself"
