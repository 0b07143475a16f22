# SPDX-License-Identifier: Apache-2.0
"""The table of patterns that identify each kind of failure in a log. docs/failures.md describes the kinds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..archive.failures import RESUME, FailureKind
from ..hooks.isolation import FOREIGN_ACTOR_TEXT

CONFIG, IMPORT, MODEL = FailureKind.CONFIG, FailureKind.IMPORT, FailureKind.MODEL
DATA, REWARD, SERVICE = FailureKind.DATA, FailureKind.REWARD, FailureKind.SERVICE
HOST_OOM, GPU_OOM, GPU_FAULT = FailureKind.HOST_OOM, FailureKind.GPU_OOM, FailureKind.GPU_FAULT
LIMIT, DISK_FULL, STORAGE = FailureKind.LIMIT, FailureKind.DISK_FULL, FailureKind.STORAGE
COMMUNICATION, PORT_IN_USE = FailureKind.COMMUNICATION, FailureKind.PORT_IN_USE
NODE_LOST, ENGINE_LOST, KILLED = FailureKind.NODE_LOST, FailureKind.ENGINE_LOST, FailureKind.KILLED


@dataclass(frozen=True)
class Rule:
    """A pattern that identifies a kind of failure in the log, and what to report."""

    kind: FailureKind
    # Matches the exception with which the trainer ended, unless one of the flags below is set.
    pattern: str
    # Has the groups of the pattern in braces. Besides, `{error}` is the first line of the exception, `{file}` and
    # `{line}` are where it was raised, and `{process}` is the process that raised it.
    reason: str = "{error}"
    # Must match a line of the exception's traceback; "" for any.
    frame: str = ""
    # The pattern may match any line of any process.
    anywhere: bool = False
    # The pattern may match anywhere in an exception, or in what a process writes as it crashes.
    in_error: bool = False
    remedy: str = ""


def error_rule(kind: FailureKind, pattern: str, remedy: str = "", reason: str = "{error}", frame: str = "") -> Rule:
    """A rule for an exception, whichever library raised it."""
    return Rule(kind, pattern, reason, frame, in_error=True, remedy=remedy)


# Actors and nodes that die raise through the code of configuration, datasets and rewards, which is not at fault.
NOT_OF_RAY = r"(?P<what>(?!ray\.).+)"
CONFIG_CODE = r'File "[^"\n]*/verl/(?:utils/config\.py|workers/config/|trainer/config/)'
DATA_CODE = r'File "[^"\n]*/(?:verl/utils/dataset|torch/utils/data|torchdata|datasets|pyarrow)/'
REWARD_CODE = r'File "[^"\n]*/verl/(?:experimental/reward_loop|workers/reward_manager|trainer/ppo/reward\.py)'

# The reason begins with this. torch does not report why it could not write.
UNWRITTEN_CHECKPOINT = "a checkpoint could not be written"
BROKEN_STORAGE = (
    "Input/output error|Remote I/O error|Stale file handle|Read-only file system|Transport endpoint is not connected"
)
FULL_DISK = (
    r"(?i:no space left|disk quota exceeded|StorageFull|\b(?:os error|code:|errno:?) (?:28|122)\b"
    r"|OutOfDiskError|local disk is full|\b(?:ENOSPC|EDQUOT)\b)"
)
# The setting for the share of a GPU's memory that the inference engine takes, for its weights and its cache.
CACHE_SETTING = "actor_rollout_ref.rollout.gpu_memory_utilization"
# A node's name, or Ray's id of the node where the log still has it.
NODE_NAME = r"(?P<node>[\w-]+(?:\.[\w-]+)*)"
LOST_HEAD = "Failed to connect to GCS|WrongClusterID"
UNSCHEDULABLE = r"^\S*(?:Task|Actor)UnschedulableError: .*\bNodeAffinitySchedulingStrategy doesn't exist any more.*"

PROCESS_LIMIT_REMEDY = (
    "Start fewer processes and threads, or raise the limit of the nodes, nproc in ray_node_ulimits or ray_node_cpus: "
    "OMP_NUM_THREADS in env_vars, workers of data loaders and rewards. A retry alone fails again."
)

LOCAL_DISK_REMEDY = (
    "Free space on the local disk of the node, where Ray keeps its session and objects that do not fit into memory: "
    "df on the node shows it. Or put Ray's temporary directory on a larger disk."
)
FULL_SESSION_REASON = "the local disk of a node{process} is full, with {session}: {error}"

# Rules for exceptions, by subject.
LIMIT_RULES = (
    error_rule(
        LIMIT,
        r"Too many open files|received 0 items of ancdata|\binotify (?:watch|instance)|\b(?:os error|code:) 2[34]\b",
        "Raise the limit of open files of the nodes, nofile in ray_node_ulimits, or use fewer workers of data loaders: "
        "data.dataloader_num_workers. A retry alone fails again.",
        "a limit of open files is reached: {error}",
    ),
    # zmq has the same words for a socket from which nothing can be read yet.
    error_rule(
        LIMIT,
        r"can't start new thread|pthread_create|Thread creation failed|\b(?:os error|code:) 11\b"
        r"|^(?!.*zmq).*Resource temporarily unavailable",
        PROCESS_LIMIT_REMEDY,
        "a limit of processes and threads is reached: {error}",
    ),
    error_rule(
        LIMIT,
        r"\bibv_\w+.{0,200}?Cannot allocate memory|RLIMIT_MEMLOCK",
        "Raise the limit of locked memory of the nodes, memlock in ray_node_ulimits, to unlimited.",
        "a limit of locked memory is reached: {error}",
    ),
)
MEMORY_RULES = (
    error_rule(
        HOST_OOM,
        r"shared memory object .{0,200}?(?:No space left|Cannot allocate)|unable to (?:write to|mmap) .{0,99}?/torch_",
        "Give the nodes a larger /dev/shm.",
        "shared memory is full: {error}",
    ),
    # vLLM's and SGLang's words for memory that others have, and for a cache that does not fit.
    error_rule(
        GPU_OOM,
        r"Free memory on device|memory capacity is unbalanced",
        f"Lower {CACHE_SETTING}, or free the memory: nvidia-smi shows which processes use it.",
    ),
    error_rule(
        GPU_OOM,
        r"No available memory for the cache|KV cache is needed|Try increasing `gpu_memory_utilization`"
        r"|increase --mem-fraction-static|Not enough (?:GPU )?memory for KV",
        f"Raise {CACHE_SETTING}, lower actor_rollout_ref.rollout.max_model_len, or share the model between more GPUs "
        "with actor_rollout_ref.rollout.tensor_model_parallel_size.",
    ),
    error_rule(
        GPU_OOM,
        r"(?i:\b(?:cuda|hip|npu|triton|cumem|nccl|rccl)\w*\b.{0,200}?\bout of memory)|ALLOC_FAILED"
        # torch and cuBLAS say so too where no memory is left for what they need themselves.
        r"|NVML_SUCCESS == r INTERNAL ASSERT FAILED|CUBLAS_STATUS_NOT_INITIALIZED"
        r"|CUDA_ERROR_OUT_OF_MEMORY|ErrorMemoryAllocation|hipErrorOutOfMemory|Cuda failure 2\b|Failed to CUDA \w?alloc",
    ),
    error_rule(
        HOST_OOM, r"ObjectStoreFullError", "Give the nodes a larger object store: ray_node_object_store_memory."
    ),
)
GPU_RULES = (
    error_rule(
        GPU_FAULT,
        r"(?i:uncorrectable (?:ecc|nvlink)|EccUncorrectable|fallen off the bus|\bxid\b|gpu (?:is|has been) lost"
        r"|launch ?failure|devices? ?(?:\(s\) )?(?:is/are )?(?:busy or )?unavailable|SystemNotReady"
        r"|system not yet initialized|hardware ?stack ?error|device handle for gpu|no cuda gpus are available"
        r"|(?:cuda|hip) error: unknown error|cuda failure 999|nvml: (?:unknown error|gpu))",
        reason="a GPU failed{process}: {error}",
    ),
    # The segmentation fault of a GPU.
    error_rule(
        KILLED,
        r"(?i:illegal memory access|misaligned address|illegal ?address|illegal instruction was|memory access fault)",
        "A library read or wrote outside its memory on a GPU: try another version of it or of the engine's attention. "
        "CUDA_LAUNCH_BLOCKING=1 in env_vars shows which. If it is always the same node, check its GPU.",
        "a GPU's program crashed{process}: {error}",
    ),
    error_rule(
        MODEL,
        r"device-side assert|DeviceAssert|srcSelectDimSize|^IndexError: index out of range in self",
        "Compare the tokenizer's size, and the labels of the dataset, with vocab_size in config.json of the model: an "
        "index is larger than its table. CUDA_LAUNCH_BLOCKING=1 in env_vars shows in which call.",
        "an index is out of range: {error}",
    ),
    error_rule(
        CONFIG,
        r"Duplicate GPU detected.*",
        "Remove variables that choose GPUs, such as CUDA_VISIBLE_DEVICES, from env_vars: Ray sets them. Compare "
        "resources.gpus_per_node with the GPUs of a node.",
        "two ranks use one GPU: {match}",
    ),
    error_rule(
        CONFIG,
        r"invalid device ordinal",
        "Remove variables that choose GPUs, such as CUDA_VISIBLE_DEVICES, from env_vars: Ray sets them. Compare "
        "resources.gpus_per_node with the GPUs of a node.",
    ),
    error_rule(
        CONFIG,
        r"[Ee]xpandable segments are not compatible",
        "Remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF in env_vars.",
    ),
    error_rule(
        IMPORT,
        r"no kernel image is available|driver on your system is too old|driver version is insufficient"
        r"|(?:[Cc]ompute|[Cc]urrent|[Mm]inimum) capability|FlashAttention only supports"
        r"|forward compatibility was attempted|CUDAMismatchException",
        "Use an image that was built for this GPU and its driver.",
    ),
    # Engines and torch.compile build kernels as they start.
    error_rule(
        IMPORT,
        r"Failed to find C compiler|[Cc]ould not find nvcc|Ninja build failed|CompilationError\b|/nvcc'"
        r"|Command '.{0,99}?\bgcc\b|CUDA_HOME environment variable is not set",
        "Use an image with what builds kernels: a C compiler, the headers of Python and nvcc, of the versions that "
        "torch and the engine need. The lines of the compiler are above it in the log.",
        "a kernel could not be built: {error}",
    ),
    error_rule(
        CONFIG,
        r"Cannot re-initialize CUDA in forked",
        "Code in a data loader or a reward uses a GPU: keep its tensors on the CPU, or set "
        "data.dataloader_num_workers=0.",
    ),
)
DISK_RULES = (
    error_rule(DISK_FULL, r"OutOfDiskError|local disk is full", LOCAL_DISK_REMEDY, FULL_SESSION_REASON),
    error_rule(DISK_FULL, FULL_DISK, LOCAL_DISK_REMEDY, FULL_SESSION_REASON, frame=r"/ray/_private/"),
    error_rule(
        DISK_FULL, FULL_DISK, reason="no space to write {checkpoints}: {error}", frame=r"(?i:checkpoint|safetensors)"
    ),
    error_rule(
        DISK_FULL,
        FULL_DISK,
        "Free space where it was written: df on the node shows its disks. Caches of compilers and of Ray are on the "
        "local disk of the node.",
        "{error} ({file}, line {line})",
        frame="File",
    ),
    error_rule(DISK_FULL, FULL_DISK, "Free space where it was written: df on the node shows its disks."),
    error_rule(STORAGE, rf"{BROKEN_STORAGE}|\b(?:os error|code:) (?:5|30|116|121)\b"),
    error_rule(
        STORAGE,
        r"^(?:\w+\.)*PermissionError: \[Errno 13\]|\b(?:os error|code:) 13\b",
        "Give the user of the nodes the rights that it needs there; the shared root has to belong to it on all nodes.",
    ),
)
SERVICE_RULES = (
    error_rule(
        CONFIG,
        r"OfflineModeIsEnabled|offline mode is enabled|outgoing traffic has been disabled|LocalEntryNotFoundError"
        r"|couldn't connect to .https://huggingface|HFValidationError|Couldn't reach .{1,200}? on the Hub"
        r"|(?:GatedRepo|RepositoryNotFound|RevisionNotFound)Error|is not a valid model identifier",
        "Jobs read no hub. Stage the model or the dataset, and name its path in the JobSpec.",
    ),
    error_rule(
        CONFIG,
        r"api_key not configured|^\S*(?:Usage|Authentication)Error\b|[Ii]nvalid API key|\b401\b.{0,40}?[Uu]nauthorized",
        "Give the key as a secret: its name in secrets of the JobSpec, such as WANDB_API_KEY.",
    ),
    error_rule(
        SERVICE,
        r"^(?:requests|httpx|httpcore|urllib3|openai|anthropic|litellm|aiohttp|wandb|swanlab|mlflow|huggingface_hub)\.\S*"
        r"(?:Connect|Timeout|Comm|Server|Proxy|SSL|Protocol|RateLimit|Unavailable|MaxRetr|ReadError|WriteError)"
        r"|Max retries exceeded with url|NameResolutionError"
        r"|\b(?:429|50[0234])\b.{0,40}?(?:Error|Gateway|Unavailable|Too)",
        reason="a service is out of reach: {error} ({file}, line {line})",
        frame="File",
    ),
    error_rule(SERVICE, r"^\S*gaierror\b", reason="the name of a service is not known: {error}"),
    error_rule(
        SERVICE,
        r"^\S*(?:Connection\w*|Timeout)Error\b|^\S*(?:timeout|gaierror)\b",
        reason="a service is out of reach: {error} ({file}, line {line})",
        frame=REWARD_CODE + "|/user/code/",
    ),
)
# Sizes that do not fit each other, and a policy that has diverged.
SIZE_RULES = (
    error_rule(
        CONFIG,
        r"only support equal (?:chunk|split)|real_train_batch_size|must be divisible by minimal possible batch size"
        r"|batch_size.{0,99}? (?:must be|is not) divisible",
        "Choose data.train_batch_size times actor_rollout_ref.rollout.n, data.val_batch_size and ppo_mini_batch_size "
        "as multiples of the GPUs of the job (nnodes times gpus_per_node).",
        "sizes of batches do not fit the number of GPUs: {error}",
    ),
    error_rule(
        CONFIG,
        r"world[_ ]size .{0,99}?not divisible|number of required GPUs exceeds",
        "Choose parallel sizes (tensor, pipeline, context, expert) whose product divides the GPUs of the job.",
        "parallel sizes do not fit the number of GPUs: {error}",
    ),
    error_rule(
        CONFIG,
        r"model_world_size_\d+_rank_\d+\.pt",
        "A checkpoint of FSDP resumes with as many GPUs as it was written with. Compare nnodes and gpus_per_node with "
        "those of the job in resume_from, or export its checkpoint and begin from that model.",
        "the checkpoint has no part for this rank: {error}",
    ),
    error_rule(
        CONFIG,
        r"max_lora_rank|[Tt]arget modules .{0,200}?not found",
        "Compare lora_rank and target_modules of the job with the limits of the engine and the modules of the model.",
    ),
    error_rule(
        CONFIG,
        r"probability tensor contains either|\b(?:[Ll]oss|logits|gradients?) (?:is|are|contains?) (?:NaN|nan|inf)\b",
        "Compare actor/grad_norm, entropy and rewards of the last steps. Resume from an earlier checkpoint with a "
        "lower learning rate, a smaller clip ratio, or a KL loss; a dtype with a small range can be the cause too.",
        "the policy has diverged: {error}",
    ),
)
MODEL_RULES = (
    error_rule(
        MODEL,
        r"chat_template is not set|chat template functions|(?:have|has|no) (?:a |no |default ){,2}chat template",
        "Use an instruct model, or give the tokenizer a template: actor_rollout_ref.model.custom_chat_template, for "
        "sft model.custom_chat_template. Nothing is wrong with the dataset.",
        "the model has no chat template: {error}",
    ),
    error_rule(
        MODEL,
        r"^jinja2\.exceptions\.",
        "Compare the roles of the messages, and their order, with what the chat template of the model accepts, or set "
        "another one: actor_rollout_ref.model.custom_chat_template, for sft model.custom_chat_template.",
        "the model's chat template refuses a conversation: {error}",
    ),
    error_rule(
        MODEL,
        r"contains custom code|trust_remote_code",
        "If you trust the code in the directory of the model, set actor_rollout_ref.model.trust_remote_code=True, "
        "critic.model.trust_remote_code=True and data.trust_remote_code=True, for sft model.trust_remote_code=True.",
    ),
    error_rule(
        MODEL,
        r"max_position_embeddings|maximum (?:model|context|allowed) length|max_model_len .{0,80}?(?:greater|larger)"
        r"|exceeds? (?:the )?(?:model's )?(?:maximum )?(?:context|model) length|context length is",
        "Lower data.max_prompt_length and data.max_response_length, or actor_rollout_ref.rollout.max_model_len, to "
        "max_position_embeddings in config.json of the model, or use a model with a longer context.",
    ),
    error_rule(
        MODEL,
        r"(?i:heads?\b.{0,200}?divisible)",
        "Choose actor_rollout_ref.rollout.tensor_model_parallel_size, or ulysses_sequence_parallel_size, so that it "
        "divides num_attention_heads and num_key_value_heads in config.json of the model.",
    ),
    error_rule(
        MODEL,
        r"^AssertionError: \d+ is not divisible by \d+",
        "Choose actor_rollout_ref.rollout.tensor_model_parallel_size so that it divides the sizes in config.json of "
        "the model.",
        frame=r"/(?:vllm|sglang)/",
    ),
    error_rule(
        MODEL,
        r"not recognize this architecture|[Aa]rchitectures? .{0,300}?not supported|Unrecognized (?:model|configuration)"
        r"|has no vLLM implementation|model type .{0,99}? not (?:supported|recognized)|Unsupported architecture",
        "Use an image whose transformers and engine know this model, or a model that they know.",
    ),
    error_rule(
        MODEL,
        r"^KeyError: '",
        "Use an image whose transformers and engine know this model, or a model that they know.",
        "transformers does not know the model_type of the model: {error}",
        frame=r"/transformers/models/auto/",
    ),
    error_rule(
        MODEL,
        r"no file named|deserializing header|[Cc]annot find any model weights|size mismatch for|loading state_dict"
        r"|Can't load .{0,30}?(?:tokenizer|config|model)|Incorrect path_or_model_id|not appear to have a file named"
        r"|No module or parameter named|Tokenizer class .{0,99}? does not exist|instantiate the backend tokenizer"
        r"|PytorchStreamReader failed|UnpicklingError: invalid load key",
        "Compare the files of the model with its config.json, or stage it again, which checks them. If a checkpoint is "
        "read, one of its files may be damaged: resume from an earlier one.",
    ),
    error_rule(
        MODEL,
        r"^KeyError: ",
        "Use an image whose engine knows this model, or compare the names in the model's weights with its config.json.",
        "the engine does not know a weight of the model: {error}",
        frame=r"\bin load_weights\b",
    ),
    error_rule(
        MODEL,
        r"does not support Flash ?Attention|Head size .{0,30}?not supported|[Uu]nknown quantization method"
        r"|quantization method .{0,60}?not supported|rope_(?:scaling|type)",
        "Use an image whose transformers and engine support it, or change attn_implementation, quantization or "
        "rope_scaling in config.json of the model or in the settings of the job.",
        "the model has a setting that the software does not support: {error}",
    ),
    error_rule(
        DATA,
        r"[Ii]mage features and image tokens do not match",
        "Prompts with images were cut: raise data.max_prompt_length, or use smaller images.",
    ),
    error_rule(
        CONFIG,
        r"[Rr]eward manager(?: is not registered)?:",
        "Use a reward manager that this release of verl has.",
        frame=REWARD_CODE + "|" + CONFIG_CODE,
    ),
    error_rule(
        DATA,
        r"Nested data conversions not implemented",
        "Write the file with smaller row groups, or stage the dataset, which does so.",
        "{error} ({train_files})",
    ),
)

# A job can write any line, so each pattern takes a time in proportion to the length of the line. Words in any order are
# lookaheads from the beginning of the line, because two `.*` in a row would try every pair of places.
# The first rule that matches decides. Causes come before the failures that they lead to.
CAUSES = (
    # The message of isolation.refuse_foreign_actor.
    Rule(FailureKind.TRANSFER_QUEUE, rf"^\S*Error: (?P<what>\w+ {FOREIGN_ACTOR_TEXT}: .*)", "{what}"),
    Rule(NODE_LOST, rf"^.*\bits node has died\. Node Id: {NODE_NAME}.*", "node {node} was lost", anywhere=True),
    Rule(NODE_LOST, r"^(?=.*Owner's node has crashed).* Owner Ip address: (?P<ip>\S+) .*", "node {ip} was lost"),
    Rule(NODE_LOST, r"^\S*(?:NodeDied|LocalRayletDied)Error: (?P<what>.*)", "{what}"),
    # A task or an actor is pinned to a node that is gone.
    Rule(NODE_LOST, UNSCHEDULABLE, "a worker left the cluster while the job placed its processes on it"),
    Rule(FailureKind.HEAD_LOST, rf"^.*(?P<what>(?:{LOST_HEAD}).*)", "the head was lost: {what}", anywhere=True),
    *LIMIT_RULES,
    # /dev/shm is memory, although the error message is that of a disk.
    Rule(
        HOST_OOM,
        r"^(?:(?=.*/dev/shm)(?=.*No space left on device)|(?=.*out of shared memory)).*",
        "shared memory is full: {error}",
        anywhere=True,
        remedy="Give the nodes a larger /dev/shm.",
    ),
    Rule(
        HOST_OOM,
        r"^.*\bkilled due to the node running low on memory\.\s*(?:Memory on the node \(IP: (?P<ip>[^,\s]+).*)?",
        "the node {ip} ran out of memory: Ray killed a process of the job",
        anywhere=True,
    ),
    Rule(HOST_OOM, r"^\S*: .*(?P<what>DefaultCPUAllocator: .*|std::bad_alloc.*|Cannot allocate memory.*)", "{what}"),
    Rule(HOST_OOM, r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b.*", "{error}"),
    Rule(
        GPU_OOM,
        r"^\S*Error: (?:CUDA|HIP|NPU) out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)[. (]+GPU (?P<gpu>\d+).*",
        "GPU {gpu} ran out of memory: {size} could not be allocated",
        anywhere=True,
    ),
    Rule(GPU_OOM, r"^\S*Error: (?P<what>(?:CUDA|HIP|NPU)(?: error:)? out of memory.*)", "{what}", anywhere=True),
    *GPU_RULES,
    *MEMORY_RULES,
    *DISK_RULES,
    Rule(
        DISK_FULL,
        r"(?P<what>RuntimeError: .*(?:PytorchStreamWriter failed writing|iostream error|unexpected pos).*)",
        UNWRITTEN_CHECKPOINT + " to {checkpoints}: {error}",
        frame=r"torch/serialization\.py",
    ),
    Rule(
        PORT_IN_USE,
        r"^(?:\S*Error|ERROR): (?=.*(?:EADDRINUSE|[Aa]ddress already in use)).*(?:port: |', |\]:)(?P<port>\d+).*",
        "port {port} is in use",
        anywhere=True,
    ),
    Rule(
        PORT_IN_USE,
        r"^\S*Error: .*Address already in use \(addr='\S+:(?P<port>\d+)'.*",
        "port {port} is in use",
        anywhere=True,
    ),
    Rule(PORT_IN_USE, r"^\S*Error: .*(?:EADDRINUSE|[Aa]ddress already in use).*", "{error}", anywhere=True),
    error_rule(PORT_IN_USE, r"\bport \d+ is already in use"),
    *SERVICE_RULES,
    *SIZE_RULES,
    *MODEL_RULES,
    Rule(CONFIG, r"^(?:\S+: )?Could not override '(?P<key>[^'\n]+)'.*(?:\n.+)?", "the configuration has no key {key}"),
    Rule(CONFIG, r"^hydra\.errors\.InstantiationException: .*\n(?P<what>.+)\nfull_key: (?P<key>.+)", "{key}: {what}"),
    Rule(CONFIG, r"^(?:hydra|omegaconf)\.\S+: (?P<what>.+)(?:\n .*)*", "{what}"),
    Rule(CONFIG, NOT_OF_RAY, "{what}", frame=CONFIG_CODE),
    Rule(CONFIG, r"^ValueError: (?P<what>batch_size should be a positive integer value.*)", "{what}"),
    Rule(CONFIG, r"^ValueError: (?P<what>Total available GPUs .*)", "{what}"),
    error_rule(
        CONFIG,
        r"^\S*RuntimeEnvSetupError\b",
        "Leave packages and directories out of runtime_env: the image and the shared root have what jobs need.",
    ),
    error_rule(
        IMPORT,
        r"\bTemporaryActor\b",
        "A class of the job cannot be imported on a worker: its exception is in the worker's lines above.",
        "Ray could not import the class of an actor",
    ),
    Rule(CONFIG, r"^\S+: (?P<what>Failed to merge the Job's runtime env.*)", "{what}"),
    Rule(IMPORT, r"^The job was not started: (?P<what>.+)", "{what}"),
    Rule(IMPORT, r"(?P<what>OSError: \S+\.so\S*: cannot open shared object file.*)", "{what}", frame="File"),
    Rule(IMPORT, r"(?P<what>(?:ModuleNotFound|Import)Error: .*)", "{what} ({file}, line {line})", frame="File"),
    Rule(IMPORT, r"^\S+: (?P<what>(?:Error loading|Object not found in|Custom) module\b.*)", "{what}"),
    Rule(IMPORT, r"^(?=\S*python)\S+: (?P<what>No module named .+|Error while finding module .+)", "{what}"),
    Rule(KILLED, r"^RuntimeError: (?P<what>DataLoader worker .*(?:killed by signal|exited unexpectedly).*)", "{what}"),
    Rule(DATA, r"KeyError: (?P<key>.+)", "the dataset has no column {key} ({train_files})", frame=DATA_CODE),
    Rule(DATA, NOT_OF_RAY, "{what} ({train_files})", frame=DATA_CODE),
    Rule(DATA, r"^AssertionError: (?P<what>(?:Train|Validation) dataloader is empty.*)", "{what} ({train_files})"),
    Rule(
        DATA,
        r"KeyError: (?P<key>'(?:reward_model|ground_truth|data_source)')",
        "the dataset has no column {key}, which rewards need ({train_files})",
        frame=REWARD_CODE,
    ),
    Rule(REWARD, NOT_OF_RAY, "{what} ({file}, line {line})", frame=REWARD_CODE),
    Rule(REWARD, NOT_OF_RAY, "the reward function did not return a number: {what}", frame=r"= reward_score\b"),
    Rule(REWARD, r"^KeyError: .*\brm_scores\b.*", "the reward function returned None: {error}"),
)

# Messages that also follow from a lost node or a dead process.
CONSEQUENCES = (
    Rule(NODE_LOST, rf"^(?=.* has been marked dead).*\bnode id: {NODE_NAME}.*", "node {node} was lost", anywhere=True),
    # The driver gets this error at once; Ray declares a node dead only after several missed heartbeats.
    Rule(
        NODE_LOST,
        r"^\S*ActorUnavailableError: (?>.*?(?=RpcError))(?P<what>RpcError.*?) rpc_code.*",
        "a node or its network was lost: an actor no longer answers ({what})",
    ),
    Rule(
        HOST_OOM,
        r"^(?=.*killed due to memory pressure)(?=.*\bIP: (?P<ip>[^)\s]+)\)).* (?P<count>[1-9]\d*) Workers .*",
        "the node {ip} ran out of memory: Ray killed {count} of its processes",
        anywhere=True,
    ),
    # Which of its processes, before what others say of the engine as a whole.
    *(
        error_rule(ENGINE_LOST, pattern, reason="an engine ended: {error}")
        for pattern in (
            r"RPC call to \w+ timed out|Worker proc .{1,99}? died|scheduler is dead",
            r"EngineDeadError|EngineCore (?:died|encountered|hit)|Executor failed",
        )
    ),
    # torchrun names the rank that ended first; the others have lost their connections to it, or were ended.
    Rule(
        KILLED,
        r"^Root Cause .*\n\[\d+\]:\n(?:  (?:time|host)\b.*\n){,2}  rank +: (?P<rank>\d+) .*\n"
        r"(?:  (?:exitcode|error_file)\b.*\n){,2}"
        r"  traceback +: Signal \d+ \((?P<signal>\w+)\) received by PID (?P<pid>\d+)",
        "rank {rank} (pid={pid}) was killed by {signal}",
        anywhere=True,
    ),
    Rule(KILLED, r"^\S*WorkerCrashedError: (?P<what>.*)", "a worker process of Ray was killed or crashed: {what}"),
    error_rule(NODE_LOST, r"^\S*(?:Object|ReferenceCounting)\w*Error: .{0,200}?due to node failure"),
    error_rule(KILLED, r"^\S*(?:OwnerDied|ObjectLost|ObjectReconstructionFailed)\w*Error\b"),
    Rule(COMMUNICATION, r"^\S+: .*(?P<what>Unable to find address for: \S+).*", "gloo: {what}"),
    Rule(COMMUNICATION, r"^\S+: Gloo connectFullMesh failed with (?:\[\S+\] )?(?P<what>.*)", "gloo: {what}"),
    Rule(
        COMMUNICATION,
        r"^(?=.*Watchdog caught collective operation timeout: Work(?P<library>\w+)\()"
        r"(?=.*OpType=(?P<name>\w+))(?=.* ran for (?P<ms>\d+) milliseconds).*",
        "{library}: {name} did not finish within {ms} ms",
        anywhere=True,
    ),
    error_rule(
        COMMUNICATION,
        r"unhandled cuda error",
        "A call of CUDA failed in NCCL; NCCL_DEBUG=INFO in env_vars shows which. Compare the driver with the image, "
        "and the nodes' shared memory with what NCCL needs.",
    ),
    Rule(COMMUNICATION, r"^\S+: (?P<what>NCCL error in: (?!.*remote process exited).*)(?:\n.+){,3}", "{what}"),
    Rule(COMMUNICATION, r"^\S*Dist(?:Store|Network)Error: (?P<what>.*)", "{what}"),
    Rule(
        KILLED,
        r"^.*\*\*\* SIGBUS received at time.*",
        "a process crashed with SIGBUS",
        anywhere=True,
        remedy="Watch /dev/shm of its node while the job runs (df): a write into one that is full ends this way. Give "
        "the nodes a larger one (ray_node_shm_gib), or end what fills it." + RESUME,
    ),
    Rule(
        KILLED,
        r"^.*\*\*\* (?P<signal>SIG(?:SEGV|FPE|ILL|ABRT)) received at time.*",
        "a process crashed with {signal}",
        anywhere=True,
    ),
    Rule(
        KILLED,
        r"^\tclass_name: (?P<actor>.*)\n(?:\t(?!pid: ).*\n){,30}\tpid: (?P<pid>.*)\n"
        r"(?:\t(?!ip: ).*\n){,30}\tip: (?P<ip>.*)\n"
        r".*Worker unexpectedly exits with a connection error code 2\b.*",
        "actor {actor} (pid={pid}, ip={ip}) was killed or crashed",
    ),
    Rule(COMMUNICATION, r"^\S+: (?>.*?(?=Read error ))(?P<what>Read error .*Connection reset by peer).*", "{what}"),
    Rule(
        COMMUNICATION,
        r"^\S+: .*(?P<what>Connection closed by peer(?: \S+\d)?|"
        r"Timed out waiting \d+ms for \w+ operation|NCCL error in: .*).*",
        "{what}",
    ),
    Rule(KILLED, r"^.*\*\*\* (?P<signal>SIG\w+) received at time.*", "the trainer was ended by {signal}"),
)
# The reason of a process that lost its connection to another one; and Ray's message about one that died before.
LOST_PEER = re.compile(r"Connection (?:closed|reset) by peer|remote process exited")
DEAD_WORKER = Rule(
    KILLED,
    r"^.*A worker died or was killed while executing .*Worker IP address: (?P<ip>\S+) .*Worker PID: (?P<pid>\d+)",
    "a worker process of Ray (pid={pid}, ip={ip}) was killed or crashed",
    anywhere=True,
)
