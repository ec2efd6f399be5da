# ruff: noqa: E501 - messages are quoted whole
"""Real messages of failed training runs, each with where it was seen: the table that `test_failures.py` holds rules to."""

from __future__ import annotations

import signal

from autotune.results import Outcome

RUN, BINARY, CUDA, ISSUE = "torch 2.13.0+cpu, run", "torch 2.13.0 CUDA wheel, string", "CUDA 13 docs", "issue thread"
RUNTIME, VALUE = "builtins.RuntimeError", "builtins.ValueError"
ACCELERATOR, MEMORY = "torch.AcceleratorError", "torch.OutOfMemoryError"

# type, message, error code, expected outcome, source
SINGLE: list[tuple[str, str, int | None, Outcome, str]] = [
    (MEMORY, "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.05 GiB is free.", None, Outcome.OOM_DEVICE, BINARY),
    (MEMORY, "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit.", None, Outcome.OOM_DEVICE, BINARY),
    (MEMORY, "HIP out of memory. Tried to allocate 2.00 GiB.", None, Outcome.OOM_DEVICE, ISSUE),
    (MEMORY, "", None, Outcome.OOM_DEVICE, BINARY),
    ("torch.cuda.OutOfMemoryError", "whatever it says in another language", None, Outcome.OOM_DEVICE, BINARY),
    (RUNTIME, "XPU out of memory. Tried to allocate 2.00 GiB.", None, Outcome.OOM_DEVICE, ISSUE),
    (ACCELERATOR, "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", 2, Outcome.OOM_DEVICE, CUDA),
    (ACCELERATOR, "HIP error: out of memory", None, Outcome.OOM_DEVICE, ISSUE),
    (RUNTIME, "CUDA driver error: out of memory", None, Outcome.OOM_DEVICE, BINARY),
    (RUNTIME, "expandable_segments: memory mapping failed with OOM on device", None, Outcome.OOM_DEVICE, BINARY),
    (RUNTIME, "Allocation on device would exceed allowed memory. (out of memory)", None, Outcome.OOM_DEVICE, BINARY),
    (RUNTIME, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None, Outcome.OOM_DEVICE, ISSUE),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", None, Outcome.OOM_DEVICE, CUDA),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", None, Outcome.OOM_DEVICE, "cuDNN 9 docs"),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", None, Outcome.OOM_HOST, "cuDNN 9 docs"),
    ("torch.distributed.DistBackendError", "NCCL error in: x.cpp:94, unhandled cuda error, NCCL version 2.29\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'", None, Outcome.OOM_DEVICE, ISSUE),
    (RUNTIME, "MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max allowed: 27.20 GiB).", None, Outcome.OOM_DEVICE, ISSUE),
    (RUNTIME, "Invalid buffer size: 13.42 GB", None, Outcome.OOM_DEVICE, ISSUE),
    (RUNTIME, "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::8589934592", None, Outcome.OOM_DEVICE, "accelerate utils/memory.py"),
    (RUNTIME, "Triton Error [CUDA]: out of memory", None, Outcome.OOM_DEVICE, "triton 3"),
    (RUNTIME, "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)", None, Outcome.OOM_HOST, RUN),
    ("builtins.MemoryError", "", None, Outcome.OOM_HOST, "Python 3.11, run"),
    ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 74.5 GiB for an array with shape (10000000000,) and data type float64", None, Outcome.OOM_HOST, "numpy 2.4.6, run"),
    (RUNTIME, "Caught MemoryError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"data.py\", line 3, in __getitem__\n    return bytearray(10**12)\nMemoryError", None, Outcome.OOM_HOST, RUN),
    (RUNTIME, "Caught MemoryError in DataLoader worker process 0.", None, Outcome.OOM_HOST, RUN),
    (RUNTIME, "std::bad_alloc", None, Outcome.OOM_HOST, "libstdc++"),
    (ACCELERATOR, "Caught AcceleratorError in pin memory thread for device 0.\nOriginal Traceback (most recent call last):\n  File \"pin.py\", line 7, in pin\n    return data.pin_memory()\ntorch.AcceleratorError: CUDA error: out of memory", None, Outcome.OOM_HOST, ISSUE),
    (RUNTIME, "unable to allocate shared memory(shm) for file </torch_27737_3025331474_0>: No space left on device (28)", None, Outcome.OOM_SHM, RUN),
    (RUNTIME, "unable to mmap 77070336 bytes from file </torch_12_34_5>: Cannot allocate memory (12)", None, Outcome.OOM_SHM, BINARY),
    (RUNTIME, "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"w.py\", line 1, in f\n    storage._share_fd_cpu_()\nRuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left on device (28)", None, Outcome.OOM_SHM, RUN),
    ("builtins.OSError", "[Errno 28] No space left on device: '/dev/shm/pym-12-abc'", None, Outcome.OOM_SHM, "Python 3.11"),
    (RUNTIME, "Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true, but got false.", None, Outcome.TOO_LARGE, BINARY),
    (RUNTIME, "input tensor must fit into 32-bit index math", None, Outcome.TOO_LARGE, BINARY),
    (RUNTIME, "N <= std::numeric_limits<int32_t>::max() INTERNAL ASSERT FAILED", None, Outcome.TOO_LARGE, BINARY),
    (RUNTIME, "Tensor too large or too many (> 25) dimensions", None, Outcome.TOO_LARGE, BINARY),
    (RUNTIME, "CUDA error: invalid configuration argument", None, Outcome.TOO_LARGE, BINARY),
    (ACCELERATOR, "CUDA error: invalid configuration argument", 9, Outcome.TOO_LARGE, CUDA),
    (ACCELERATOR, "CUDA error: an illegal memory access was encountered", 700, Outcome.DEVICE_FAULT, CUDA),
    (ACCELERATOR, "CUDA error: device-side assert triggered", 710, Outcome.DEVICE_FAULT, CUDA),
    (RUNTIME, "CUDA error: misaligned address", None, Outcome.DEVICE_FAULT, CUDA),
    (RUNTIME, "CUDA error: the launch timed out and was terminated", None, Outcome.DEVICE_FAULT, CUDA),
    (RUNTIME, "Triton Error [CUDA]: an illegal memory access was encountered", None, Outcome.DEVICE_FAULT, "triton 3"),
    (ACCELERATOR, "CUDA error: CUDA-capable device(s) is/are busy or unavailable", 46, Outcome.ENVIRONMENT, CUDA),
    (RUNTIME, "CUDA error: CUDA-capable device(s) is/are busy or unavailable", None, Outcome.ENVIRONMENT, CUDA),
    (RUNTIME, "CUDA error: no kernel image is available for execution on the device", None, Outcome.ENVIRONMENT, BINARY),
    (RUNTIME, "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method", None, Outcome.ENVIRONMENT, RUN),
    ("builtins.AssertionError", "Torch not compiled with CUDA enabled", None, Outcome.ENVIRONMENT, RUN),
    ("builtins.ImportError", "libcudnn.so.9: cannot open shared object file: No such file or directory", None, Outcome.ENVIRONMENT, ISSUE),
    ("builtins.ModuleNotFoundError", "No module named 'torch'", None, Outcome.ENVIRONMENT, "Python 3.11, run"),
    (RUNTIME, "Too many open files. Communication with the workers is no longer possible. Please increase the limit using `ulimit -n`", None, Outcome.INVALID_CONFIG, RUN),
    (RUNTIME, "can't start new thread", None, Outcome.INVALID_CONFIG, "Python 3.11, run"),
    ("triton.runtime.errors.OutOfResources", "out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.", None, Outcome.COMPILE_FAILED, "sam2#592"),
    (RUNTIME, "out of resource: shared memory, Required: 131072, Hardware limit: 101376.", None, Outcome.COMPILE_FAILED, "triton 3"),
    ("torch._inductor.exc.InductorError", "InvalidCxxCompiler: No working C++ compiler found", None, Outcome.COMPILE_FAILED, RUN),
    (RUNTIME, "No working C++ compiler found in torch._inductor.config.cpp.cxx", None, Outcome.COMPILE_FAILED, RUN),
    (VALUE, "Expected more than 1 value per channel when training, got input size torch.Size([1, 4])", None, Outcome.INVALID_CONFIG, RUN),
    (RUNTIME, "required rank 4 tensor to use channels_last format", None, Outcome.INVALID_CONFIG, RUN),
    (RUNTIME, "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.", None, Outcome.INVALID_CONFIG, RUN),
    (RUNTIME, "Current CUDA Device does not support bfloat16. Please switch dtype to float16.", None, Outcome.INVALID_CONFIG, BINARY),
    (RUNTIME, "\"slow_conv2d_cpu\" not implemented for 'Half'", None, Outcome.INVALID_CONFIG, RUN),
    (RUNTIME, "mat1 and mat2 must have the same dtype, but got Half and Float", None, Outcome.INVALID_CONFIG, RUN),
    (VALUE, "Attempting to unscale FP16 gradients.", None, Outcome.INVALID_CONFIG, RUN),
    (VALUE, "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable multiprocessing.", None, Outcome.INVALID_CONFIG, RUN),
    (VALUE, "batch_size should be a positive integer value, but got batch_size=0", None, Outcome.INVALID_CONFIG, RUN),
    ("builtins.UserWarning", "In CPU autocast, but the target dtype is not supported. Disabling autocast.", None, Outcome.INVALID_CONFIG, RUN),
    ("builtins.UserWarning", "float64 is not an autocast dtype: autocast was disabled", None, Outcome.INVALID_CONFIG, "autotune"),
    (RUNTIME, "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", None, Outcome.CRASHED, "lm-eval#1689"),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.", None, Outcome.CRASHED, "pytorch#17774"),
    (RUNTIME, "GET was unable to find an engine to execute this computation", None, Outcome.CRASHED, BINARY),
    (RUNTIME, "No execution plans support the graph.", None, Outcome.CRASHED, "cuDNN 9"),
    ("torch.distributed.DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:94, internal error", None, Outcome.CRASHED, ISSUE),
    (RUNTIME, "DataLoader worker (pid(s) 27215) exited unexpectedly", None, Outcome.CRASHED, RUN),
    (RUNTIME, "DataLoader timed out after 3 seconds", None, Outcome.CRASHED, RUN),
    ("builtins.KeyError", "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"d.py\", line 2, in __getitem__\n    raise KeyError('CUDA out of memory')\nKeyError: 'label'", None, Outcome.USER_ERROR, RUN),
    ("builtins.KeyError", "'CUDA out of memory'", None, Outcome.USER_ERROR, "Python 3.11"),
    ("builtins.AssertionError", "No inf checks were recorded for this optimizer.", None, Outcome.USER_ERROR, RUN),
    (RUNTIME, "stack expects each tensor to be equal size, but got [1] at entry 0 and [2] at entry 1", None, Outcome.USER_ERROR, RUN),
    ("builtins.IndexError", "Target 7 is out of bounds.", None, Outcome.USER_ERROR, RUN),
    ("autotune.errors.TargetError", "build_model() returned None", None, Outcome.USER_ERROR, "autotune"),
    ("builtins.SystemExit", "3", None, Outcome.USER_ERROR, "Python 3.11"),
]  # fmt: skip

# the cause that DataLoader adds when a worker died
WORKER_DEATHS = (
    "DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
    "shared memory. Please try to raise your shared memory limit.",
    "DataLoader worker (pid 27215) is killed by signal: Killed. ",
)

# exit status, timed-out phase, kernel kills, available share, log, expected outcome, part of the evidence
EXITS: list[tuple[int, str | None, int | None, float | None, str, Outcome, str]] = [
    (0, None, None, None, "", Outcome.CRASHED, "exit status 0 without a result"),
    (3, None, None, None, "", Outcome.CRASHED, "exit status 3"),
    (74, None, None, None, "", Outcome.ENVIRONMENT, "could not write it"),
    (-signal.SIGSEGV, None, 0, 0.5, "", Outcome.CRASHED, "SIGSEGV"),
    (-signal.SIGTERM, None, 0, 0.5, "", Outcome.CRASHED, "SIGTERM"),
    (-signal.SIGKILL, None, 1, 0.5, "", Outcome.OOM_HOST, "counted 1 out-of-memory kill"),
    (-signal.SIGKILL, None, None, 0.03, "", Outcome.OOM_HOST, "with 3% of the host's memory available"),
    (-signal.SIGKILL, None, 0, 0.5, "", Outcome.CRASHED, "not by autotune"),
    (-signal.SIGKILL, None, None, None, "", Outcome.CRASHED, "not by autotune"),
    (-signal.SIGKILL, "build", 0, 0.5, "", Outcome.TIMEOUT, "given up in phase build"),
    (128 + signal.SIGKILL, None, 2, 0.5, "", Outcome.OOM_HOST, "counted 2"),
    (-signal.SIGBUS, None, 0, 0.5, "", Outcome.OOM_SHM, "/dev/shm"),
    (-(signal.SIGRTMIN + 1), None, 0, 0.5, "", Outcome.CRASHED, "signal"),
    (-signal.SIGABRT, None, 0, 0.5, "what():  std::bad_alloc", Outcome.OOM_HOST, "SIGABRT; log: std::bad_alloc"),
    (-signal.SIGABRT, None, 0, 0.5, "terminate called after throwing an instance of 'c10::AcceleratorError'\n  what():  CUDA error: an illegal memory access was encountered", Outcome.DEVICE_FAULT, "illegal memory access"),
    (1, None, 0, 0.5, "ModuleNotFoundError: No module named 'torch'", Outcome.ENVIRONMENT, "No module named 'torch'"),
    (-signal.SIGSEGV, None, 0, 0.5, "CUDA out of memory, trying again", Outcome.CRASHED, "SIGSEGV"),
]  # fmt: skip
