"""What `autotune doctor` says of a machine by the codes 13xx: sentences without a full stop, and their next steps."""

TORCH_WITH_CUDA = "{torch} (CUDA {cuda}), Python {python}"
TORCH_WITHOUT_CUDA = "{torch} (no CUDA), Python {python}"
GPU_NEEDS_CUDA_BUILD = (
    TORCH_WITHOUT_CUDA,
    "There is an NVIDIA GPU, but this torch was built without CUDA: install a CUDA build.",
)
GPU_DRIVER_TOO_OLD = (
    TORCH_WITH_CUDA,
    "There is an NVIDIA GPU, but torch cannot use it: driver[ {driver}] is probably too old for CUDA {cuda}. Update "
    "it, or install an older build; python -c 'import torch; torch.cuda.init()' says why.",
)
COMPILER_MISSING = "{knob} is not offered: {lacking}"
CPU_COMPILER_MISSING = (
    COMPILER_MISSING,
    "Install a C++ compiler and Python's headers (Debian: apt install g++ python3-dev), or say CXX=/path/g++.",
)
CUDA_COMPILER_MISSING = (
    COMPILER_MISSING,
    "Install triton and a C compiler (pip install triton; Debian: apt install gcc python3-dev).",
)
CORES_FREE = "{usable_cores} usable, {foreign_cores:.1f} kept busy by others"
CORES_SHARED = (
    CORES_FREE,
    "Probes would wait for them: speeds come out too low and too noisy. Wait until other work has ended.",
)
CORES_TAKEN = CORES_FREE, "Wait until other work has ended, or end it."
SHARED_MEMORY = "{free_bytes:bytes} free"
SHARED_MEMORY_SMALL = (
    SHARED_MEMORY,
    "Loader workers pass batches through it. In Docker start with --shm-size=8g or --ipc=host.",
)
GPU_FREE = (
    "{gpu}[, driver {driver}][, {used_bytes:bytes} of {total_bytes:bytes} used][, {processes:counted process}]"
    "[, slowed by {throttle_reasons:values}]"
)
GPU_IN_USE = GPU_FREE, "Another tenant or a power limit makes measurements noise: choose another --device."
PYNVML_DEPRECATED = (
    "the deprecated distribution is installed",
    "The deprecated distribution pynvml {version} is installed. It shadows nvidia-ml-py or makes `import torch` warn, "
    "and fail where warnings are errors. Run: pip uninstall pynvml, then: pip install --force-reinstall nvidia-ml-py",
)
