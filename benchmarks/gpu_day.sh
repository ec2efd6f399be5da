#!/bin/sh
# What a machine with a GPU is asked, a few minutes at a time: each call ends in time and packs what there is by then.
#
#     sh benchmarks/gpu_day.sh tests 5                                            doctor, then tests/gpu
#     sh benchmarks/gpu_day.sh questions 5 --only events,kill                     of benchmarks.gpu_questions
#     sh benchmarks/gpu_day.sh targets 9 --targets resnet50 --time-budget 150s    of benchmarks.gpu_catalogue
#     sh benchmarks/gpu_day.sh fidelity 5 --catalogue unet --steps 500            of benchmarks.fidelity
#     sh benchmarks/gpu_day.sh commands 5 gpt2_small --batch-size 8               profiles and searches a script as it is
#     sh benchmarks/gpu_day.sh profile 1 benchmarks/catalogue/unet.py --verify    autotune profile
#     sh benchmarks/gpu_day.sh knobs 9 --only unet --knob compile_mode            of benchmarks.with_and_without
#     sh benchmarks/gpu_day.sh ranks 5 --ranks 2                                  autotune scale, autotune search --devices all, ...; not run
#
# From the root of the repository: a slice, its minutes, and what its command is to be told besides. Whatever comes of it
# lies in `studies/gpu` and in the archive. Unpacked in the same place, on this machine or on the next, the same line of
# `targets` goes on where it ended. What ends at its time is interrupted as by Ctrl-C; the last line names what failed.
#
# Environment: PYTHON [python3], DEVICE [cuda], PLACE [studies/gpu], ARCHIVE [gpu-day.tar.gz].
set -u

place=${PLACE:-studies/gpu}
slice=${1:?which slice: tests, questions, targets, fidelity, commands, profile, knobs or ranks}
minutes=${2:?how many minutes it may take}
shift 2
python=${PYTHON:-python3}
device=${DEVICE:-cuda}
archive=${ARCHIVE:-gpu-day.tar.gz}
seconds=$(awk "BEGIN { print int(60 * $minutes) }")
ends_at=$(($(date +%s) + seconds))
own_minutes=$(awk "BEGIN { print $minutes - 0.3 }") # of commands that know when to end: sooner than they are made to
now=$(date -u +%m%dT%H%M%S)
failed=

export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
mkdir -p "$place/logs"

run() { # NAME COMMAND...: for as long as there is time
    name=$1 left=$((ends_at - $(date +%s)))
    shift
    [ "$left" -gt 0 ] || { failed="$failed $name (no time left)" && return; }
    echo "=== $name, $left s: $*"
    { timeout --signal=INT --kill-after=15 "$left" "$@" 2>&1 || echo "=== exit status $?"; } |
        tee "$place/logs/$name-$now.txt"
    ! tail -n 1 "$place/logs/$name-$now.txt" | grep -q '^=== exit status' || failed="$failed $name"
    tar -czf "$archive" "$place"
}

case $slice in
tests)
    run machine sh -c 'nvidia-smi; nproc; free -g; df -h . /dev/shm'
    run doctor "$python" -m autotune doctor --device "$device"
    run tests "$python" -m pytest tests/gpu -rs --force-reruns 0 --durations=5 --basetemp "$place/tests" \
        -o tmp_path_retention_policy=failed "$@"
    ;;
questions)
    run questions "$python" -m benchmarks.gpu_questions --device "$device" --minutes "$own_minutes" \
        --json "$place/questions-$now.json" "$@"
    ;;
targets)
    run targets "$python" -m benchmarks.gpu_catalogue --device "$device" --minutes "$own_minutes" \
        --place "$place" "$@"
    ;;
fidelity)
    run fidelity "$python" -m benchmarks.fidelity --device "$device" "$@"
    ;;
commands)
    run command-profile "$python" -m autotune profile --device "$device" --output "$place/command-profile-$now" -- \
        "$python" benchmarks/catalogue/script.py "$@"
    run command-search "$python" -m autotune search --device "$device" --time-budget "$((seconds / 2))s" \
        --study "$place/command-search-$now" -- "$python" benchmarks/catalogue/script.py "$@"
    ;;
profile)
    run profile "$python" -m autotune profile --device "$device" --output "$place/profile-$now" "$@"
    ;;
knobs)
    run knobs "$python" -m benchmarks.with_and_without --device "$device" --folder benchmarks/catalogue --rounds 1 \
        --loops 2 --seconds "$((seconds / 4))" --studies "$place/knobs-$now" "$@"
    ;;
ranks) # for machines with several GPUs: not run yet
    run scale "$python" -m autotune scale benchmarks/targets/ranks/conv.py --device "$device" --ranks 1,2 \
        --time-budget "$((seconds / 6))s" --folder "$place/scale-$now"
    among='--devices all'
    [ "$device" = cuda ] || among="--device $device --ranks 2"
    # shellcheck disable=SC2086 # words of an option and its value
    run search "$python" -m autotune search benchmarks/targets/ranks/conv.py $among \
        --time-budget "$((seconds / 6))s" --study "$place/search-$now"
    run launched "$python" -m autotune search --device "$device" --time-budget "$((seconds / 6))s" \
        --study "$place/launched-$now" -- \
        "$python" -m torch.distributed.run --standalone --nproc-per-node 2 benchmarks/targets/ranks/script.py
    run ranks "$python" -m benchmarks.communication --device "$device" --json "$place/ranks-$now.json" "$@"
    ;;
*)
    echo "no slice is called $slice: there are tests, questions, targets, fidelity, commands, profile, knobs and ranks" >&2
    exit 2
    ;;
esac
echo "=== packed into $archive${failed:+; failed:$failed}"
[ -z "$failed" ]
