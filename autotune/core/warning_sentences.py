"""The sentences and next steps of the warnings in `codes.py`, 1xx."""

TROUBLE_WITH_LOADER = "Training waits for data {wait_share:share} of the time."
GLOBAL_BATCH_SENTENCE = (
    "The global batch changes from {before} to {now} samples per optimizer step, which changes what the model learns."
)
LEARNING_RATE = "restate schedules in samples, and compare the losses; or hold the batch with --global-batch {before}."

ONLY_BASELINE_TRIED = (
    "Only the baseline was tried: it used up the budget.",
    "Search again with a longer --time-budget (or more --probes); the measurements are kept.",
)
GLOBAL_BATCH_CHANGED = (
    GLOBAL_BATCH_SENTENCE,
    "As a starting point, multiply the learning rate by {learning_rate_factor:.2g} (the square root of "
    "{factor:.3g}), " + LEARNING_RATE,
)
GLOBAL_BATCH_CHANGED_NOISE_SCALE = (
    GLOBAL_BATCH_SENTENCE,
    "As a starting point, multiply the learning rate by {sgd_factor:.2g} with SGD, or by {adam_factor:.2g} with "
    "Adam and its beta2 to the power of {factor:.3g} (from the noise scale, right to about a factor of 2), "
    + LEARNING_RATE,
)
LOADER_BOUND = (
    TROUBLE_WITH_LOADER,
    "Allow more workers with --workers 0:{workers}, or make the samples cheaper.",
)
LOADER_BOUND_CORES_FULL = (
    TROUBLE_WITH_LOADER,
    "The cores are full with {workers:counted worker} and the loop, so more workers would not help: make the samples "
    "cheaper.",
)
LOADER_BOUND_SEARCH_SHORT = (
    TROUBLE_WITH_LOADER,
    "Search longer (up to {workers} workers are allowed), or make the samples cheaper.",
)
LOADER_BOUND_WORKERS_TRIED = (
    TROUBLE_WITH_LOADER,
    "More workers, up to {workers}, were tried and gained nothing: make the samples cheaper.",
)
LOADER_BOUND_WORKERS_FIXED = (
    TROUBLE_WITH_LOADER,
    "Let dataloader() take num_workers, which is then tuned, or make the samples cheaper.",
)
SAMPLES_REPEATED = (
    "Each of the {workers} workers iterates over the whole iterable dataset, so every sample comes {workers} "
    "times, unless __iter__ splits it by torch.utils.data.get_worker_info().",
    "Check that it does, or keep the workers with --fix workers={before}.",
)
MEMORY_GROWS = (
    "Memory grows by {step_bytes:bytes} with every step: it runs out after about {steps_left:,} steps, with any "
    "configuration.[ Something probably keeps the graph of every step, such as `total += loss` or a list of "
    "outputs.]",
    "Keep numbers instead (`total += loss.item()`), or use `.detach()`; `autotune profile` looks for the line.",
)
MEMORY_GROWS_LINE = (
    "Memory grows by {step_bytes:bytes} with every step, probably because what {place} makes is kept[, in {holder}]: "
    "it runs out after about {steps_left:,} steps, with any configuration.",
    "Keep numbers instead (`total += loss.item()`), or use `.detach()`.",
)
LARGEST_BATCH_UNTRIED = (
    "Batches differ in shape, and the largest was not tried, because this data does not show which one it is."
    "[ {free_share:share} of the memory is kept free for it.]",
    "Write worst_batch(batch_size), which returns one such batch, to have it tried.",
)
BATCH_NORM = (
    "BatchNorm now sees micro-batches of {now} instead of {before}, which changes its statistics.",
    "Keep batch_size {before} where that matters (--fix batch={before}, or --exact).",
)
LOSS_OF_BATCH = (
    "The loss is no mean over samples, and micro-batches of {now} instead of {before} train another loss.",
    "Keep batch_size {before} (--fix batch={before}), unless this loss is the one you want.",
)
RATES_SPREAD = (
    "Repeats of one configuration scatter by {spread:.0%} (standard deviation): this machine is busy or throttled."
    "[ Smaller gains are not reliable.]",
    "Search again when the machine is quiet.",
)
INTERFERENCE_THROUGHOUT = (
    "Other processes interfered throughout: rates are underestimated, and small differences are unreliable.",
    "Search again when the machine is quiet.",
)
SYNTHETIC_BATCHES = (
    "The batches are synthetic: data loading was neither measured nor tuned.",
    "Write dataset() to measure and tune it.",
)
PROBES_LEFT_OUT = (
    "The confirmation leaves out {count:counted probe} that something slowed[: {probes:few}].",
    "Close other work while a search runs.",
)
INTERFERENCE = (
    ": there was interference in too many probes: {rounds:few}.[ For lack of better ones, these probes count: "
    "{probes:few}.]"
)
RUN_AGAIN = "Close other work and run the same command again."
CONFIRMATION_INTERFERENCE = (
    "Which configuration is faster is not certain, and the rates are probably too low" + INTERFERENCE,
    RUN_AGAIN,
)
LONE_RATE_INTERFERENCE = "The rate is probably too low" + INTERFERENCE, RUN_AGAIN
BASELINE_RATE_INTERFERENCE = (
    "The baseline's rate is probably too low, which makes the gain look larger" + INTERFERENCE,
    RUN_AGAIN,
)
LOSSES_UNJUDGED = (
    "The losses were not checked (--stability off), and training is {doubt}.",
    "Search without --stability off.",
)
PRECISION_UNDECIDED = (
    "Whether this learns as {reference} does is undecided: {why}.",
    "Compare a longer run of both, or hold what changes the arithmetic ([{hold}, or ]--exact).",
)
NOISE_SCALE_UNKNOWN = (
    "{why}[ The recommendation has the most samples/s; nothing is known about large batches.]",
    "Search again when the cause is gone, or with --objective throughput.",
)
NOISE_SCALE_EARLY = (
    "The loss had not fallen by 10% in the {steps} steps before the noise scale was measured.[ At the start of "
    "training it can be wrong by a factor of {factor}.]",
    "Train longer with each batch before you rely on it, or search with --objective throughput.",
)
LARGEST_BATCH_UNTRIED_OWN_LOOP = (
    "Batches differ in shape, and the largest was not tried, because this data does not show which one it is."
    "[ {free_share:share} of the memory is kept free for it.]",
    "The target's own loop chooses its batches: pad all of them to the longest to have it tried.",
)
PAUSES_LEFT_OUT = (
    "Evaluations and checkpoints took {seconds:.3g} s, training steps {measured:.3g} s.",
    "Only the steps are measured; your own run also spends the rest.",
)
LOADER_BOUND_COMMAND = (
    TROUBLE_WITH_LOADER,
    "If the command takes an argument for its workers, add it to the command with its present value, and it is "
    "tuned; or make the samples cheaper.",
)
CODE_CHANGED = (
    "{file}[, or rather what it imports ({modules}),] changed since this study began: its probes may have run "
    "other code than today's.",
    "Start a new study with --fresh.",
)
NOT_CONFIRMED = (
    "There was no time to confirm this: only one probe of it and one of the baseline are compared.",
    "Search again with a longer --time-budget; the measurements are kept.",
)
NOTHING_COMPILED = (
    "compile_mode {mode} compiled nothing: training does not call the model by model(...), or torch skipped all of it.",
    "Compile the part that is called, in your own code, or search with --compile none.",
)
COMPILED_IN_WINDOW = (
    "torch.compile compiled {frames:counted frame} inside the timed window of {probes} of {of} probes, which took "
    "{seconds:.3g} s: batches change their shape, or something else changes that the compiled code depends on.",
    "Pad batches to few lengths, or mark what changes with torch._dynamo.mark_dynamic; TORCH_LOGS=recompiles says why.",
)
RANKS_UNEVEN = (
    "Rank {rank} works {share:share} longer in a step than the {ranks} ranks do on average, and the others wait.",
    "Give all ranks samples of the same cost, by a sampler that sorts them by length or balances them.",
)
RANKS_MEMORY_UNEVEN = (
    "Rank {rank} needs {share:share} more memory than the {ranks} ranks do on average, and limits all batches.",
    "Look for what only this rank holds: logging, evaluation, or a table that is not shared out.",
)
COMMUNICATION_EXPOSED = (
    "{share:share} of a micro-step is an exchange of gradients that does not overlap computing.",
    "A search tries --strategy, --bucket and --bucket-view, unless --fix or --tune holds them; only a larger global "
    "batch exchanges less often.",
)
DIFFERS_ELSEWHERE = (
    "On a second machine ({worker}) this is {speedup:.2f} times as fast; here it is {here:.2f} times.",
    "Search on machines that are alike.",
)
LOADER_BOUND_WORKERS_OPEN = (
    TROUBLE_WITH_LOADER,
    "More workers, up to {workers}, were tried without a clear result. Search longer, or make the samples cheaper.",
)
FAULTS_SPREAD = (
    "Repeats of one configuration scatter by {spread:.0%} (standard deviation), mostly by page faults.[ Smaller gains "
    "are not reliable.]",
    "--fix malloc=glibc keeps the memory that processes give back.",
)
FAILS_ELSEWHERE = (
    "On a second machine ({worker}) this or the baseline does not run; here it is {here:.2f} times as fast.",
    "Search on machines that are alike.",
)
RANKS_DIFFER = (
    "The ranks never had the same values of {parameters:few} after an optimizer step: right for parts of a model that "
    "each rank has for itself, wrong for copies of one model.",
    "`autotune check` says what was seen; let DistributedDataParallel wrap what is to be equal, and broadcast buffers.",
)
PRECISION_REFUSED = (
    "{why}, so it is not recommended.",
    "Compute in float32 what its rounding spoils, such as a logarithm or a division, and search with --fresh.",
)
CONFIGURATIONS_FAILED = (
    "{count:counted configuration} {outcome}[ ({error})][, {others:,} with another error][, {hung:,} hung]"
    "[, and {crashed:,} crashed]: their speed is not known.",
    "[Mend {place}, or hold what it needs with --fix.][Mend {line}, or leave that setting out: --fix {fix}.]"
    "[ `autotune explain STUDY --measure` tries again the settings of {accidents:counted configuration} that only hung "
    "or crashed.]",
)
