"""The known ways in which a training run fails, each with what it means and where it was seen.

Sources: "run" = provoked on torch 2.13 CPU; "binary" = string of the torch 2.13 CUDA wheel; "docs" = CUDA runtime API;
"pytorch#N" and the like = issue threads. A rule only matches where it comes first, so memory stands above the rest.
"""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from autotune.core.results import Outcome


class TypeRule(NamedTuple):
    """Exception types, by name without module, whose type alone decides."""

    outcome: Outcome
    names: frozenset[str]
    source: str


class MessageRule(NamedTuple):
    """A fragment of a message. `near_memory`: it means memory if the device was nearly full, else an accident."""

    outcome: Outcome
    pattern: re.Pattern[str]
    source: str
    note: str = ""
    near_memory: bool = False


# cudaError_t, carried by torch.AcceleratorError since torch 2.8 (pytorch#152023); HIP uses the same numbers. docs
CODES: dict[int, Outcome] = (
    {2: Outcome.OOM_DEVICE, 9: Outcome.TOO_LARGE, 701: Outcome.COMPILE_FAILED}  # 9: launch grid, 701: launch resources
    | dict.fromkeys((214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719), Outcome.DEVICE_FAULT)
    | dict.fromkeys((3, 35, 46, 100, 101, 209, 222, 304, 802, 803, 804), Outcome.ENVIRONMENT)
)

_COMPILER_TYPES = frozenset(
    {"InductorError", "BackendCompilerFailed", "TorchDynamoException", "TorchRuntimeError", "Unsupported"}
    | {"CppCompileError", "InvalidCxxCompiler", "TritonMissing", "GPUTooOldForTriton"}
    | {"OutOfResources", "PTXASError", "CompilationError"}
)

TYPES: tuple[TypeRule, ...] = (
    TypeRule(Outcome.OOM_DEVICE, frozenset({"OutOfMemoryError"}), "torch 2.13 binary"),
    TypeRule(Outcome.OOM_HOST, frozenset({"MemoryError", "_ArrayMemoryError"}), "Python, numpy 2.4 run"),
    TypeRule(Outcome.COMPILE_FAILED, _COMPILER_TYPES, "torch 2.13 run, triton 3 (sam2#592)"),
)

_FILES = "the limit on open files (ulimit -n)"
_THREADS = "the limit on processes and threads (ulimit -u, or pids of the container)"
_TMPDIR = "what lies in TMPDIR, /tmp by default, has to be short and writable"
ERRNOS: dict[int, tuple[Outcome, str]] = {
    errno.ENOMEM: (Outcome.OOM_HOST, "the host refused memory"),
    errno.EMFILE: (Outcome.INVALID_CONFIG, _FILES),
    errno.EAGAIN: (Outcome.INVALID_CONFIG, _THREADS),
    errno.ENOSPC: (Outcome.ENVIRONMENT, "a disk is full"),
    errno.EDQUOT: (Outcome.ENVIRONMENT, "a quota of disk space is used up"),
    errno.EROFS: (Outcome.ENVIRONMENT, "a file system is read-only"),
}

# Errors of the user's code, whatever their message: a KeyError may quote any text.
CERTAIN = frozenset(
    {"TargetError", "LookupError", "KeyError", "IndexError", "TypeError", "NameError", "AttributeError", "SyntaxError"}
)


def _rule(outcome: Outcome, pattern: str, source: str, note: str = "", near_memory: bool = False) -> MessageRule:
    return MessageRule(outcome, re.compile(pattern, re.DOTALL), source, note, near_memory)


MESSAGES: tuple[MessageRule, ...] = (
    # memory
    _rule(Outcome.OOM_SHM, r"unable to (allocate shared memory|(mmap \d+ bytes from|resize) file </torch)", "2.13 run"),
    _rule(
        Outcome.OOM_SHM,
        r"unable to open shared memory object.*(No such file|Permission denied|Read-only|No space left)",
        "2.13 run",
        "/dev/shm is missing, full, or may not be written",
    ),
    _rule(Outcome.OOM_SHM, r"killed by signal: Bus error|out of shared memory|insufficient shared memory", "2.13 run"),
    _rule(Outcome.OOM_SHM, r"No space left on device.{0,12}/dev/shm", "Python 3.11 multiprocessing"),
    _rule(Outcome.OOM_HOST, r"out of memory.*\(in pin memory thread\)", "2.13 binary", "page-locked host memory"),
    _rule(Outcome.OOM_HOST, r"DefaultCPUAllocator: (can't allocate|not enough) memory", "2.13 run"),
    # "... a primitive descriptor" means an operation that oneDNN does not support.
    _rule(Outcome.OOM_HOST, r"could not create a primitive(?! descriptor)", "2.13 run", "oneDNN found no memory"),
    _rule(Outcome.OOM_HOST, r"std::bad_alloc|Unable to allocate [\d.]+ \w+ for an array", "numpy 2.4 run, libstdc++"),
    _rule(Outcome.OOM_HOST, r"\[Errno 12\]|HOST_ALLOCATION_FAILED|\bMemoryError\b", "2.13 run, cuDNN 9 docs"),
    _rule(Outcome.OOM_DEVICE, r"(CUDA|HIP|XPU|MPS backend|MTIA|NPU) out of memory", "2.13 binary"),
    _rule(Outcome.OOM_DEVICE, r"(CUDA|HIP) (driver )?error: out of memory", "2.13 binary, expandable segments"),
    _rule(Outcome.OOM_DEVICE, r"Triton Error \[\w+\]: out of memory", "triton 3"),
    _rule(Outcome.OOM_DEVICE, r"memory (mapping|allocation) failed with OOM", "2.13 binary"),
    _rule(Outcome.OOM_DEVICE, r"would exceed (allowed memory|per_process_memory_fraction)", "2.13 binary"),
    _rule(Outcome.OOM_DEVICE, r"(CU|ROC|HIP)\w+?_(STATUS_)?(ALLOC_FAILED|MEMORY_ERROR)", "2.13 binary, lm-eval#1689"),
    _rule(Outcome.OOM_DEVICE, r"DEVICE_ALLOCATION_FAILED|OUT_OF_DEVICE_MEMORY|miopenStatusAllocFailed", "cuDNN 9 docs"),
    _rule(Outcome.OOM_DEVICE, r"Cuda failure (\d+ )?'out of memory'", "NCCL 2.29 issues"),
    _rule(Outcome.OOM_DEVICE, r"Invalid buffer size: [\d.]+ \w+", "MPS issues"),
    _rule(Outcome.OOM_DEVICE, r"PT_DEVMEM Allocation failed", "HPU, accelerate utils/memory.py"),
    # activation checkpointing
    _rule(Outcome.INVALID_CONFIG, r"cached during selective activation checkpoint has been mutated", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"recomputes all of its blocks or none", "checkpoint_blocks"),
    # tensors beyond 32-bit indices
    _rule(Outcome.TOO_LARGE, r"canUse32BitIndexMath|32-bit index", "2.13 binary"),
    _rule(Outcome.TOO_LARGE, r"numeric_limits<u?int(32_t)?>::max|INT_MAX", "2.13 binary"),
    _rule(Outcome.TOO_LARGE, r"Storage size calculation overflowed", "2.13 run"),
    _rule(Outcome.TOO_LARGE, r"Tensor too large|[Tt]oo large or too many \(?.{0,8}dimensions", "2.13 binary"),
    _rule(Outcome.TOO_LARGE, r"CUDA error: invalid configuration argument", "2.13 binary, launch grid"),
    # device and driver
    _rule(
        Outcome.INVALID_CONFIG,
        r"Cannot re-initialize CUDA.*\(in DataLoader worker",
        "2.13 run",
        "loader workers cannot share the GPU of the process that forked them",
    ),
    _rule(Outcome.DEVICE_FAULT, r"illegal memory access|device-side assert|unspecified launch failure", "docs"),
    _rule(Outcome.DEVICE_FAULT, r"misaligned address|illegal instruction|hardware stack error", "docs"),
    _rule(Outcome.DEVICE_FAULT, r"launch timed out|uncorrectable ECC|GPU is lost|fallen off the bus", "docs, NVML"),
    _rule(Outcome.ENVIRONMENT, r"no kernel image is available|driver version is insufficient|no CUDA-capable", "docs"),
    _rule(Outcome.ENVIRONMENT, r"busy or unavailable|driver initialization failed|not yet initialized", "docs"),
    _rule(Outcome.ENVIRONMENT, r"not compiled with CUDA|Found no NVIDIA driver|Cannot re-initialize CUDA", "2.13 run"),
    _rule(Outcome.ENVIRONMENT, r"lib(cu|nccl|nv)\w+\.so|SUBLIBRARY_LOADING_FAILED", "2.13 binary"),
    _rule(Outcome.ENVIRONMENT, r"No usable temporary directory|torch_shm_manager at", "Python 3.11, 2.13 run", _TMPDIR),
    _rule(Outcome.ENVIRONMENT, r"AF_UNIX path too long", "Python 3.11 run", _TMPDIR),
    _rule(Outcome.ENVIRONMENT, r"No module named '(torch|autotune)'", "Python", "another interpreter than torch's"),
    # limits of the system
    _rule(Outcome.INVALID_CONFIG, r"Too many open files|received \d+ items of ancdata", "2.13 run", _FILES),
    _rule(Outcome.INVALID_CONFIG, r"can't start new thread", "Python 3.11 run", _THREADS),
    _rule(Outcome.INVALID_CONFIG, r"lacks a functioning sem_open", "Python 3.11", "loader workers need semaphores"),
    # compiler
    _rule(Outcome.COMPILE_FAILED, r"out of resource: [\w ]+", "triton 3, sam2#592", "of one kernel, not of the device"),
    _rule(Outcome.COMPILE_FAILED, r"No working C\+\+ compiler found|torch\._(dynamo|inductor)\.exc\.\w+", "2.13 run"),
    # configuration
    _rule(Outcome.INVALID_CONFIG, r"Expected more than 1 (value per channel|spatial element)", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"required rank [45] tensor to use channels_last", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"view size is not compatible with input tensor's size and stride", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"[Dd]isabling autocast|autocast was disabled|Autocast only supports", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"does not support bfloat16|Attempting to unscale FP16 gradients", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"not implemented for '(Half|BFloat16|Float8_\w+)'", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"(same dtype|expected scalar type|Input type).*\b(Half|BFloat16)\b", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"prefetch_factor option could only|persistent_workers option needs", "2.13 run"),
    _rule(Outcome.INVALID_CONFIG, r"batch_size should be a positive integer", "2.13 run"),
    # vague: an accident, or memory if the device was nearly full
    _rule(Outcome.CRASHED, r"(CUBLAS|CUSOLVER|CUSPARSE|HIPBLAS)_STATUS_\w+", "2.13 binary, Qwen#120", "", True),
    _rule(Outcome.CRASHED, r"CUDNN_STATUS_\w+|cuFFT error", "pytorch#17774", "", True),
    _rule(Outcome.CRASHED, r"(GET|FIND) was unable to find an engine|valid cuDNN algorithm", "pytorch#17774", "", True),
    _rule(Outcome.CRASHED, r"No execution plans support the graph|No valid engine", "cuDNN 9", "", True),
    _rule(Outcome.CRASHED, r"NCCL error|unhandled cuda error", "NCCL 2.29", "", True),
    _rule(Outcome.CRASHED, r"DataLoader worker .*killed by signal: \w+", "2.13 run"),
    _rule(Outcome.CRASHED, r"DataLoader worker .*exited unexpectedly(?: with exit code \d+)?", "2.13 run"),
    _rule(Outcome.CRASHED, r"DataLoader timed out|Pin memory thread exited", "2.13 run"),
)
