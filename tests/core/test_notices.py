"""Warnings and reasons: a closed list of codes, and what each of them says."""

import math
import re
from pathlib import Path

import pytest

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.notices import COSTLIEST_WARNINGS, Notice, costliest_first, named, notice
from autotune.core.records import Record
from tests.worlds import earlier

PACKAGE = Path(__file__).parent.parent.parent / "autotune"
# ruff: noqa: E501 - whole sentences, as they are read
# fmt: off
SLOWED = notice(
    Code.SLOWED_PROBE, number=7, samples_per_second=125.0, causes=(notice(Code.GPU_CLOCK_MOVED, low=1400, high=1500),))
NO_MEMORY = notice(Code.PROBE_FAILED, outcome="out of memory", failure="tried to allocate 2 GiB")
SAID = [
    (notice(Code.ONLY_BASELINE_TRIED),
     'Only the baseline was tried: it used up the budget. Search again with a longer --time-budget (or more --probes); the measurements are kept.'),
    (notice(Code.GLOBAL_BATCH_CHANGED, now=256, before=64, factor=4.0, learning_rate_factor=2.0),
     'The global batch changes from 64 to 256 samples per optimizer step, which changes what the model learns. As a starting point, multiply the learning rate by 2 (the square root of 4), restate schedules in samples, and compare the losses; or hold the batch with --global-batch 64.'),
    (notice(Code.GLOBAL_BATCH_CHANGED_NOISE_SCALE, now=128, before=64, factor=2.0, sgd_factor=1.33, adam_factor=1.15),
     'The global batch changes from 64 to 128 samples per optimizer step, which changes what the model learns. As a starting point, multiply the learning rate by 1.3 with SGD, or by 1.1 with Adam and its beta2 to the power of 2 (from the noise scale, right to about a factor of 2), restate schedules in samples, and compare the losses; or hold the batch with --global-batch 64.'),
    (notice(Code.LOADER_BOUND, wait_share=0.34, workers=16),
     'Training waits for data 34% of the time. Allow more workers with --workers 0:16, or make the samples cheaper.'),
    (notice(Code.LOADER_BOUND_SEARCH_SHORT, wait_share=0.34, workers=8),
     'Training waits for data 34% of the time. Search longer (up to 8 workers are allowed), or make the samples cheaper.'),
    (notice(Code.LOADER_BOUND_WORKERS_TRIED, wait_share=0.34, workers=8),
     'Training waits for data 34% of the time. More workers, up to 8, were tried and gained nothing: make the samples cheaper.'),
    (notice(Code.LOADER_BOUND_WORKERS_FIXED, wait_share=0.34),
     'Training waits for data 34% of the time. Let dataloader() take num_workers, which is then tuned, or make the samples cheaper.'),
    (notice(Code.SAMPLES_REPEATED, workers=4, before=0),
     'Each of the 4 workers iterates over the whole iterable dataset, so every sample comes 4 times, unless __iter__ splits it by torch.utils.data.get_worker_info(). Check that it does, or keep the workers with --fix workers=0.'),
    (notice(Code.MEMORY_GROWS, step_bytes=8388608, steps_left=1024),
     'Memory grows by 8 MiB with every step: it runs out after about 1,024 steps, with any configuration. Something probably keeps the graph of every step, such as `total += loss` or a list of outputs. Keep numbers instead (`total += loss.item()`), or use `.detach()`; `autotune profile` looks for the line.'),
    (notice(Code.LARGEST_BATCH_UNTRIED, free_share=0.1),
     'Batches differ in shape, and the largest was not tried, because this data does not show which one it is. 10% of the memory is kept free for it. Write worst_batch(batch_size), which returns one such batch, to have it tried.'),
    (notice(Code.BATCH_NORM, now=32, before=64),
     'BatchNorm now sees micro-batches of 32 instead of 64, which changes its statistics. Keep batch_size 64 where that matters (--fix batch=64, or --exact).'),
    (notice(Code.RATES_SPREAD, spread=0.13),
     'Repeats of one configuration scatter by 13% (standard deviation): this machine is busy or throttled. Smaller gains are not reliable. Search again when the machine is quiet.'),
    (notice(Code.INTERFERENCE_THROUGHOUT),
     'Other processes interfered throughout: rates are underestimated, and small differences are unreliable. Search again when the machine is quiet.'),
    (notice(Code.SYNTHETIC_BATCHES),
     'The batches are synthetic: data loading was neither measured nor tuned. Write dataset() to measure and tune it.'),
    (notice(Code.PROBES_LEFT_OUT, count=1, probes=(SLOWED,)),
     'The confirmation leaves out 1 probe that something slowed: probe 7 at 125 samples/s (the clock of its GPU moved between 1400 and 1500 MHz). Close other work while a search runs.'),
    (notice(Code.CONFIRMATION_INTERFERENCE, rounds=(notice(Code.SLOWED_ROUNDS, configuration='64×1 bf16', slowed=2, rounds=3),), probes=(SLOWED,)),
     'Which configuration is faster is not certain, and the rates are probably too low: there was interference in too many probes: 64×1 bf16 in 2 of 3. For lack of better ones, these probes count: probe 7 at 125 samples/s (the clock of its GPU moved between 1400 and 1500 MHz). Close other work and run the same command again.'),
    (notice(Code.LOSSES_UNJUDGED, doubt=notice(Code.UNSTABLE_NOT_FINITE, broken=3, losses=4)),
     'The losses were not checked (--stability off), and training is unstable: 3 of 4 losses are not finite. Search without --stability off.'),
    (notice(Code.PRECISION_UNDECIDED, reference="full precision", why=notice(Code.NOT_COMPARED_IN_TIME, reference="full precision"), hold="--fix amp=none"),
     'Whether this learns as full precision does is undecided: there was no time to compare its losses with those of full precision. Compare a longer run of both, or hold what changes the arithmetic (--fix amp=none, or --exact).'),
    (notice(Code.NOISE_SCALE_UNKNOWN, why=notice(Code.NOISE_SCALE_FAILED, error='out of memory')),
     'The gradient noise scale could not be measured: out of memory. The recommendation has the most samples/s; nothing is known about large batches. Search again when the cause is gone, or with --objective throughput.'),
    (notice(Code.NOISE_SCALE_EARLY, steps=30, factor=30),
     'The loss had not fallen by 10% in the 30 steps before the noise scale was measured. At the start of training it can be wrong by a factor of 30. Train longer with each batch before you rely on it, or search with --objective throughput.'),
    (notice(Code.LARGEST_BATCH_UNTRIED_OWN_LOOP, free_share=0.1),
     "Batches differ in shape, and the largest was not tried, because this data does not show which one it is. 10% of the memory is kept free for it. The target's own loop chooses its batches: pad all of them to the longest to have it tried."),
    (notice(Code.PAUSES_LEFT_OUT, seconds=2.5, measured=10.04),
     'Evaluations and checkpoints took 2.5 s, training steps 10 s. Only the steps are measured; your own run also spends the rest.'),
    (notice(Code.LOADER_BOUND_COMMAND, wait_share=0.34),
     'Training waits for data 34% of the time. If the command takes an argument for its workers, add it to the command with its present value, and it is tuned; or make the samples cheaper.'),
    (notice(Code.CODE_CHANGED, file='train.py'),
     "train.py changed since this study began: its probes may have run other code than today's. Start a new study with --fresh."),
    (notice(Code.NOT_CONFIRMED),
     'There was no time to confirm this: only one probe of it and one of the baseline are compared. Search again with a '
     'longer --time-budget; the measurements are kept.'),
    (notice(Code.NOTHING_COMPILED, mode='default'),
     'compile_mode default compiled nothing: training does not call the model by model(...), or torch skipped all of it. Compile the part that is called, in your own code, or search with --compile none.'),
    (notice(Code.COMPILED_IN_WINDOW, frames=2, seconds=3.21, probes=1, of=4),
     'torch.compile compiled 2 frames inside the timed window of 1 of 4 probes, which took 3.21 s: batches change their shape, or something else changes that the compiled code depends on. Pad batches to few lengths, or mark what changes with torch._dynamo.mark_dynamic; TORCH_LOGS=recompiles says why.'),
    (notice(Code.RANKS_UNEVEN, rank=1, share=0.25, ranks=2),
     'Rank 1 works 25% longer in a step than the 2 ranks do on average, and the others wait. Give all ranks samples of the same cost, by a sampler that sorts them by length or balances them.'),
    (notice(Code.RANKS_MEMORY_UNEVEN, rank=0, share=0.25, ranks=2),
     'Rank 0 needs 25% more memory than the 2 ranks do on average, and limits all batches. Look for what only this rank holds: logging, evaluation, or a table that is not shared out.'),
    (notice(Code.COMMUNICATION_EXPOSED, share=0.31),
     '31% of a micro-step is an exchange of gradients that does not overlap computing. A search tries --strategy, --bucket and --bucket-view, unless --fix or --tune holds them; only a larger global batch exchanges less often.'),
    (notice(Code.DIFFERS_ELSEWHERE, worker='node7', speedup=1.1, here=1.4),
     'On a second machine (node7) this is 1.10 times as fast; here it is 1.40 times. Search on machines that are alike.'),
    (notice(Code.LOADER_BOUND_WORKERS_OPEN, wait_share=0.34, workers=8),
     'Training waits for data 34% of the time. More workers, up to 8, were tried without a clear result. Search longer, or make the samples cheaper.'),
    (notice(Code.FAULTS_SPREAD, spread=0.13),
     'Repeats of one configuration scatter by 13% (standard deviation), mostly by page faults. Smaller gains are not reliable. --fix malloc=glibc keeps the memory that processes give back.'),
    (notice(Code.FAILS_ELSEWHERE, worker='node7', here=1.4),
     'On a second machine (node7) this or the baseline does not run; here it is 1.40 times as fast. Search on machines that are alike.'),
    (notice(Code.PRECISION_REFUSED, why=notice(Code.LOSSES_NOT_FINITE, candidate='bf16', reference='fp32', broken=39, steps=50, first=12)),
     'bf16 is unstable here: 39 of 50 losses are not finite, the first in step 12 (fp32: all are finite), so it is not recommended. Compute in float32 what its rounding spoils, such as a logarithm or a division, and search with --fresh.'),
    (notice(Code.RANKS_DIFFER, parameters=("Tables.table.weight",)),
     'The ranks never had the same values of Tables.table.weight after an optimizer step: right for parts of a model that each rank has for itself, wrong for copies of one model. `autotune check` says what was seen; let DistributedDataParallel wrap what is to be equal, and broadcast buffers.'),
    (notice(Code.CONFIGURATIONS_FAILED, count=2, outcome="hung", crashed=1, accidents=3),
     '2 configurations hung, and 1 crashed: their speed is not known. `autotune explain STUDY --measure` tries again the settings of 3 configurations that only hung or crashed.'),
    (notice(Code.LONE_RATE_INTERFERENCE, rounds=(notice(Code.SLOWED_ROUNDS, configuration='64×1', slowed=1, rounds=1),)),
     'The rate is probably too low: there was interference in too many probes: 64×1 in 1 of 1. Close other work and run the same command again.'),
    (notice(Code.LOSS_OF_BATCH, now=256, before=4096),
     'The loss is no mean over samples, and micro-batches of 256 instead of 4096 train another loss. Keep batch_size 4096 (--fix batch=4096), unless this loss is the one you want.'),
    (notice(Code.LOADER_BOUND_CORES_FULL, wait_share=0.29, workers=2),
     'Training waits for data 29% of the time. The cores are full with 2 workers and the loop, so more workers would not help: make the samples cheaper.'),
    (notice(Code.BASELINE_RATE_INTERFERENCE, rounds=(notice(Code.SLOWED_ROUNDS, configuration='64×1', slowed=1, rounds=1),)),
     "The baseline's rate is probably too low, which makes the gain look larger: there was interference in too many probes: 64×1 in 1 of 1. Close other work and run the same command again."),
    (notice(Code.MEMORY_GROWS_LINE, step_bytes=8388608, steps_left=1024, place='model.py:9 in loss', holder='kept'),
     'Memory grows by 8 MiB with every step, probably because what model.py:9 in loss makes is kept, in kept: it runs out after about 1,024 steps, with any configuration. Keep numbers instead (`total += loss.item()`), or use `.detach()`.'),
    (notice(Code.GLOBAL_BATCH_HELD, batch=64),
     'global batch held at 64'),
    (notice(Code.EXACT),
     'computes what the baseline computes, up to the order of rounding (--exact)'),
    (notice(Code.FASTER_BUT_FAILED, configuration='64×1 bf16', failure=NO_MEMORY),
     '64×1 bf16 was faster in the search and failed when re-measured: out of memory: tried to allocate 2 GiB'),
    (notice(Code.COST, million_samples=2.78, epoch=0.278, hour=2.0),
     'costs 2.78 per million samples, 0.278 per epoch, at 2.00 an hour'),
    (notice(Code.COST_OF_BASELINE, million_samples=5.56),
     'the baseline costs 5.56 per million samples'),
    (notice(Code.COST_SAVED, saved=1000.0, total=2000.0),
     'saves 1,000.00 of the 2,000.00 that 1,000 h of the baseline cost'),
    (notice(Code.COST_ADDED, added=2000.0, total=2000.0),
     'costs 2,000.00 more than the 2,000.00 that 1,000 h of the baseline cost'),
    (notice(Code.ENERGY, samples_per_joule=28.4, watts=312.0, baseline_samples_per_joule=14.2, baseline_watts=290.0),
     '28.4 samples/J at 312 W of the GPU (baseline 14.2 samples/J at 290 W)'),
    (notice(Code.LEAST_MEMORY_IS_FASTEST, within=0.05),
     'the fastest configuration also needs the least memory of those within 5% of its speed'),
    (notice(Code.LEAST_MEMORY, within=0.05, slower=0.04, fastest_bytes=4294967296),
     'least memory within 5% of the fastest: 4% slower, and the fastest needs 4 GiB'),
    (notice(Code.NOISE_SCALE, steps=30, phi=26.0, low=18.0, high=39.0),
     'gradient noise scale after 30 steps: 26 samples (18 to 39); batches up to about 26 waste less than 50% of the samples'),
    (notice(Code.NOISE_SCALE_AT_LEAST, steps=30, low=1234.0),
     'gradient noise scale after 30 steps: at least 1,200 samples; no evidence that the largest batch wastes samples'),
    (notice(Code.BATCH_EFFICIENCY, batch=256, efficiency=0.09, low=0.07, high=0.13),
     'estimated efficiency of a global batch of 256: 9% (7% to 13%)'),
    (notice(Code.NOISE_SCALE_GROWS, least=3.0, most=10),
     'the noise scale normally grows 3 to 10 times during training, so late training tolerates larger batches'),
    (notice(Code.BEST_GLOBAL_BATCH, low=24.0, high=61.2, middle=38.3),
     'estimate: a global batch of 24 to 61 (middle 38) reaches a given training loss soonest; how well the model generalises is not measured'),
    (notice(Code.GLOBAL_BATCH_UNDECLARED, batch=256, share=0.963),
     'no batch size was declared: 256 reaches 96% of the fastest; hold yours with --global-batch SIZE'),
    (notice(Code.GLOBAL_BATCH_FREE, batch=256, share=1.0, before=64),
     'the global batch is free: 256 reaches 100% of the fastest; hold yours with --global-batch 64'),
    (notice(Code.FASTER_WITH_BASELINE_BATCH, batch=32, speedup=1.7, low=1.65, high=1.76, samples_per_second=1234.5),
     'if you train with 32 today: 1.70× (1.65 to 1.76), 1,230 samples/s without changing it'),
    (notice(Code.NOT_FASTER_WITH_BASELINE_BATCH, batch=32),
     'if you train with 32 today: nothing that was confirmed is faster without changing it'),
    (notice(Code.COMPILING, cold_seconds=48.0, warm_seconds=3.5, pays_seconds=2400.0, run_length='12h', spent_share=0.00111),
     "compiling takes 48 s at the start of a run, 3.5 s once torch's cache has the code; it pays after 40:00 min, against the fastest without it in the same rounds; it takes 0.1% of a run of 12h, which the choice counts"),
    (notice(Code.GRAPH_BREAKS, breaks=2, graphs=3),
     'torch.compile breaks the model at 2 places into 3 graphs; TORCH_LOGS=graph_breaks shows where'),
    (notice(Code.AGREES_ELSEWHERE, worker='node7', speedup=1.38),
     '1.38 times as fast on a second machine (node7)'),
    (notice(Code.ACCUMULATION_PREDICTED, micro_batches=4, configuration='16×4 fp32', predicted=812.0, measured=798.0, less=0.0172),
     'accumulation over 4 micro-batches (16×4 fp32): computing predicted at 812 samples/s from micro-steps with and without an exchange, measured at 798 (1.7% less)'),
    (notice(Code.ACCUMULATION_MISPREDICTED, micro_batches=4, predicted=812.0, measured=650.0, less=0.1995),
     'accumulation over 4 micro-batches is not what micro-steps with and without an exchange predict: computing predicted at 812 samples/s, measured at 650 (20% less), so that rates which were not confirmed may be as far off'),
    (notice(Code.BASELINE_BATCH_ALONE, batch=32),
     'if you train with 32 today: no change was confirmed with it; search again with --global-batch 32'),
    (notice(Code.NOT_MEASURED_AGAIN),
     'not re-measured'),
    (notice(Code.FAILED, failure=NO_MEMORY), 'out of memory: tried to allocate 2 GiB'),
    (notice(Code.MEASURED_FOR_COMPARISON, why=notice(Code.VALUE_NOT_SEARCHED, knob='amp_dtype', value='bf16', searched=('fp32',))),
     'measured for comparison only: its amp_dtype is bf16, and only fp32 may be searched'),
    (notice(Code.FASTER_WITHIN_LIMIT, share=0.042, better='faster', peak_bytes=4294967296, chosen_bytes=1073741824),
     '4.2% faster, within the speed that may be given up, needs 4 GiB instead of 1 GiB'),
    (notice(Code.FASTER_BELOW_THRESHOLD, share=0.015, better='faster', threshold=0.02),
     '1.5% faster (below the 2% threshold)'),
    (notice(Code.FASTER_NOT_SIGNIFICANT, share=0.04, better='faster'),
     '4.0% faster (not significant)'),
    (notice(Code.SLOWER_NOT_SIGNIFICANT, share=0.17, worse='slower'),
     '17% slower (not significant)'),
    (notice(Code.SLOWER, share=0.5, worse='slower', peak_bytes=4294967296, chosen_bytes=1073741824),
     '50% slower, needs 4 GiB instead of 1 GiB'),
    (notice(Code.FASTER_WITH_LARGER_BATCH, share=0.03, better='faster', batch=1024),
     '3.0% faster, too little for a global batch of 1024'),
    (notice(Code.FASTER_PRECISION_UNDECIDED, share=0.04, better='faster', least=0.05),
     '4.0% faster, too little for a precision whose losses are undecided (under 5%)'),
    (notice(Code.FASTER_OTHER_MICRO_BATCH, share=0.04, better='faster', least=0.05),
     '4.0% faster, not surely the 5% that a change of the batch must gain'),
    (notice(Code.FASTER_BESIDE_OTHERS, share=9.0, better='faster'),
     "900% faster, while other processes held the baseline's cores"),
    (notice(Code.LOSSES_NOT_CHECKED),
     'not checked (--stability off)'),
    (notice(Code.LOSSES_FINITE, reference="full precision", steps=115),
     'full precision; losses finite over 115 optimizer steps'),
    (notice(Code.LOSSES_NOT_COMPARED, reference="full precision", steps=240, skipped=3),
     'losses finite over 240 optimizer steps, 3 skipped by the gradient scaler; not compared with full precision step by step'),
    (notice(Code.LOSSES_NOT_CLEARED, reference="full precision", steps=115),
     'losses finite over 115 optimizer steps; not shown to match full precision'),
    (notice(Code.LOSSES_MATCH, candidate='bf16', reference='fp32', difference=0.00235, steps=50, batch=64, allowed=0.02),
     'bf16 loss matches fp32: 0.24% apart after 50 paired steps at batch 64 (tolerance 2.0%)'),
    (notice(Code.LEARNS_LESS, candidate='bf16', reference='fp32', difference=0.106, steps=50, batch=64, seeds=3, allowed=0.02),
     'bf16 learns less than fp32: its loss decreases 10.6% less over 50 paired steps at batch 64 of 3 seeds each (tolerance 2.0%)'),
    (notice(Code.LOSSES_UNDECIDED, candidate='bf16', reference='fp32', low=0.01, high=0.03, steps=100, batch=64, seeds=3, allowed=0.02),
     'bf16 may or may not match fp32: its loss decreases 1.0% to 3.0% less over 100 paired steps at batch 64 of 3 seeds each (tolerance 2.0%)'),
    (notice(Code.ONE_SEED_UNDECIDED, candidate='bf16', reference='fp32', looseness=0.021),
     'bf16 cannot be judged from one seed: something random differs between runs, so that even fp32 differs from itself by 2.1% of the loss decrease'),
    (notice(Code.COMPARISON_FAILED, candidate='bf16', reference='fp32', failure='ZeroDivisionError', evidence='model.py:3'),
     'bf16 could not be compared with fp32: ZeroDivisionError (model.py:3)'),
    (notice(Code.COMPARISON_SHORT, candidate='bf16', reference='fp32', steps=12, asked=50, limit=20.0, least=20),
     'bf16 could not be compared with fp32: 12 of 50 paired steps were done in 20 s, and it takes 20'),
    (notice(Code.REFERENCE_NOT_FINITE, candidate='bf16', reference='fp32', broken=30, steps=50),
     'bf16 cannot be judged: 30 of 50 losses of fp32 itself are not finite'),
    (notice(Code.REFERENCE_LEARNS_NOTHING, candidate='bf16', reference='fp32', steps=50, start=0.495, end=2.22, noise=0.03),
     'bf16 cannot be judged: the loss of fp32 itself did not decrease in 50 steps (0.495 to 2.22 ± 0.03)'),
    (notice(Code.LOSSES_NOT_FINITE, candidate='bf16', reference='fp32', broken=1, steps=50),
     'bf16 is unstable here: 1 of 50 losses are not finite (fp32: all are finite)'),  # as an earlier version said it
    (notice(Code.FIRST_STEPS_SKIPPED, candidate='bf16', reference='fp32', skipped=11),
     'bf16 is unstable here: the gradient scaler skipped the first 11 steps'),
    (notice(Code.STEPS_SKIPPED, candidate='bf16', reference='fp32', skipped=2, steps=48),
     'bf16 is unstable here: the gradient scaler skipped 2 of 48 steps after the first success'),
    (notice(Code.LOSS_SCALE_FELL, candidate='bf16', reference='fp32', scale=0.5),
     'bf16 is unstable here: the loss scale fell to 0.5'),
    (notice(Code.GRADIENTS_UNDERFLOW, candidate='bf16', reference='fp32', zeros=0.83, reference_zeros=0.001),
     'bf16 is unstable here: gradients underflow, 83% of their entries are exactly zero (fp32: 0.1%)'),
    (notice(Code.GRADIENTS_JUMP, candidate='bf16', reference='fp32', factor=10.0, jumps=10, steps=50, reference_jumps=0),
     'bf16 is unstable here: the gradient norm exceeded 10 times its running median 10 times in 50 steps (fp32: 0 times)'),
    (notice(Code.ALL_MEASURED, measured=1234, better='faster'),
     'all candidates measured: 1,234 configurations; no other in the space could fit and be faster'),
    (notice(Code.BOUNDED, rest=0.042, better='faster'),
     'untried configurations: at most 4% faster (90% confidence, model estimate)'),
    (notice(Code.SAMPLED, measured=9, total=1200, failed=2),
     '9 of 1,200 configurations tried, 2 of which did not run; no estimate for the rest'),
    (notice(Code.ALL_TRIED, measured=5, total=20, hung=2, crashed=3, failed=1, left_out=9),
     '5 of 20 configurations measured, 2 hung, 3 crashed, 1 failed in your code, 9 ruled out without a probe'),
    (notice(Code.LESS_MEMORY, saved=0.67, baseline='your baseline', peak_bytes=2254857830.4, baseline_bytes=6764573491.2, speedup=0.97),
     '67% less memory than your baseline (2.1 GiB instead of 6.3 GiB) at 0.97× its speed'),
    (notice(Code.LESS_ENERGY, gain=1.31, baseline='your baseline', low=1.25, high=1.38),
     '1.31× as many samples per joule as your baseline (1.25 to 1.38)'),
    (notice(Code.SOONER_TO_LOSS, gain=2.31, baseline='your baseline', low=2.15, high=2.48),
     '2.31× as fast to a given loss as your baseline (2.15 to 2.48, estimated)'),
    (notice(Code.PROBE_FAILED, outcome="out of memory", failure="tried to allocate 2 GiB"),
     "out of memory: tried to allocate 2 GiB"),
    (notice(Code.NEEDS_MEMORY, peak_bytes=30 * 2**30, usable_bytes=15 * 2**30), "needs 30 GiB, 15 GiB may be used"),
    (notice(Code.MEMORY_THRASHES, retries=3), "memory thrashes: its cache was flushed 3 times in the window"),
    (notice(Code.MEMORY_SPILLED, factor=3.0, batch=32, used=0.94),
     "a sample takes 3.0 times as long as with batch_size 32, with 94% of the device's memory in use: the driver "
     "probably moved part of it to the host"),
    (notice(Code.UNSTABLE_NOT_FINITE, broken=2, losses=12), "unstable: 2 of 12 losses are not finite"),
    (notice(Code.UNSTABLE_STEPS_SKIPPED, skipped=4, steps=50),
     "unstable: the gradient scaler skipped 4 of 50 steps after calibration"),
    (notice(Code.UNSTABLE_LOSS_GREW, first=0.5, last=9.0, losses=12), "unstable: the loss grew from 0.5 to 9 in 12 steps"),
    (notice(Code.NO_SCORE),
     "The probe did not measure what this objective needs. Search with --objective throughput."),
    (notice(Code.NO_ENERGY),
     "The probe has no reading of the GPU's energy counter. Search with --objective throughput: what is "
     "faster mostly takes less energy too."),
    (notice(Code.CHANGE_WITHOUT_TIME), "no time was left"),
    (notice(Code.CHANGE_DROPPED_WITH_OTHERS), "dropped together with others"),
    (notice(Code.CHANGE_NOT_MEASURED), "not measured"),
    (notice(Code.CHANGE_INTERRUPTED), "interrupted"),
    (notice(Code.CHANGE_OUTSIDE_SPACE, why=notice(Code.OTHER_GLOBAL_BATCH, batch=64, held=256)),
     "its global batch is 64, and 256 is held"),
    (notice(Code.CHANGE_CRASHED), "it crashed, or took the search down with it, twice"),
    (notice(Code.CHANGE_NEEDS_MEMORY), "it would not fit into memory"),
    (notice(Code.CHANGE_NOT_YET_MEASURED), "not measured yet"),
    (notice(Code.CHANGE_NOT_ALONE), "not measured"),
    (notice(Code.CHANGE_SPARES_FAULTS, share=0.08), "spares page faults, 8% of a step"),
    (notice(Code.NOT_PREDICTED_IN_TIME), "there was no time left for it"),
    (notice(Code.CONTENTS_DECIDE, operator="aten.nonzero"),
     "what it computes depends on the contents of tensors (aten.nonzero)"),
    (notice(Code.NEEDS_REAL_TENSORS, operator="mine.roll"), "an operator can only run on real tensors (mine.roll)"),
    (notice(Code.CANNOT_PREDICT, why="ValueError: no such file"), "ValueError: no such file"),
    (notice(Code.BATCHES_MIXED, first="Tensor", second="list"), "batches hold a Tensor here and a list there"),
    (notice(Code.BATCHES_SPARSE), "batches hold sparse tensors"),
    (notice(Code.BATCH_SIZE_UNKNOWN, content="Graph"),
     "a batch holds a Graph, whose size for more samples is not known"),
    (notice(Code.DIMENSIONS_VARY), "batches hold tensors with different numbers of dimensions"),
    (notice(Code.LENGTH_VARIES, first=3, second=4), "batches hold lists of 3 and 4 entries"),
    (notice(Code.SHAPES_VARY), "shapes vary from batch to batch, and the file has no worst_batch(batch_size)"),
    (notice(Code.NO_SUCH_BATCH, size=3), "the data has no batch of 3 samples"),
    (notice(Code.NOTHING_PREDICTED), "no configuration was tried"),
    (notice(Code.SLOW_LINE, place="model.py:21 in loss", milliseconds=9.021, share=0.213, kind="host read", what=".item()", count=1.0),
     "model.py:21 in loss: 9.02 ms a step (21%), .item() reads a tensor on the host, once a step. Instead: keep a tensor (detach), read it now and then."),
    (notice(Code.OTHER_GLOBAL_BATCH, batch=64, held=256), "its global batch is 64, and 256 is held"),
    (notice(Code.VALUE_NOT_SEARCHED, knob="batch_size", value="64", searched=("8", "16")),
     "its batch_size is 64, and only 8, 16 may be searched"),
    (notice(Code.COMBINATION_LEFT_OUT), "the limits leave this combination of values out"),
    (notice(Code.NOT_COMPARED_IN_TIME, reference="fp32"), "there was no time to compare its losses with those of fp32"),
    (notice(Code.NOISE_SCALE_FAILED, error="out of memory"),
     "The gradient noise scale could not be measured: out of memory."),
    (notice(Code.GRADIENTS_TELL_NOTHING),
     "The gradient noise scale could not be measured: the gradients of all micro-batches are alike, or too few."),
    (notice(Code.CORES_BUSY, cores=1.04, wait_share=0.2),
     "other processes kept 1.0 cores busy, and the probe waited 20% of its time for a core"),
    (notice(Code.GPU_THROTTLED, reason="power brake"), "power brake of its GPU"),
    (notice(Code.GPU_SHARED, share=0.3), "other processes took 30% of its GPU's time"),
    (notice(Code.GPU_CLOCK_MOVED, low=1400, high=1500), "the clock of its GPU moved between 1400 and 1500 MHz"),
    (notice(Code.SLOWED_BY_UNKNOWN), "far slower than its other rounds, cause unknown"),
    (notice(Code.SLOWED_PROBE, number=7, causes=(notice(Code.GPU_SHARED, share=0.3), notice(Code.SLOWED_BY_UNKNOWN))),
     "probe 7 (other processes took 30% of its GPU's time; far slower than its other rounds, cause unknown)"),
    (notice(Code.SLOWED_ROUNDS, configuration="64×1", slowed=2, rounds=8), "64×1 in 2 of 8"),
    (notice(Code.KNOBS_WITHOUT_ARGUMENT, knobs=("amp_dtype", "num_workers"), labels=("precision", "workers"), example="amp"),
     "precision, workers not tuned: no argument was recognised for them (type one with its value of today, or name it with --map amp=--NAME)"),
    (notice(Code.COMMAND_WITHOUT_ARGUMENTS, knobs=("batch_size",), labels=("batch",), example="batch"),
     "batch not tuned: no argument was recognised for it (if there is one, name it with --map batch=--NAME; else add one for each to your script, or write a model.py: autotune init)"),
    (notice(Code.BF16_NEEDS_OPTION, knob="amp_dtype", label="precision"),
     "precision not tuned: without a GPU, transformers takes bf16 only with --use_cpu True: type it, and precision is tuned"),
    (notice(Code.ACCUMULATION_NOT_TAKEN, knob="batch_size", label="batch", samples=64, taker="the command"),
     "batch not searched: 64 samples are held per optimizer step, and the command takes no gradient accumulation (free them with --global-batch free)"),
    (notice(Code.VALUES_NOT_AVAILABLE, knob="malloc", values=("malloc=tcmalloc",), why="libtcmalloc_minimal.so.4 is not installed"),
     "malloc=tcmalloc not tried: libtcmalloc_minimal.so.4 is not installed"),
    (notice(Code.VALUES_IDLE, knob="sdpa_backend", values=("sdpa=flash",), why="no step calls scaled_dot_product_attention"),
     "sdpa=flash does nothing here: no step calls scaled_dot_product_attention"),
    (notice(Code.VALUES_ALIKE, knob="compile_mode", values=("compile=graphs", "compile=regional"), instead="default", why="the model has no repeated blocks"),
     "compile=graphs, compile=regional do the same as default here: the model has no repeated blocks"),
    (notice(Code.BASELINE_IDLE, knob="prefetch_factor", values=("prefetch=4",), why="there are no loader workers"),
     "prefetch=4 in the baseline does nothing here: there are no loader workers"),
    (notice(Code.BASELINE_ALIKE, knob="compile_mode", values=("compile=regional",), instead="default", why="the model has no repeated blocks"),
     "compile=regional in the baseline does the same as default here: the model has no repeated blocks"),
    (notice(Code.LOOP_ONLY_OBSERVED),
     "autotune only observes this loop: it does not measure computing and loading alone, the largest batch or validation, and does not predict memory"),
    (notice(Code.WORKERS_NOT_TAKEN, knob="num_workers", label="workers"),
     "workers not tuned: dataloader() takes no num_workers"),
    (notice(Code.WORKERS_REPEAT_SAMPLES, knob="num_workers", label="workers"),
     "workers above 1 not searched: each would give all samples again (search them with --workers 0:8)"),
    (notice(Code.EXACT_HOLDS_BATCH, knob="batch_size", label="batch"),
     "batch not searched: --exact holds it, because BatchNorm takes its statistics from it"),
    (notice(Code.EXACT_HOLDS_KNOB, knob="amp_dtype", label="precision"),
     "precision not searched: --exact holds it, because it changes what is computed"),
    (notice(Code.ACCUMULATION_NOT_SEARCHED, knob="gradient_accumulation_steps", label="accum"),
     "accum not searched: it changes what the model learns and hardly the speed (search it with --accum 1:8)"),
    (notice(Code.BATCHES_DO_NOT_DIVIDE, knob="batch_size", label="batch", batches=("48", "96"), samples=64),
     "batch 48, 96 not searched: the held global batch 64 is not a multiple of them (free it with --global-batch free)"),
    (notice(Code.BATCHES_EXCEED_DATA, knob="batch_size", label="batch", batches=("4096",)),
     "batch 4096 not searched: more samples than the data have for one step"),
    (notice(Code.NO_OTHER_BATCH_DIVIDES, knob="batch_size", label="batch", samples=10, smallest=8, divisors="1,2,5,10"),
     "batch not searched: 10 samples are held per optimizer step, and no other batch from 8 up divides them (search smaller ones with --batch 1,2,5,10, or free them with --global-batch free)"),
    (notice(Code.ONLY_VALUE, knob="cudnn_benchmark", label="cudnn", value="no"),
     "cudnn not tuned: no is its only value here"),
    (notice(Code.STUDY_WITHOUT_KNOB, knob="activation_checkpointing", label="checkpointing"),
     "checkpointing not tuned: the study was begun by an earlier version, which could not set it (begin a new one with --fresh)"),
    (notice(Code.MACHINE_LACKS_VALUES, knob="amp_dtype", label="precision", why="this processor has no native bfloat16 or float16"),
     "precision not tuned: this processor has no native bfloat16 or float16"),
    (notice(Code.LOSS_HOLDS_BATCH, knob="batch_size", label="batch", option="--batch 8:512"),
     "batch not searched: the loss is no mean over samples, so another micro-batch trains another loss (search it with --batch 8:512)"),
    (notice(Code.MODEL_COMPILED_BY_CODE, knob="compile_mode", label="compile"),
     "compile not tuned: your code compiles the model itself"),
    (notice(Code.DEVICE_FOUND, device="cuda:0", device_name="NVIDIA H200", device_bytes=151 * 10**9),
     "cuda:0: NVIDIA H200, 141 GiB"),
    (notice(Code.DEVICE_UNUSABLE, error="torch sees no CUDA device"), "torch sees no CUDA device"),
    (notice(Code.DEVICE_UNKNOWN), "the probe process left no word"),
    (notice(Code.TORCH_WITH_CUDA, torch="2.13.0", cuda="13.0", python="3.11.7"), "2.13.0 (CUDA 13.0), Python 3.11.7"),
    (notice(Code.TORCH_WITHOUT_CUDA, torch="2.13.0", python="3.11.7"), "2.13.0 (no CUDA), Python 3.11.7"),
    (notice(Code.GPU_NEEDS_CUDA_BUILD, torch="2.13.0", python="3.11.7"),
     "2.13.0 (no CUDA), Python 3.11.7 There is an NVIDIA GPU, but this torch was built without CUDA: install a CUDA build."),
    (notice(Code.GPU_DRIVER_TOO_OLD, torch="2.13.0", cuda="13.0", python="3.11.7", driver="470.1"),
     "2.13.0 (CUDA 13.0), Python 3.11.7 There is an NVIDIA GPU, but torch cannot use it: driver 470.1 is probably too old for CUDA 13.0. Update it, or install an older build; python -c 'import torch; torch.cuda.init()' says why."),
    (notice(Code.NATIVE_DTYPES, native_dtypes=("bfloat16", "float16")), "computed natively: bfloat16, float16"),
    (notice(Code.NO_NATIVE_DTYPES), "computed natively: none besides float32"),
    (notice(Code.COMPILER_FOUND, compiler="/usr/bin/g++"), "torch.compile with /usr/bin/g++"),
    (notice(Code.CPU_COMPILER_MISSING, knob="compile_mode", lacking="no C++ compiler is installed"),
     "compile_mode is not offered: no C++ compiler is installed Install a C++ compiler and Python's headers (Debian: apt install g++ python3-dev), or say CXX=/path/g++."),
    (notice(Code.CUDA_COMPILER_MISSING, knob="compile_mode", lacking="triton is not installed"),
     "compile_mode is not offered: triton is not installed Install triton and a C compiler (pip install triton; Debian: apt install gcc python3-dev)."),
    (notice(Code.COMPILER_MISSING, knob="compile_mode", lacking="autotune has not been run with torch.compile on mps"),
     "compile_mode is not offered: autotune has not been run with torch.compile on mps"),
    (notice(Code.CORES_FREE, usable_cores=8, foreign_cores=0.04), "8 usable, 0.0 kept busy by others"),
    (notice(Code.CORES_SHARED, usable_cores=8, foreign_cores=1.5),
     "8 usable, 1.5 kept busy by others Probes would wait for them: speeds come out too low and too noisy. Wait until other work has ended."),
    (notice(Code.CORES_TAKEN, usable_cores=8, foreign_cores=6.0),
     "8 usable, 6.0 kept busy by others Wait until other work has ended, or end it."),
    (notice(Code.HOST_MEMORY, available_bytes=3 * 2**30, total_bytes=8 * 2**30, limit_source="cgroup v2"),
     "3 GiB of 8 GiB available (cgroup v2)"),
    (notice(Code.VALUES_OFFERED, values=("glibc",), missing=("libjemalloc.so.2", "libtcmalloc_minimal.so.4")),
     "can be tuned: glibc; not installed: libjemalloc.so.2, libtcmalloc_minimal.so.4"),
    (notice(Code.SET_BY_ENVIRONMENT, variables=("LD_PRELOAD",)), "not tuned: your environment sets LD_PRELOAD"),
    (notice(Code.SHARED_MEMORY, free_bytes=2**30), "1 GiB free"),
    (notice(Code.SHARED_MEMORY_SMALL, free_bytes=64 * 2**20),
     "64 MiB free Loader workers pass batches through it. In Docker start with --shm-size=8g or --ipc=host."),
    (notice(Code.PROBES_FORKED, fork_server_bytes=300 * 2**20),
     "forked from a process of 300 MiB that has torch imported"),
    (notice(Code.PROBES_FRESH, reason="forked probes need Linux"), "fresh processes: forked probes need Linux"),
    (notice(Code.GPU_FREE, gpu="NVIDIA H200", driver="580.1", used_bytes=2**30, total_bytes=140 * 2**30, processes=0),
     "NVIDIA H200, driver 580.1, 1 GiB of 140 GiB used, 0 processes"),
    (notice(Code.GPU_IN_USE, gpu="NVIDIA H200", driver="580.1", used_bytes=2**30, total_bytes=140 * 2**30, processes=2,
            throttle_reasons=("power cap", "power brake")),
     "NVIDIA H200, driver 580.1, 1 GiB of 140 GiB used, 2 processes, slowed by power cap, power brake Another tenant or a power limit makes measurements noise: choose another --device."),
    (notice(Code.NVML_UNUSED, error="NVML, the NVIDIA driver's library, cannot be used: no driver."),
     "not used: NVML, the NVIDIA driver's library, cannot be used: no driver."),
    (notice(Code.PYNVML_DEPRECATED, version="11.5.3"),
     "the deprecated distribution is installed The deprecated distribution pynvml 11.5.3 is installed. It shadows nvidia-ml-py or makes `import torch` warn, and fail where warnings are errors. Run: pip uninstall pynvml, then: pip install --force-reinstall nvidia-ml-py"),
]
# fmt: on


class Change(Record, frozen=True, kw_only=True):
    why: Notice | None = None


class Answer(Record, frozen=True, kw_only=True):
    one: Notice | None = None
    several: tuple[Notice, ...] = ()
    perhaps: tuple[Change, ...] | None = None


@pytest.mark.parametrize(("found", "text"), SAID, ids=[found.code for found, _ in SAID])
def test_each_is_worded(found, text):
    assert found.text == text


def test_there_is_an_example_of_each():
    assert [found.code for found, _ in SAID] == [code for code in Code if code is not Code.EARLIER]


def test_numbers_and_codes_are_given_once():
    assert len({code.number for code in Code}) == len(Code)
    assert [code.number for code in Code] == sorted(code.number for code in Code)


def test_every_warning_has_a_next_step():
    assert [code for code in Code if code.number // 100 == 1 and not code.next_step] == []


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.EARLIER])
def test_each_is_given_somewhere(code):
    users = [path for path in PACKAGE.rglob("*.py") if re.search(rf"Code\.{code.name}\b", path.read_text())]

    assert users


def test_an_example_gives_every_number_of_its_sentence_in_at_least_one_form():
    for found, _ in SAID:
        required = {part for part in (found.code.sentence, found.code.next_step)}
        assert named(re.sub(r"\[[^]]*\]", "", "".join(required))) <= found.numbers.keys()


def test_what_is_not_given_is_left_out_with_its_words():
    few, more = (
        notice(Code.LOSSES_FINITE, reference="full precision", steps=8, skipped=None),
        notice(Code.LOSSES_FINITE, reference="full precision", steps=8, skipped=3),
    )

    assert few.numbers == {"reference": "full precision", "steps": 8}
    assert more.text == f"{few.text}, 3 skipped by the gradient scaler"


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_not_finite_is_not_given(bad):
    short = {"candidate": "bf16", "reference": "fp32", "steps": 12, "asked": 50, "least": 20}
    found = notice(Code.COMPARISON_SHORT, limit=bad, **short)

    assert found == notice(Code.COMPARISON_SHORT, limit=None, **short)
    assert found.text.endswith("12 of 50 paired steps were done, and it takes 20")
    assert notice(Code.BOUNDED, rest=bad, better="faster").numbers == {"better": "faster"}
    for code in Code:
        names = named(code.sentence) | named(code.next_step)
        for name in names:
            found = notice(code, **{other: bad if other == name else 2.0 for other in names})
            assert codec.decode(codec.encode(found), Notice) == found and name not in found.numbers


def test_json_carries_code_numbers_and_text():
    found = notice(Code.LOADER_BOUND, wait_share=0.341234567, workers=8)

    assert codec.decode(codec.encode(found), dict) == {
        "code": "loader-bound", "numbers": {"wait_share": 0.34123, "workers": 8}, "text": found.text,
    }  # fmt: skip
    assert codec.decode(codec.encode(found), Notice) == found


def test_a_notice_in_another_keeps_its_code_and_numbers_and_is_said_on_one_line_without_its_next_step():
    many = tuple(notice(Code.PROBE_FAILED, outcome="crashed", failure=f"at {n}\nin a line below") for n in range(5))
    found = notice(Code.PROBES_LEFT_OUT, count=5, probes=many)

    assert "slowed: crashed: at 0; crashed: at 1; crashed: at 2; and 2 more. Close" in found.text
    assert codec.decode(codec.encode(found), Notice) == found
    assert codec.decode(codec.encode(found), dict)["numbers"]["probes"][4]["numbers"]["failure"].startswith("at 4")
    assert notice(Code.FAILED, failure=notice(Code.NO_SCORE)).text == Code.NO_SCORE.sentence
    assert notice(Code.FAILED, failure=earlier("out of memory")).text == "out of memory"


@pytest.mark.parametrize(("found", "text"), SAID, ids=[found.code for found, _ in SAID])
def test_meaning_and_next_step_make_up_the_text_and_the_brief_form_is_no_longer(found, text):
    assert f"{found.meaning} {found.next_step}".rstrip() == text
    assert len(found.brief) <= len(found.meaning)
    assert not re.search(r"[.!?] [A-Z]", found.brief)


# As they were written before a notice could hold another: code, numbers, text, and what is said of it now.
FORMER = [
    ("measured-for-comparison", {"why": "its global batch is 64, and 256 is held"},
     "measured for comparison only: its global batch is 64, and 256 is held", ""),
    ("change-outside-space", {"why": "its amp_dtype is bf16"}, "its amp_dtype is bf16", ""),
    ("failed", {"failure": "out of memory"}, "out of memory", ""),
    ("faster-but-failed", {"configuration": "64×1 bf16", "failure": "hung"},
     "64×1 bf16 was faster in the search and failed when re-measured: hung", ""),
    ("losses-unjudged", {"doubt": "unstable"}, "The losses were not checked (--stability off), and training is unstable.",
     "Search without --stability off."),
    ("precision-undecided", {"reference": "fp32", "why": "bf16 cannot be judged"},
     "Whether this learns as fp32 does is undecided: bf16 cannot be judged.",
     "Compare a longer run of both, or hold what changes the arithmetic (--exact)."),
    ("noise-scale-unknown", {"why": "The gradient noise scale could not be measured: hung."},
     "The gradient noise scale could not be measured: hung. The recommendation has the most samples/s; nothing is known "
     "about large batches.", "Search again when the cause is gone, or with --objective throughput."),
    ("probes-left-out", {"count": 2, "probes": "probe 7 (its clock moved); probe 9 (its clock moved)"},
     "The confirmation leaves out 2 probes that something slowed: probe 7 (its clock moved); probe 9 (its clock moved).",
     "Close other work while a search runs."),
    ("confirmation-interference", {"rounds": "64×1 in 2 of 8"},
     "Which configuration is faster is not certain, and the rates are probably too low: there was interference in too "
     "many probes: 64×1 in 2 of 8.", "Close other work and run the same command again."),
    ("differs-elsewhere", {"worker": "node7", "found": "this is 1.10 times as fast", "here": 1.4},
     "On a second machine (node7) this is 1.10 times as fast; here it is 1.40 times.",
     "Search on machines that are alike."),
    ("cannot-predict", {"why": "batches hold sparse tensors"}, "batches hold sparse tensors", ""),
    ("slow-line",
     {"place": "model.py:21 in loss", "milliseconds": 9.021, "share": 0.213, "kind": "host read", "line": "f()",
      "seen": ".item() reads it, twice a step", "instead": "read it now and then"},
     "model.py:21 in loss: 9.02 ms a step (21%), .item() reads it, twice a step.", "Instead: read it now and then."),
    ("slow-line", {"place": "(no line)"}, "(no line): 9.02 ms a step (21%).", "Instead: leave it out."),
    ("earlier", {}, "Repeats of one configuration differed by 10%.", "Close other work. Then run the same command again."),
]  # fmt: skip


@pytest.mark.parametrize(("code", "numbers", "meaning", "next_step"), FORMER, ids=[code for code, *_ in FORMER])
def test_numbers_that_were_sentences_are_read_and_said_as_they_were(code, numbers, meaning, next_step):
    stored = {"code": code, "numbers": numbers, "text": f"{meaning} {next_step}".rstrip()}

    found = codec.decode(codec.encode(stored), Notice)

    assert (found.numbers, found.text) == (numbers, stored["text"])
    assert (found.meaning, found.next_step) == (meaning, next_step)
    assert len(found.brief) <= len(meaning)


def test_a_figure_is_a_number_whatever_an_earlier_version_or_a_hostile_file_wrote_there():
    found = Notice(code=Code.DIFFERS_ELSEWHERE, numbers={"speedup": 1.1, "here": "much", "worker": SLOWED})

    assert [found.figure(name, 1.0) for name in ("speedup", "here", "worker", "found")] == [1.1, 1.0, 1.0, 1.0]
    assert found.meaning == found.text == ""


def test_sentences_of_earlier_versions_are_read():
    read = codec.decode(b'{"one": "held at 64", "several": ["first", "second"]}', Answer)

    assert read == Answer(one=earlier("held at 64"), several=(earlier("first"), earlier("second")))
    assert codec.decode(b'{"one": ""}', Answer) == Answer()
    assert codec.decode(b'{"perhaps": [{"why": "first"}]}', Answer) == Answer(perhaps=(Change(why=earlier("first")),))


def test_every_warning_has_a_place_in_the_order_of_what_it_costs():
    warnings = [code for code in Code if code.number // 100 == 1]

    assert sorted(COSTLIEST_WARNINGS) == sorted(warnings)


def test_warnings_come_by_what_they_cost_and_those_of_earlier_versions_last():
    spread, norm = notice(Code.RATES_SPREAD, spread=0.1), notice(Code.BATCH_NORM, now=32, before=64)

    assert costliest_first([earlier("old"), spread, norm]) == [norm, spread, earlier("old")]
