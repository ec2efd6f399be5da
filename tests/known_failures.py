# ruff: noqa: E501 - messages are quoted whole
"""Real messages of failed training runs, each with where it was seen: the table that `test_failures.py` holds rules to."""

from __future__ import annotations

import signal

from autotune.results import Outcome

RUN, BINARY, CUDA = "torch 2.13.0+cpu, run", "torch 2.13.0 CUDA wheel, string", "CUDA 13 docs, cudaError_t"
LIBRARY, ACCELERATE = "torch 2.13.0+cpu wheel, string", "accelerate 1.15.0 utils/memory.py"
ISSUE = "issue threads of PyTorch 2.x, read for the research note on measurement, table B2"
CUDA_RUN = "torch 2.11.0+cu130, raised by its own allocator and error handling"
ASYNCHRONOUS = "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
REFERENCE = (
    "in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n" + ASYNCHRONOUS
)
ADVICE = "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
RUNTIME, VALUE = "builtins.RuntimeError", "builtins.ValueError"
ACCELERATOR, MEMORY = "torch.AcceleratorError", "torch.OutOfMemoryError"

# type, message, error code, expected outcome, source
SINGLE: list[tuple[str, str, int | None, Outcome, str]] = [
    (MEMORY, "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.05 GiB is free.", None, Outcome.OOM_DEVICE, BINARY),
    (MEMORY, "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit.", None, Outcome.OOM_DEVICE, BINARY),
    (MEMORY, "HIP out of memory. Tried to allocate 2.00 GiB.", None, Outcome.OOM_DEVICE, ACCELERATE),
    (MEMORY, "", None, Outcome.OOM_DEVICE, BINARY),
    ("torch.cuda.OutOfMemoryError", "whatever it says in another language", None, Outcome.OOM_DEVICE, BINARY),
    (RUNTIME, "XPU out of memory. Tried to allocate 2.00 GiB.", None, Outcome.OOM_DEVICE, ACCELERATE),
    (ACCELERATOR, "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", 2, Outcome.OOM_DEVICE, CUDA),
    (MEMORY, "CUDA out of memory. Tried to allocate 10.00 GiB. GPU 0 has a total capacity of 139.81 GiB of which 139.32 GiB is free. 1.40 GiB allowed; Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. " + ADVICE, None, Outcome.OOM_DEVICE, CUDA_RUN),
    (MEMORY, "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 44.89 MiB\nRequested               : 32.00 MiB\nDevice limit            : 139.81 GiB\nFree (according to CUDA): 139.28 GiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 57.22 MiB", None, Outcome.OOM_DEVICE, CUDA_RUN),
    (ACCELERATOR, "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' " + REFERENCE, 2, Outcome.OOM_DEVICE, CUDA_RUN),
    (ACCELERATOR, "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' " + REFERENCE, 700, Outcome.DEVICE_FAULT, CUDA_RUN),
    (ACCELERATOR, "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' " + REFERENCE, 710, Outcome.DEVICE_FAULT, CUDA_RUN),
    (ACCELERATOR, "Caught AcceleratorError in pin memory thread for device 0.\nOriginal Traceback (most recent call last):\n  File \"pin_memory.py\", line 34, in do_one_step\n    data = pin_memory(data, device)\n           ^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"pin_memory.py\", line 57, in pin_memory\n    return data.pin_memory()\n           ^^^^^^^^^^^^^^^^^\ntorch.AcceleratorError: CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' " + REFERENCE + "\n", None, Outcome.OOM_HOST, CUDA_RUN),
    (ACCELERATOR, "HIP error: out of memory", None, Outcome.OOM_DEVICE, ISSUE),
    (RUNTIME, "CUDA driver error: out of memory", None, Outcome.OOM_DEVICE, BINARY),
    (RUNTIME, "expandable_segments: memory mapping failed with OOM on device", None, Outcome.OOM_DEVICE, BINARY),
    (RUNTIME, "Allocation on device would exceed allowed memory. (out of memory)", None, Outcome.OOM_DEVICE, BINARY),
    (RUNTIME, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None, Outcome.OOM_DEVICE, "lm-eval#1689"),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", None, Outcome.OOM_DEVICE, CUDA),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", None, Outcome.OOM_DEVICE, "cuDNN 9 docs"),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", None, Outcome.OOM_HOST, "cuDNN 9 docs"),
    ("torch.distributed.DistBackendError", "NCCL error in: x.cpp:94, unhandled cuda error, NCCL version 2.29\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'", None, Outcome.OOM_DEVICE, ISSUE),
    (RUNTIME, "MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max allowed: 27.20 GiB).", None, Outcome.OOM_DEVICE, ACCELERATE),
    (RUNTIME, "Invalid buffer size: 13.42 GB", None, Outcome.OOM_DEVICE, ISSUE),
    (RUNTIME, "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::8589934592", None, Outcome.OOM_DEVICE, ACCELERATE),
    (RUNTIME, "Triton Error [CUDA]: out of memory", None, Outcome.OOM_DEVICE, "triton 3"),
    (RUNTIME, "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)", None, Outcome.OOM_HOST, RUN),
    ("builtins.MemoryError", "", None, Outcome.OOM_HOST, "Python 3.11, run"),
    ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 74.5 GiB for an array with shape (10000000000,) and data type float64", None, Outcome.OOM_HOST, "numpy 2.4.6, run"),
    (RUNTIME, "Caught MemoryError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"data.py\", line 3, in __getitem__\n    return bytearray(10**12)\nMemoryError", None, Outcome.OOM_HOST, RUN),
    (RUNTIME, "Caught MemoryError in DataLoader worker process 0.", None, Outcome.OOM_HOST, RUN),
    (RUNTIME, "could not create a primitive", None, Outcome.OOM_HOST, RUN),
    (RUNTIME, "could not create a primitive descriptor for a convolution", None, Outcome.USER_ERROR, "oneDNN 3"),
    (RUNTIME, "std::bad_alloc", None, Outcome.OOM_HOST, "libstdc++ of GCC 12"),
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
    (RUNTIME, "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"data.py\", line 3, in __getitem__\n    return self.images[index]\nRuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method", None, Outcome.INVALID_CONFIG, RUN),
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
    ("builtins.UserWarning", "float64 is not an autocast dtype: autocast was disabled", None, Outcome.INVALID_CONFIG, "autotune 0.1"),
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
    ("autotune.errors.TargetError", "build_model() returned None", None, Outcome.USER_ERROR, "autotune 0.1"),
    (RUNTIME, "unable to resize file </torch_12_34_5> to the right size: No space left on device (28)", None, Outcome.OOM_SHM, LIBRARY),
    (RUNTIME, "unable to open shared memory object </torch_12_34_5> in read-write mode: Too many open files (24)", None, Outcome.INVALID_CONFIG, LIBRARY),
    (RUNTIME, "Storage size calculation overflowed with sizes=[1099511627776, 1099511627776]", None, Outcome.TOO_LARGE, RUN),
    (ACCELERATOR, "CUDA error: unspecified launch failure", 719, Outcome.DEVICE_FAULT, CUDA),
    (ACCELERATOR, "CUDA error: uncorrectable ECC error encountered", 214, Outcome.DEVICE_FAULT, CUDA),
    (ACCELERATOR, "CUDA error: the launch timed out and was terminated", 702, Outcome.DEVICE_FAULT, CUDA),
    (ACCELERATOR, "CUDA error: too many resources requested for launch", 701, Outcome.COMPILE_FAILED, CUDA),
    (ACCELERATOR, "CUDA error: no kernel image is available for execution on the device", 209, Outcome.ENVIRONMENT, CUDA),
    (ACCELERATOR, "CUDA error: CUDA driver version is insufficient for CUDA runtime version", 35, Outcome.ENVIRONMENT, CUDA),
    (ACCELERATOR, "CUDA error: no CUDA-capable device is detected", 100, Outcome.ENVIRONMENT, CUDA),
    (ACCELERATOR, "CUDA error: system not yet initialized", 802, Outcome.ENVIRONMENT, CUDA),
    ("torch._dynamo.exc.Unsupported", "Failed to trace builtin operator\n  Explanation: Dynamo does not know how to trace builtin operator `print`", None, Outcome.COMPILE_FAILED, RUN),
    ("torch._dynamo.exc.BackendCompilerFailed", "backend='bad' raised:\nValueError: backend says no", None, Outcome.COMPILE_FAILED, RUN),
    (VALUE, "Expected more than 1 spatial element when training, got input size torch.Size([2, 3, 1, 1])", None, Outcome.INVALID_CONFIG, RUN),
    (VALUE, "persistent_workers option needs num_workers > 0", None, Outcome.INVALID_CONFIG, RUN),
    (RUNTIME, "Input type (c10::Half) and bias type (float) should be the same", None, Outcome.INVALID_CONFIG, RUN),
    (RUNTIME, "mat1 and mat2 must have the same dtype, but got BFloat16 and Float", None, Outcome.INVALID_CONFIG, RUN),
    (RUNTIME, "DataLoader worker (pid(s) 27215, 27216) exited unexpectedly", None, Outcome.CRASHED, RUN),
    ("builtins.AttributeError", "Can't pickle local object 'dataset.<locals>.<lambda>'", None, Outcome.USER_ERROR, "Python 3.11, run under spawn"),
    ("builtins.IndexError", "index out of range in self", None, Outcome.USER_ERROR, RUN),
    (RUNTIME, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", None, Outcome.USER_ERROR, RUN),
    (RUNTIME, "element 0 of tensors does not require grad and does not have a grad_fn", None, Outcome.USER_ERROR, RUN),
    (RUNTIME, "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed).", None, Outcome.USER_ERROR, RUN),
    (RUNTIME, "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [2]]", None, Outcome.USER_ERROR, RUN),
    (RUNTIME, "unscale_() has already been called on this optimizer since the last update().", None, Outcome.USER_ERROR, RUN),
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
    (-signal.SIGABRT, None, 0, 0.5, "terminate called after throwing an instance of 'c10::AcceleratorError'\n  what():  CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' " + REFERENCE + "\nException raised from record at /pytorch/c10/cuda/CUDAEvent.h:152 (most recent call first):\n" + 20 * "frame #1: <unknown function> + 0xc114 (0x7f402d573114 in site-packages/torch/lib/libc10_cuda.so)\n" + "\nFatal Python error: Aborted\n", Outcome.DEVICE_FAULT, "SIGABRT; log: illegal memory access"),
    (1, None, 0, 0.5, "ModuleNotFoundError: No module named 'torch'", Outcome.ENVIRONMENT, "No module named 'torch'"),
    (-signal.SIGSEGV, None, 0, 0.5, "CUDA out of memory, trying again", Outcome.CRASHED, "SIGSEGV"),
]  # fmt: skip
