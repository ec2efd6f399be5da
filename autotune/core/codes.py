"""All warnings and reasons that an answer may contain, and what doctor says: code, number, sentence, and next step.

A sentence names its numbers in braces, with their format: `{wait_share:share}`. The part in square brackets is left out
if one of its numbers is not given, or if there is little room. A number may be a notice itself, or a tuple of notices:
those of 11xx appear in other notices only. `docs/messages.md` is generated from this table.
"""

from __future__ import annotations

from autotune.core import loss_sentences as losses
from autotune.core import machine_sentences as machine
from autotune.core import not_searched_sentences as unsearched
from autotune.core import reason_sentences as reasons
from autotune.core import warning_sentences as warnings
from autotune.core.numbered_code import NumberedCode

BETTER, WORSE = "{share:difference} {better}", "{share:difference} {worse}"
NO_NOISE_SCALE = "The gradient noise scale could not be measured: "
MORE_MEMORY = "[, needs {peak_bytes:bytes} instead of {chosen_bytes:bytes}]"


class Code(NumberedCode):
    """The code of a notice, by number: 1xx are warnings, 2xx reasons for the choice, and so on as the comments say."""

    EARLIER = "earlier", 0, "A sentence that another version wrote."

    # fmt: off
    # 1xx: warnings
    ONLY_BASELINE_TRIED = "only-baseline-tried", 101, *warnings.ONLY_BASELINE_TRIED
    GLOBAL_BATCH_CHANGED = "global-batch-changed", 102, *warnings.GLOBAL_BATCH_CHANGED
    GLOBAL_BATCH_CHANGED_NOISE_SCALE = (
        "global-batch-changed-noise-scale", 103, *warnings.GLOBAL_BATCH_CHANGED_NOISE_SCALE)
    LOADER_BOUND = "loader-bound", 104, *warnings.LOADER_BOUND
    LOADER_BOUND_SEARCH_SHORT = "loader-bound-search-short", 105, *warnings.LOADER_BOUND_SEARCH_SHORT
    LOADER_BOUND_WORKERS_TRIED = "loader-bound-workers-tried", 106, *warnings.LOADER_BOUND_WORKERS_TRIED
    LOADER_BOUND_WORKERS_FIXED = "loader-bound-workers-fixed", 107, *warnings.LOADER_BOUND_WORKERS_FIXED
    SAMPLES_REPEATED = "samples-repeated", 108, *warnings.SAMPLES_REPEATED
    MEMORY_GROWS = "memory-grows", 109, *warnings.MEMORY_GROWS
    LARGEST_BATCH_UNTRIED = "largest-batch-untried", 110, *warnings.LARGEST_BATCH_UNTRIED
    BATCH_NORM = "batch-norm", 111, *warnings.BATCH_NORM
    RATES_SPREAD = "rates-spread", 112, *warnings.RATES_SPREAD
    INTERFERENCE_THROUGHOUT = "interference-throughout", 113, *warnings.INTERFERENCE_THROUGHOUT
    SYNTHETIC_BATCHES = "synthetic-batches", 114, *warnings.SYNTHETIC_BATCHES
    PROBES_LEFT_OUT = "probes-left-out", 115, *warnings.PROBES_LEFT_OUT
    CONFIRMATION_INTERFERENCE = "confirmation-interference", 116, *warnings.CONFIRMATION_INTERFERENCE
    LOSSES_UNJUDGED = "losses-unjudged", 117, *warnings.LOSSES_UNJUDGED
    PRECISION_UNDECIDED = "precision-undecided", 118, *warnings.PRECISION_UNDECIDED
    NOISE_SCALE_UNKNOWN = "noise-scale-unknown", 119, *warnings.NOISE_SCALE_UNKNOWN
    NOISE_SCALE_EARLY = "noise-scale-early", 120, *warnings.NOISE_SCALE_EARLY
    LARGEST_BATCH_UNTRIED_OWN_LOOP = "largest-batch-untried-own-loop", 121, *warnings.LARGEST_BATCH_UNTRIED_OWN_LOOP
    PAUSES_LEFT_OUT = "pauses-left-out", 122, *warnings.PAUSES_LEFT_OUT
    LOADER_BOUND_COMMAND = "loader-bound-command", 123, *warnings.LOADER_BOUND_COMMAND
    CODE_CHANGED = "code-changed", 124, *warnings.CODE_CHANGED
    NOT_CONFIRMED = "not-confirmed", 125, *warnings.NOT_CONFIRMED
    NOTHING_COMPILED = "nothing-compiled", 126, *warnings.NOTHING_COMPILED
    COMPILED_IN_WINDOW = "compiled-in-window", 127, *warnings.COMPILED_IN_WINDOW
    RANKS_UNEVEN = "ranks-uneven", 128, *warnings.RANKS_UNEVEN
    RANKS_MEMORY_UNEVEN = "ranks-memory-uneven", 129, *warnings.RANKS_MEMORY_UNEVEN
    COMMUNICATION_EXPOSED = "communication-exposed", 130, *warnings.COMMUNICATION_EXPOSED
    DIFFERS_ELSEWHERE = "differs-elsewhere", 131, *warnings.DIFFERS_ELSEWHERE
    LOADER_BOUND_WORKERS_OPEN = "loader-bound-workers-open", 132, *warnings.LOADER_BOUND_WORKERS_OPEN
    FAULTS_SPREAD = "faults-spread", 133, *warnings.FAULTS_SPREAD
    FAILS_ELSEWHERE = "fails-elsewhere", 134, *warnings.FAILS_ELSEWHERE
    PRECISION_REFUSED = "precision-refused", 135, *warnings.PRECISION_REFUSED
    RANKS_DIFFER = "ranks-differ", 136, *warnings.RANKS_DIFFER
    CONFIGURATIONS_FAILED = "configurations-failed", 137, *warnings.CONFIGURATIONS_FAILED
    LONE_RATE_INTERFERENCE = "lone-rate-interference", 138, *warnings.LONE_RATE_INTERFERENCE
    LOSS_OF_BATCH = "loss-of-batch", 139, *warnings.LOSS_OF_BATCH
    LOADER_BOUND_CORES_FULL = "loader-bound-cores-full", 140, *warnings.LOADER_BOUND_CORES_FULL
    BASELINE_RATE_INTERFERENCE = "baseline-rate-interference", 141, *warnings.BASELINE_RATE_INTERFERENCE
    MEMORY_GROWS_LINE = "memory-grows-line", 142, *warnings.MEMORY_GROWS_LINE

    # 2xx: reasons for the choice, and what it costs
    GLOBAL_BATCH_HELD = "global-batch-held", 201, "global batch held at {batch}"
    EXACT = "exact", 202, "computes what the baseline computes, up to the order of rounding (--exact)"
    FASTER_BUT_FAILED = "faster-but-failed", 203, reasons.FASTER_BUT_FAILED
    COST = "cost", 204, reasons.COST
    COST_OF_BASELINE = "cost-of-baseline", 205, reasons.COST_OF_BASELINE
    COST_SAVED = "cost-saved", 206, "saves {saved:money} of the {total:money} that 1,000 h of the baseline cost"
    COST_ADDED = "cost-added", 207, "costs {added:money} more than the {total:money} that 1,000 h of the baseline cost"
    ENERGY = "energy", 208, reasons.ENERGY
    LEAST_MEMORY_IS_FASTEST = "least-memory-is-fastest", 209, reasons.LEAST_MEMORY_IS_FASTEST
    LEAST_MEMORY = "least-memory", 210, reasons.LEAST_MEMORY
    NOISE_SCALE = "noise-scale", 211, reasons.NOISE_SCALE
    NOISE_SCALE_AT_LEAST = "noise-scale-at-least", 212, reasons.NOISE_SCALE_AT_LEAST
    BATCH_EFFICIENCY = "batch-efficiency", 213, reasons.BATCH_EFFICIENCY
    NOISE_SCALE_GROWS = "noise-scale-grows", 214, reasons.NOISE_SCALE_GROWS
    BEST_GLOBAL_BATCH = "best-global-batch", 215, reasons.BEST_GLOBAL_BATCH
    GLOBAL_BATCH_UNDECLARED = "global-batch-undeclared", 216, reasons.GLOBAL_BATCH_UNDECLARED
    GLOBAL_BATCH_FREE = "global-batch-free", 217, reasons.GLOBAL_BATCH_FREE
    FASTER_WITH_BASELINE_BATCH = "faster-with-baseline-batch", 218, reasons.FASTER_WITH_BASELINE_BATCH
    NOT_FASTER_WITH_BASELINE_BATCH = "not-faster-with-baseline-batch", 219, reasons.NOT_FASTER_WITH_BASELINE_BATCH
    COMPILING = "compiling", 220, reasons.COMPILING
    GRAPH_BREAKS = "graph-breaks", 221, reasons.GRAPH_BREAKS
    AGREES_ELSEWHERE = "agrees-elsewhere", 222, "{speedup:.2f} times as fast on a second machine ({worker})"
    ACCUMULATION_PREDICTED = "accumulation-predicted", 223, reasons.ACCUMULATION_PREDICTED
    ACCUMULATION_MISPREDICTED = "accumulation-mispredicted", 224, reasons.ACCUMULATION_MISPREDICTED
    BASELINE_BATCH_ALONE = "baseline-batch-alone", 225, reasons.BASELINE_BATCH_ALONE

    # 3xx: why a configuration was not chosen
    NOT_MEASURED_AGAIN = "not-measured-again", 301, "not re-measured"
    FAILED = "failed", 302, "{failure}"
    MEASURED_FOR_COMPARISON = "measured-for-comparison", 303, "measured for comparison only: {why}"
    FASTER_WITHIN_LIMIT = "faster-within-limit", 304, BETTER + ", within the speed that may be given up" + MORE_MEMORY
    FASTER_BELOW_THRESHOLD = ("faster-below-threshold", 305,
        BETTER + " (below the {threshold:.0%} threshold)" + MORE_MEMORY)
    FASTER_NOT_SIGNIFICANT = "faster-not-significant", 306, BETTER + " (not significant)" + MORE_MEMORY
    SLOWER_NOT_SIGNIFICANT = "slower-not-significant", 307, WORSE + " (not significant)" + MORE_MEMORY
    SLOWER = "slower", 308, WORSE + MORE_MEMORY
    FASTER_WITH_LARGER_BATCH = ("faster-with-larger-batch", 309,
        BETTER + ", too little for a global batch of {batch}" + MORE_MEMORY)
    FASTER_PRECISION_UNDECIDED = ("faster-precision-undecided", 310,
        BETTER + ", too little for a precision whose losses are undecided (under {least:.0%})" + MORE_MEMORY)
    FASTER_OTHER_MICRO_BATCH = ("faster-other-micro-batch", 311,
        BETTER + ", not surely the {least:.0%} that a change of the batch must gain" + MORE_MEMORY)
    FASTER_BESIDE_OTHERS = ("faster-beside-others", 312,
        BETTER + ", while other processes held the baseline's cores" + MORE_MEMORY)

    # 4xx: what is known about the losses
    LOSSES_NOT_CHECKED = "losses-not-checked", 401, losses.LOSSES_NOT_CHECKED
    LOSSES_FINITE = "losses-finite", 402, losses.LOSSES_FINITE
    LOSSES_NOT_COMPARED = "losses-not-compared", 403, losses.LOSSES_NOT_COMPARED
    LOSSES_NOT_CLEARED = "losses-not-cleared", 404, losses.LOSSES_NOT_CLEARED
    LOSSES_MATCH = "losses-match", 405, losses.LOSSES_MATCH
    LEARNS_LESS = "learns-less", 406, losses.LEARNS_LESS
    LOSSES_UNDECIDED = "losses-undecided", 407, losses.LOSSES_UNDECIDED
    ONE_SEED_UNDECIDED = "one-seed-undecided", 408, losses.ONE_SEED_UNDECIDED
    COMPARISON_FAILED = "comparison-failed", 409, losses.COMPARISON_FAILED
    COMPARISON_SHORT = "comparison-short", 410, losses.COMPARISON_SHORT
    REFERENCE_NOT_FINITE = "reference-not-finite", 411, losses.REFERENCE_NOT_FINITE
    REFERENCE_LEARNS_NOTHING = "reference-learns-nothing", 412, losses.REFERENCE_LEARNS_NOTHING
    LOSSES_NOT_FINITE = "losses-not-finite", 413, losses.LOSSES_NOT_FINITE
    FIRST_STEPS_SKIPPED = "first-steps-skipped", 414, losses.FIRST_STEPS_SKIPPED
    STEPS_SKIPPED = "steps-skipped", 415, losses.STEPS_SKIPPED
    LOSS_SCALE_FELL = "loss-scale-fell", 416, losses.LOSS_SCALE_FELL
    GRADIENTS_UNDERFLOW = "gradients-underflow", 417, losses.GRADIENTS_UNDERFLOW
    GRADIENTS_JUMP = "gradients-jump", 418, losses.GRADIENTS_JUMP

    # 5xx: what is known about the configurations that were not tried
    ALL_MEASURED = ("all-measured", 501,
        "all candidates measured: {measured:counted configuration}[; {left_out:,} more were ruled out without a "
        "probe]; no other in the space could fit and be {better}")
    BOUNDED = "bounded", 502, "untried configurations: at most {rest:share} {better} (90% confidence, model estimate)"
    SAMPLED = ("sampled", 503,
        "{measured:,} of {total:counted configuration} tried[, {failed:,} of which did not run]; no estimate for the "
        "rest")

    ALL_TRIED = ("all-tried", 504,
        "{measured:,} of {total:counted configuration} measured[, {hung:,} hung][, {crashed:,} crashed]"
        "[, {failed:,} failed in your code][, {left_out:,} ruled out without a probe]")

    # 6xx: what was gained, if that is not speed
    LESS_MEMORY = ("less-memory", 601,
        "{saved:share} less memory than {baseline} ({peak_bytes:bytes} instead of {baseline_bytes:bytes}) at "
        "{speedup:.2f}× its speed")
    LESS_ENERGY = "less-energy", 602, "{gain:.2f}× as many samples per joule as {baseline} ({low:.2f} to {high:.2f})"
    SOONER_TO_LOSS = ("sooner-to-loss", 603,
        "{gain:.2f}× as fast to a given loss as {baseline} ({low:.2f} to {high:.2f}, estimated)")

    # 7xx: why a probe does not count
    PROBE_FAILED = "probe-failed", 701, "{outcome}: {failure}"
    NEEDS_MEMORY = "needs-memory", 702, "needs {peak_bytes:bytes}, {usable_bytes:bytes} may be used"
    MEMORY_THRASHES = (
        "memory-thrashes", 703, "memory thrashes: its cache was flushed {retries} times in the window")
    MEMORY_SPILLED = ("memory-spilled", 704,
        "a sample takes {factor:.1f} times as long as with batch_size {batch}, with {used:share} of the device's "
        "memory in use: the driver probably moved part of it to the host")
    UNSTABLE_NOT_FINITE = "unstable-not-finite", 705, "unstable: {broken} of {losses} losses are not finite"
    UNSTABLE_STEPS_SKIPPED = ("unstable-steps-skipped", 706,
        "unstable: the gradient scaler skipped {skipped} of {steps} steps after calibration")
    UNSTABLE_LOSS_GREW = ("unstable-loss-grew", 707,
        "unstable: the loss grew from {first:.3g} to {last:.3g} in {losses} steps")
    NO_SCORE = ("no-score", 708,
        "The probe did not measure what this objective needs.", "Search with --objective throughput.")
    NO_ENERGY = ("no-energy", 709, "The probe has no reading of the GPU's energy counter.",
        "Search with --objective throughput: what is faster mostly takes less energy too.")

    # 8xx: why a change was not tested, or is kept although rounds do not show its gain
    CHANGE_WITHOUT_TIME = "change-without-time", 801, "no time was left"
    CHANGE_DROPPED_WITH_OTHERS = "change-dropped-with-others", 802, "dropped together with others"
    CHANGE_NOT_MEASURED = "change-not-measured", 803, "not measured"
    CHANGE_INTERRUPTED = "change-interrupted", 804, "interrupted"
    CHANGE_OUTSIDE_SPACE = "change-outside-space", 805, "{why}"
    CHANGE_CRASHED = "change-crashed", 806, "it crashed, or took the search down with it, twice"
    CHANGE_NEEDS_MEMORY = "change-needs-memory", 807, "it would not fit into memory"
    CHANGE_NOT_YET_MEASURED = "change-not-yet-measured", 808, "not measured yet"
    CHANGE_NOT_ALONE = "change-not-alone", 809, "not measured"
    CHANGE_SPARES_FAULTS = "change-spares-faults", 810, "spares page faults, {share:share} of a step"

    # 9xx: why the memory of an arm is not predicted
    NOT_PREDICTED_IN_TIME = "not-predicted-in-time", 901, "there was no time left for it"
    CONTENTS_DECIDE = "contents-decide", 902, "what it computes depends on the contents of tensors ({operator})"
    NEEDS_REAL_TENSORS = "needs-real-tensors", 903, "an operator can only run on real tensors ({operator})"
    CANNOT_PREDICT = "cannot-predict", 904, "{why}"  # the message of an error: data. In earlier versions any reason
    BATCHES_MIXED = "batches-mixed", 905, "batches hold a {first} here and a {second} there"
    BATCHES_SPARSE = "batches-sparse", 906, "batches hold sparse tensors"
    BATCH_SIZE_UNKNOWN = ("batch-size-unknown", 907,
        "a batch holds a {content}, whose size for more samples is not known")
    DIMENSIONS_VARY = "dimensions-vary", 908, "batches hold tensors with different numbers of dimensions"
    LENGTH_VARIES = "length-varies", 909, "batches hold lists of {first} and {second} entries"
    SHAPES_VARY = ("shapes-vary", 910,
        "shapes vary from batch to batch, and the file has no worst_batch(batch_size)")
    NO_SUCH_BATCH = "no-such-batch", 911, "the data has no batch of {size} samples"
    NOTHING_PREDICTED = "nothing-predicted", 912, "no configuration was tried"

    # 10xx: what no setting can improve
    SLOW_LINE = ("slow-line", 1001,
        "{place}: {milliseconds:rate} ms a step ({share:share}), {kind:seen}.", "Instead: {kind:instead}.")

    # 11xx: parts of other notices: why something is so, or one of a list
    OTHER_GLOBAL_BATCH = "other-global-batch", 1101, "its global batch is {batch}, and {held} is held"
    VALUE_NOT_SEARCHED = "value-not-searched", 1102, "its {knob} is {value}, and only {searched:values} may be searched"
    COMBINATION_LEFT_OUT = "combination-left-out", 1103, "the limits leave this combination of values out"
    NOT_COMPARED_IN_TIME = ("not-compared-in-time", 1104,
        "there was no time to compare its losses with those of {reference}")
    NOISE_SCALE_FAILED = "noise-scale-failed", 1105, NO_NOISE_SCALE + "{error}."
    GRADIENTS_TELL_NOTHING = ("gradients-tell-nothing", 1106,
        NO_NOISE_SCALE + "the gradients of all micro-batches are alike, or too few.")
    CORES_BUSY = ("cores-busy", 1107,
        "other processes kept {cores:.1f} cores busy, and the probe waited {wait_share:share} of its time for a core")
    GPU_THROTTLED = "gpu-throttled", 1108, "{reason} of its GPU"
    GPU_SHARED = "gpu-shared", 1109, "other processes took {share:share} of its GPU's time"
    GPU_CLOCK_MOVED = "gpu-clock-moved", 1110, "the clock of its GPU moved between {low} and {high} MHz"
    SLOWED_BY_UNKNOWN = "slowed-by-unknown", 1111, "far slower than its other rounds, cause unknown"
    SLOWED_PROBE = ("slowed-probe", 1112, "probe {number}[ at {samples_per_second:rate} samples/s] ({causes:all})")
    SLOWED_ROUNDS = "slowed-rounds", 1113, "{configuration} in {slowed} of {rounds}"

    # 12xx: what users expect to be searched or measured and is not
    KNOBS_WITHOUT_ARGUMENT = "knobs-without-argument", 1201, unsearched.KNOBS_WITHOUT_ARGUMENT
    COMMAND_WITHOUT_ARGUMENTS = "command-without-arguments", 1202, unsearched.COMMAND_WITHOUT_ARGUMENTS
    BF16_NEEDS_OPTION = "bf16-needs-option", 1203, unsearched.BF16_NEEDS_OPTION
    ACCUMULATION_NOT_TAKEN = "accumulation-not-taken", 1204, unsearched.ACCUMULATION_NOT_TAKEN
    VALUES_NOT_AVAILABLE = "values-not-available", 1205, unsearched.VALUES_NOT_AVAILABLE
    VALUES_IDLE = "values-idle", 1206, unsearched.VALUES_IDLE
    VALUES_ALIKE = "values-alike", 1207, unsearched.VALUES_ALIKE
    BASELINE_IDLE = "baseline-idle", 1208, unsearched.BASELINE_IDLE
    BASELINE_ALIKE = "baseline-alike", 1209, unsearched.BASELINE_ALIKE
    LOOP_ONLY_OBSERVED = "loop-only-observed", 1210, unsearched.LOOP_ONLY_OBSERVED
    WORKERS_NOT_TAKEN = "workers-not-taken", 1211, unsearched.WORKERS_NOT_TAKEN
    WORKERS_REPEAT_SAMPLES = "workers-repeat-samples", 1212, unsearched.WORKERS_REPEAT_SAMPLES
    EXACT_HOLDS_BATCH = "exact-holds-batch", 1213, unsearched.EXACT_HOLDS_BATCH
    EXACT_HOLDS_KNOB = "exact-holds-knob", 1214, unsearched.EXACT_HOLDS_KNOB
    ACCUMULATION_NOT_SEARCHED = "accumulation-not-searched", 1215, unsearched.ACCUMULATION_NOT_SEARCHED
    BATCHES_DO_NOT_DIVIDE = "batches-do-not-divide", 1216, unsearched.BATCHES_DO_NOT_DIVIDE
    BATCHES_EXCEED_DATA = "batches-exceed-data", 1217, unsearched.BATCHES_EXCEED_DATA
    NO_OTHER_BATCH_DIVIDES = "no-other-batch-divides", 1218, unsearched.NO_OTHER_BATCH_DIVIDES
    ONLY_VALUE = "only-value", 1219, unsearched.ONLY_VALUE
    STUDY_WITHOUT_KNOB = "study-without-knob", 1220, unsearched.STUDY_WITHOUT_KNOB
    MACHINE_LACKS_VALUES = "machine-lacks-values", 1221, unsearched.MACHINE_LACKS_VALUES
    LOSS_HOLDS_BATCH = "loss-holds-batch", 1222, unsearched.LOSS_HOLDS_BATCH
    MODEL_COMPILED_BY_CODE = "model-compiled-by-code", 1223, unsearched.MODEL_COMPILED_BY_CODE
    # 13xx: what doctor says of a machine
    DEVICE_FOUND = "device-found", 1301, "{device}: {device_name}, {device_bytes:bytes}"
    DEVICE_UNUSABLE = "device-unusable", 1302, "{error}"  # the message of an error: data
    DEVICE_UNKNOWN = "device-unknown", 1303, "the probe process left no word"
    TORCH_WITH_CUDA = "torch-with-cuda", 1304, machine.TORCH_WITH_CUDA
    TORCH_WITHOUT_CUDA = "torch-without-cuda", 1305, machine.TORCH_WITHOUT_CUDA
    GPU_NEEDS_CUDA_BUILD = "gpu-needs-cuda-build", 1306, *machine.GPU_NEEDS_CUDA_BUILD
    GPU_DRIVER_TOO_OLD = "gpu-driver-too-old", 1307, *machine.GPU_DRIVER_TOO_OLD
    NATIVE_DTYPES = "native-dtypes", 1308, "computed natively: {native_dtypes:values}"
    NO_NATIVE_DTYPES = "no-native-dtypes", 1309, "computed natively: none besides float32"
    COMPILER_FOUND = "compiler-found", 1310, "torch.compile with {compiler}"
    CPU_COMPILER_MISSING = "cpu-compiler-missing", 1311, *machine.CPU_COMPILER_MISSING
    CUDA_COMPILER_MISSING = "cuda-compiler-missing", 1312, *machine.CUDA_COMPILER_MISSING
    COMPILER_MISSING = "compiler-missing", 1313, machine.COMPILER_MISSING
    CORES_FREE = "cores-free", 1314, machine.CORES_FREE
    CORES_SHARED = "cores-shared", 1315, *machine.CORES_SHARED
    CORES_TAKEN = "cores-taken", 1316, *machine.CORES_TAKEN
    HOST_MEMORY = "host-memory", 1317, "{available_bytes:bytes} of {total_bytes:bytes} available ({limit_source})"
    VALUES_OFFERED = "values-offered", 1318, "can be tuned: {values:values}[; not installed: {missing:values}]"
    SET_BY_ENVIRONMENT = "set-by-environment", 1319, "not tuned: your environment sets {variables:values}"
    SHARED_MEMORY = "shared-memory", 1320, machine.SHARED_MEMORY
    SHARED_MEMORY_SMALL = "shared-memory-small", 1321, *machine.SHARED_MEMORY_SMALL
    PROBES_FORKED = "probes-forked", 1322, "forked from a process of {fork_server_bytes:bytes} that has torch imported"
    PROBES_FRESH = "probes-fresh", 1323, "fresh processes: {reason}"
    GPU_FREE = "gpu-free", 1324, machine.GPU_FREE
    GPU_IN_USE = "gpu-in-use", 1325, *machine.GPU_IN_USE
    NVML_UNUSED = "nvml-unused", 1326, "not used: {error}"
    PYNVML_DEPRECATED = "pynvml-deprecated", 1327, *machine.PYNVML_DEPRECATED
    # fmt: on


# Of a change: nothing forbade measuring it.
UNMEASURED = (Code.CHANGE_WITHOUT_TIME, Code.CHANGE_NOT_MEASURED, Code.CHANGE_INTERRUPTED, Code.CHANGE_NOT_ALONE)
