"""The declarations of moeflux.h, written by tools/bind_python.py; not to be edited."""
# ruff: noqa
from __future__ import annotations

import ctypes as c
from typing import Any, Dict, List, Tuple

MF_OK = 0
MF_ERR_ARGUMENT = -1
MF_ERR_MEMORY = -2
MF_ERR_IO = -3
MF_ERR_FORMAT = -4
MF_ERR_UNSUPPORTED = -5
MF_ERR_MISMATCH = -6
MF_ERR_CONTEXT_FULL = -7
MF_ERR_BUFFER_SIZE = -8
MF_ERR_CANNOT_TRUNCATE = -9
MF_ERR_TEMPLATE = -10
MF_ERR_GRAMMAR = -11
MF_ERR_CANCELLED = -12
MF_ERR_NOT_FINITE = -13
MF_ERR_POOL_FULL = -14
MF_ERR_NO_CHECKPOINT = -15
MF_ERR_BUSY = -16
MF_ERR_DEVICE = -17


class mf_error(c.Structure):
    status: int
    text: bytes
    origin: bytes
    _fields_ = [
        ('status', c.c_int),
        ('text', c.c_char * 512),
        ('origin', c.c_char * 64),
    ]


class mf_allocator(c.Structure):
    user: Any
    allocate: Any
    release: Any
    _fields_ = [
        ('user', c.c_void_p),
        ('allocate', c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t)),
        ('release', c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t)),
    ]


class mf_files(c.Structure):
    user: Any
    open: Any
    read: Any
    close: Any
    list: Any
    descriptor: Any
    _fields_ = [
        ('user', c.c_void_p),
        ('open', c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.POINTER(c.c_void_p), c.POINTER(c.c_uint64))),
        ('read', c.CFUNCTYPE(c.c_int64, c.c_void_p, c.c_void_p, c.c_uint64, c.c_void_p, c.c_size_t)),
        ('close', c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)),
        ('list', c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.CFUNCTYPE(None, c.c_void_p, c.c_char_p), c.c_void_p)),
        ('descriptor', c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)),
    ]

MF_LOG_DEBUG = 0
MF_LOG_INFO = 1
MF_LOG_WARNING = 2

mf_log_function = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)

MF_STAGE_EMBEDDING = 0
MF_STAGE_ATTENTION = 1
MF_STAGE_LATENT_ATTENTION = 2
MF_STAGE_DELTA = 3
MF_STAGE_ROUTER = 4
MF_STAGE_PREDICTION = 5
MF_STAGE_EXPERT_WAIT = 6
MF_STAGE_EXPERTS = 7
MF_STAGE_SHARED_EXPERT = 8
MF_STAGE_EXPERT_SUM = 9
MF_STAGE_DENSE = 10
MF_STAGE_HEAD = 11
MF_STAGE_COUNT = 12

MF_TRACE_SPAN = 0
MF_TRACE_READ_BEGIN = 1
MF_TRACE_READ_END = 2
MF_TRACE_COUNTER = 3


class mf_trace_event_union(c.Union):
    end_ns: int
    value: int
    _fields_ = [
        ('end_ns', c.c_uint64),
        ('value', c.c_uint64),
    ]


class mf_trace_event(c.Structure):
    kind: int
    worker: int
    name: Any
    begin_ns: int
    _union: Any
    layer: int
    detail: int
    stage: int
    _anonymous_ = ('_union',)
    _fields_ = [
        ('kind', c.c_int),
        ('worker', c.c_uint32),
        ('name', c.c_char_p),
        ('begin_ns', c.c_uint64),
        ('_union', mf_trace_event_union),
        ('layer', c.c_int32),
        ('detail', c.c_uint32),
        ('stage', c.c_int),
    ]

mf_trace_function = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(mf_trace_event), c.c_size_t)


class mf_engine_options(c.Structure):
    struct_size: int
    thread_count: int
    backend: Any
    kernels: Any
    log: Any
    log_user: Any
    allocator: Any
    files: Any
    profile: bool
    trace: Any
    trace_user: Any
    device_bytes: int
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('thread_count', c.c_uint32),
        ('backend', c.c_char_p),
        ('kernels', c.c_char_p),
        ('log', mf_log_function),
        ('log_user', c.c_void_p),
        ('allocator', c.POINTER(mf_allocator)),
        ('files', c.POINTER(mf_files)),
        ('profile', c.c_bool),
        ('trace', mf_trace_function),
        ('trace_user', c.c_void_p),
        ('device_bytes', c.c_uint64),
    ]


class mf_model_options(c.Structure):
    struct_size: int
    memory_bytes: int
    context_length: int
    chunk_rows: int
    experts_per_token: int
    expert_mode: Any
    read_ahead: Any
    reader: Any
    skip_checksums: bool
    sequences: int
    cache: Any
    cache_bytes: int
    cache_directory: Any
    cache_disk_bytes: int
    kv_type: Any
    stretch_context: bool
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('memory_bytes', c.c_uint64),
        ('context_length', c.c_uint32),
        ('chunk_rows', c.c_uint32),
        ('experts_per_token', c.c_uint32),
        ('expert_mode', c.c_char_p),
        ('read_ahead', c.c_char_p),
        ('reader', c.c_char_p),
        ('skip_checksums', c.c_bool),
        ('sequences', c.c_uint32),
        ('cache', c.c_char_p),
        ('cache_bytes', c.c_uint64),
        ('cache_directory', c.c_char_p),
        ('cache_disk_bytes', c.c_uint64),
        ('kv_type', c.c_char_p),
        ('stretch_context', c.c_bool),
    ]


class mf_sequence_options(c.Structure):
    struct_size: int
    context_length: int
    chunk_rows: int
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('context_length', c.c_uint32),
        ('chunk_rows', c.c_uint32),
    ]

MF_PHASE_PROMPT = 0
MF_PHASE_GENERATED = 1


class mf_part(c.Structure):
    sequence: Any
    phase: int
    tokens: Any
    count: int
    status: int
    why: Any
    _fields_ = [
        ('sequence', c.c_void_p),
        ('phase', c.c_int),
        ('tokens', c.POINTER(c.c_int32)),
        ('count', c.c_size_t),
        ('status', c.c_int),
        ('why', c.POINTER(mf_error)),
    ]

mf_progress_function = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.c_size_t)

mf_logits_function = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.POINTER(c.c_float))

MF_PLACE_NONE = 0
MF_PLACE_HEAD = 1
MF_PLACE_BREAKPOINT = 2
MF_PLACE_PROMPT_END = 3
MF_PLACE_JUNCTION = 4
MF_PLACE_LAST_USER = 5
MF_PLACE_ANSWER_END = 6
MF_PLACE_NET = 7

MF_RESUME_EMPTY = 0
MF_RESUME_ENDS = 1
MF_RESUME_DIFFERS = 2
MF_RESUME_GENERATED = 3
MF_RESUME_WHOLE = 4
MF_RESUME_OFF = 5


class mf_resumed(c.Structure):
    struct_size: int
    matched: int
    resumed: int
    replayed: int
    junction: int
    reason: int
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('matched', c.c_uint32),
        ('resumed', c.c_uint32),
        ('replayed', c.c_uint32),
        ('junction', c.c_uint32),
        ('reason', c.c_int),
    ]


class mf_routes(c.Structure):
    layer: int
    row_count: int
    per_row: int
    tokens: Any
    experts: Any
    weights: Any
    position: int
    _fields_ = [
        ('layer', c.c_uint32),
        ('row_count', c.c_uint32),
        ('per_row', c.c_uint32),
        ('tokens', c.POINTER(c.c_int32)),
        ('experts', c.POINTER(c.c_uint32)),
        ('weights', c.POINTER(c.c_float)),
        ('position', c.c_uint32),
    ]

mf_routes_function = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(mf_routes))

MF_SPECIAL_PARSE = 0
MF_SPECIAL_AS_TEXT = 1
MF_SPECIAL_NONE = 2


class mf_template_problem(c.Structure):
    struct_size: int
    kind: Any
    line: int
    column: int
    message: bytes
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('kind', c.c_char_p),
        ('line', c.c_uint32),
        ('column', c.c_uint32),
        ('message', c.c_char * 1024),
    ]


class mf_chat_options(c.Structure):
    struct_size: int
    messages: Any
    tools: Any
    variables: Any
    no_generation_prompt: bool
    find_places: bool
    now: int
    continue_last: bool
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('messages', c.c_char_p),
        ('tools', c.c_char_p),
        ('variables', c.c_char_p),
        ('no_generation_prompt', c.c_bool),
        ('find_places', c.c_bool),
        ('now', c.c_int64),
        ('continue_last', c.c_bool),
    ]


class mf_range(c.Structure):
    offset: int
    length: int
    _fields_ = [
        ('offset', c.c_size_t),
        ('length', c.c_size_t),
    ]


class mf_prompt_place(c.Structure):
    position: int
    place: int
    _fields_ = [
        ('position', c.c_uint32),
        ('place', c.c_int),
    ]

MF_REASONING_NONE = 0
MF_REASONING_MAY = 1
MF_REASONING_OPEN = 2


class mf_logit_bias(c.Structure):
    token: int
    bias: float
    _fields_ = [
        ('token', c.c_int32),
        ('bias', c.c_float),
    ]


class mf_sampler_options(c.Structure):
    struct_size: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    seed: int
    penalty_window: int
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_breakers: Any
    dry_breaker_count: int
    biases: Any
    bias_count: int
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('temperature', c.c_float),
        ('top_k', c.c_uint32),
        ('top_p', c.c_float),
        ('min_p', c.c_float),
        ('typical_p', c.c_float),
        ('seed', c.c_uint64),
        ('penalty_window', c.c_uint32),
        ('repetition_penalty', c.c_float),
        ('frequency_penalty', c.c_float),
        ('presence_penalty', c.c_float),
        ('dry_multiplier', c.c_float),
        ('dry_base', c.c_float),
        ('dry_allowed_length', c.c_uint32),
        ('dry_breakers', c.POINTER(c.c_int32)),
        ('dry_breaker_count', c.c_size_t),
        ('biases', c.POINTER(mf_logit_bias)),
        ('bias_count', c.c_size_t),
    ]


class mf_logprob(c.Structure):
    token: int
    logprob: float
    _fields_ = [
        ('token', c.c_int32),
        ('logprob', c.c_float),
    ]


class mf_constraint_options(c.Structure):
    struct_size: int
    grammar: Any
    json_schema: Any
    tools: Any
    tool_choice: Any
    one_call: bool
    family: Any
    reasoning: int
    note: Any
    note_user: Any
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('grammar', c.c_char_p),
        ('json_schema', c.c_char_p),
        ('tools', c.c_char_p),
        ('tool_choice', c.c_char_p),
        ('one_call', c.c_bool),
        ('family', c.c_char_p),
        ('reasoning', c.c_int),
        ('note', c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)),
        ('note_user', c.c_void_p),
    ]


class mf_detokenizer_options(c.Structure):
    struct_size: int
    show_special: bool
    family: Any
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('show_special', c.c_bool),
        ('family', c.c_char_p),
    ]

mf_text_function = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t)

MF_EVENT_REASONING = 0
MF_EVENT_CONTENT = 1
MF_EVENT_CALL_BEGIN = 2
MF_EVENT_CALL_ARGUMENTS = 3
MF_EVENT_CALL_END = 4
MF_EVENT_CALL_DROPPED = 5


class mf_event(c.Structure):
    kind: int
    text: Any
    length: int
    id: Any
    id_length: int
    call: int
    _fields_ = [
        ('kind', c.c_int),
        ('text', c.c_void_p),
        ('length', c.c_size_t),
        ('id', c.c_void_p),
        ('id_length', c.c_size_t),
        ('call', c.c_size_t),
    ]

mf_event_function = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(mf_event))


class mf_parser_options(c.Structure):
    struct_size: int
    family: Any
    tools: Any
    reasoning: int
    stream_calls: bool
    each: Any
    user: Any
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('family', c.c_char_p),
        ('tools', c.c_char_p),
        ('reasoning', c.c_int),
        ('stream_calls', c.c_bool),
        ('each', mf_event_function),
        ('user', c.c_void_p),
    ]

MF_STAGE_CAPACITY = 32


class mf_sequence_statistics(c.Structure):
    struct_size: int
    prompt_tokens: int
    decode_tokens: int
    prompt_seconds: float
    decode_seconds: float
    attention_seconds: float
    expert_seconds: float
    expert_wait_seconds: float
    head_seconds: float
    prompt_stage_seconds: Any
    decode_stage_seconds: Any
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('prompt_tokens', c.c_uint64),
        ('decode_tokens', c.c_uint64),
        ('prompt_seconds', c.c_double),
        ('decode_seconds', c.c_double),
        ('attention_seconds', c.c_double),
        ('expert_seconds', c.c_double),
        ('expert_wait_seconds', c.c_double),
        ('head_seconds', c.c_double),
        ('prompt_stage_seconds', c.c_double * 32),
        ('decode_stage_seconds', c.c_double * 32),
    ]


class mf_model_statistics(c.Structure):
    struct_size: int
    expert_mode: Any
    expert_reader: Any
    expert_direct: bool
    experts_present: int
    experts_total: int
    expert_slots: int
    expert_slot_bytes: int
    weight_bytes: int
    room_bytes: int
    sequence_bytes: int
    policy_bytes: int
    expert_hits: int
    expert_misses: int
    expert_bytes_read: int
    expert_waits: int
    expert_wait_seconds: float
    expert_evictions: int
    expert_ahead_reads: int
    expert_ahead_hits: int
    expert_ahead_late: int
    expert_ahead_wasted: int
    expert_ahead_bytes: int
    expert_wasted_bytes: int
    expert_ahead: bool
    expert_predictions: int
    expert_predictions_right: int
    expert_predict_seconds: float
    disk_reads: int
    disk_retries: int
    disk_bytes: int
    disk_seconds: float
    disk_depth: int
    disk_staged: bool
    pool_bytes: int
    pool_pages: int
    pool_states: int
    cache_bytes: int
    cache_pages: int
    cache_checkpoints: int
    cache_requests: int
    cache_asked_tokens: int
    cache_matched_tokens: int
    cache_resumed_tokens: int
    cache_pages_evicted: int
    cache_checkpoints_evicted: int
    cache_disk_bytes: int
    cache_disk_files: int
    cache_disk_read_bytes: int
    cache_disk_written_bytes: int
    cache_disk_damaged: int
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('expert_mode', c.c_char_p),
        ('expert_reader', c.c_char_p),
        ('expert_direct', c.c_bool),
        ('experts_present', c.c_uint64),
        ('experts_total', c.c_uint64),
        ('expert_slots', c.c_uint64),
        ('expert_slot_bytes', c.c_uint64),
        ('weight_bytes', c.c_uint64),
        ('room_bytes', c.c_uint64),
        ('sequence_bytes', c.c_uint64),
        ('policy_bytes', c.c_uint64),
        ('expert_hits', c.c_uint64),
        ('expert_misses', c.c_uint64),
        ('expert_bytes_read', c.c_uint64),
        ('expert_waits', c.c_uint64),
        ('expert_wait_seconds', c.c_double),
        ('expert_evictions', c.c_uint64),
        ('expert_ahead_reads', c.c_uint64),
        ('expert_ahead_hits', c.c_uint64),
        ('expert_ahead_late', c.c_uint64),
        ('expert_ahead_wasted', c.c_uint64),
        ('expert_ahead_bytes', c.c_uint64),
        ('expert_wasted_bytes', c.c_uint64),
        ('expert_ahead', c.c_bool),
        ('expert_predictions', c.c_uint64),
        ('expert_predictions_right', c.c_uint64),
        ('expert_predict_seconds', c.c_double),
        ('disk_reads', c.c_uint64),
        ('disk_retries', c.c_uint64),
        ('disk_bytes', c.c_uint64),
        ('disk_seconds', c.c_double),
        ('disk_depth', c.c_uint32),
        ('disk_staged', c.c_bool),
        ('pool_bytes', c.c_uint64),
        ('pool_pages', c.c_uint32),
        ('pool_states', c.c_uint32),
        ('cache_bytes', c.c_uint64),
        ('cache_pages', c.c_uint32),
        ('cache_checkpoints', c.c_uint32),
        ('cache_requests', c.c_uint64),
        ('cache_asked_tokens', c.c_uint64),
        ('cache_matched_tokens', c.c_uint64),
        ('cache_resumed_tokens', c.c_uint64),
        ('cache_pages_evicted', c.c_uint64),
        ('cache_checkpoints_evicted', c.c_uint64),
        ('cache_disk_bytes', c.c_uint64),
        ('cache_disk_files', c.c_uint64),
        ('cache_disk_read_bytes', c.c_uint64),
        ('cache_disk_written_bytes', c.c_uint64),
        ('cache_disk_damaged', c.c_uint64),
    ]


class mf_experts(c.Structure):
    struct_size: int
    layer_count: int
    row_count: int
    expert_count: int
    experts_per_token: int
    rows: Any
    expert_bytes: int
    map_bytes: int
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('layer_count', c.c_uint32),
        ('row_count', c.c_uint32),
        ('expert_count', c.c_uint32),
        ('experts_per_token', c.c_uint32),
        ('rows', c.POINTER(c.c_uint32)),
        ('expert_bytes', c.c_uint64),
        ('map_bytes', c.c_size_t),
    ]

MF_EXPERT_HIT = 0
MF_EXPERT_AHEAD = 1
MF_EXPERT_LATE = 2
MF_EXPERT_DEMAND = 3
MF_EXPERT_EVICTED = 4
MF_EXPERT_WASTED = 5

MF_EXPERT_KIND_CAPACITY = 8


class mf_expert_event(c.Structure):
    layer: int
    expert: int
    kind: int
    _fields_ = [
        ('layer', c.c_uint16),
        ('expert', c.c_uint16),
        ('kind', c.c_uint16),
    ]


class mf_expert_batch(c.Structure):
    events: Any
    count: int
    totals: Any
    bytes_read: int
    bytes_ahead: int
    bytes_wasted: int
    present: int
    seconds: float
    prompt_rows: int
    decode_rows: int
    stage_seconds: Any
    _fields_ = [
        ('events', c.POINTER(mf_expert_event)),
        ('count', c.c_size_t),
        ('totals', c.c_uint64 * 8),
        ('bytes_read', c.c_uint64),
        ('bytes_ahead', c.c_uint64),
        ('bytes_wasted', c.c_uint64),
        ('present', c.c_uint64),
        ('seconds', c.c_double),
        ('prompt_rows', c.c_uint32),
        ('decode_rows', c.c_uint32),
        ('stage_seconds', c.POINTER(c.c_double)),
    ]

mf_experts_function = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(mf_expert_batch))


class mf_step_report(c.Structure):
    prompt_rows: int
    decode_rows: int
    experts: int
    seconds: float
    expert_wait_seconds: float
    stage_seconds: Any
    _fields_ = [
        ('prompt_rows', c.c_uint32),
        ('decode_rows', c.c_uint32),
        ('experts', c.c_uint64),
        ('seconds', c.c_double),
        ('expert_wait_seconds', c.c_double),
        ('stage_seconds', c.POINTER(c.c_double)),
    ]


class mf_scheduler_options(c.Structure):
    struct_size: int
    parallel: int
    waiting: int
    max_gap_seconds: float
    park_directory: Any
    step: Any
    step_user: Any
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('parallel', c.c_uint32),
        ('waiting', c.c_uint32),
        ('max_gap_seconds', c.c_double),
        ('park_directory', c.c_char_p),
        ('step', c.CFUNCTYPE(None, c.c_void_p, c.POINTER(mf_step_report))),
        ('step_user', c.c_void_p),
    ]

MF_FINISH_CAPACITY = 8


class mf_scheduler_statistics(c.Structure):
    struct_size: int
    running: int
    waiting_interactive: int
    waiting_background: int
    parked: int
    submitted: int
    ended: Any
    refused_busy: int
    refused_large: int
    refused_wrong: int
    parked_times: int
    steps: int
    decode_rows: int
    prompt_rows: int
    step_seconds: float
    last_decode_rows: int
    last_prompt_rows: int
    last_step_seconds: float
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('running', c.c_uint32),
        ('waiting_interactive', c.c_uint32),
        ('waiting_background', c.c_uint32),
        ('parked', c.c_uint32),
        ('submitted', c.c_uint64),
        ('ended', c.c_uint64 * 8),
        ('refused_busy', c.c_uint64),
        ('refused_large', c.c_uint64),
        ('refused_wrong', c.c_uint64),
        ('parked_times', c.c_uint64),
        ('steps', c.c_uint64),
        ('decode_rows', c.c_uint64),
        ('prompt_rows', c.c_uint64),
        ('step_seconds', c.c_double),
        ('last_decode_rows', c.c_uint32),
        ('last_prompt_rows', c.c_uint32),
        ('last_step_seconds', c.c_double),
    ]

MF_PRIORITY_INTERACTIVE = 0
MF_PRIORITY_BACKGROUND = 1

MF_FINISH_NONE = 0
MF_FINISH_END = 1
MF_FINISH_STOP = 2
MF_FINISH_LENGTH = 3
MF_FINISH_CANCELLED = 4
MF_FINISH_FAILED = 5


class mf_request_token(c.Structure):
    token: int
    logprob: float
    logprobs: Any
    logprob_count: int
    _fields_ = [
        ('token', c.c_int32),
        ('logprob', c.c_float),
        ('logprobs', c.POINTER(mf_logprob)),
        ('logprob_count', c.c_size_t),
    ]


class mf_request_result(c.Structure):
    struct_size: int
    finish: int
    error: mf_error
    stop: Any
    prompt_tokens: int
    answer_tokens: int
    wait_seconds: float
    prompt_seconds: float
    answer_seconds: float
    parked: int
    cached: mf_resumed
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('finish', c.c_int),
        ('error', mf_error),
        ('stop', c.c_char_p),
        ('prompt_tokens', c.c_uint32),
        ('answer_tokens', c.c_uint32),
        ('wait_seconds', c.c_double),
        ('prompt_seconds', c.c_double),
        ('answer_seconds', c.c_double),
        ('parked', c.c_uint32),
        ('cached', mf_resumed),
    ]


class mf_request_options(c.Structure):
    struct_size: int
    prompt: Any
    tokens: Any
    token_count: int
    max_tokens: int
    ignore_end: bool
    sampling: Any
    constraint: Any
    stops: Any
    stop_count: int
    family: Any
    tools: Any
    stream_calls: bool
    logprobs: int
    token_logprobs: bool
    breakpoints: Any
    breakpoint_count: int
    priority: int
    client: int
    progress: Any
    token: Any
    event: Any
    ended: Any
    user: Any
    routes: Any
    prompt_token: Any
    _fields_ = [
        ('struct_size', c.c_size_t),
        ('prompt', c.c_void_p),
        ('tokens', c.POINTER(c.c_int32)),
        ('token_count', c.c_size_t),
        ('max_tokens', c.c_uint32),
        ('ignore_end', c.c_bool),
        ('sampling', c.POINTER(mf_sampler_options)),
        ('constraint', c.POINTER(mf_constraint_options)),
        ('stops', c.POINTER(c.c_char_p)),
        ('stop_count', c.c_size_t),
        ('family', c.c_char_p),
        ('tools', c.c_char_p),
        ('stream_calls', c.c_bool),
        ('logprobs', c.c_uint32),
        ('token_logprobs', c.c_bool),
        ('breakpoints', c.POINTER(c.c_uint32)),
        ('breakpoint_count', c.c_size_t),
        ('priority', c.c_int),
        ('client', c.c_uint64),
        ('progress', mf_progress_function),
        ('token', c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(mf_request_token))),
        ('event', mf_event_function),
        ('ended', c.CFUNCTYPE(None, c.c_void_p, c.POINTER(mf_request_result))),
        ('user', c.c_void_p),
        ('routes', mf_routes_function),
        ('prompt_token', c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.POINTER(mf_request_token))),
    ]


# name: what it returns, what it takes
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    'mf_status_name': (c.c_char_p, [c.c_int]),
    'mf_status_text': (c.c_char_p, [c.c_int]),
    'mf_stage_name': (c.c_char_p, [c.c_int]),
    'mf_engine_open': (c.c_int, [c.POINTER(c.c_void_p), c.POINTER(mf_engine_options), c.POINTER(mf_error)]),
    'mf_engine_close': (None, [c.c_void_p]),
    'mf_engine_thread_count': (c.c_uint32, [c.c_void_p]),
    'mf_engine_kernels': (c.c_char_p, [c.c_void_p]),
    'mf_engine_flush_trace': (None, [c.c_void_p]),
    'mf_version': (c.c_char_p, []),
    'mf_model_find': (c.c_int, [c.c_void_p, c.c_size_t, c.c_char_p, c.c_char_p, c.POINTER(mf_files), c.POINTER(mf_error)]),
    'mf_model_open': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.c_char_p, c.POINTER(mf_model_options), c.POINTER(mf_error)]),
    'mf_model_close': (None, [c.c_void_p]),
    'mf_model_vocab_size': (c.c_uint32, [c.c_void_p]),
    'mf_model_context_length': (c.c_uint32, [c.c_void_p]),
    'mf_model_name': (c.c_char_p, [c.c_void_p]),
    'mf_model_family': (c.c_char_p, [c.c_void_p]),
    'mf_model_eos': (c.c_int32, [c.c_void_p]),
    'mf_model_is_end': (c.c_bool, [c.c_void_p, c.c_int32]),
    'mf_model_engine': (c.c_void_p, [c.c_void_p]),
    'mf_sequence_open': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_sequence_options), c.POINTER(mf_error)]),
    'mf_sequence_close': (None, [c.c_void_p]),
    'mf_sequence_fork': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_error)]),
    'mf_sequence_feed': (c.c_int, [c.c_void_p, c.c_int, c.POINTER(c.c_int32), c.c_size_t, c.POINTER(mf_error)]),
    'mf_model_step': (c.c_int, [c.c_void_p, c.POINTER(mf_part), c.c_size_t, c.POINTER(mf_error)]),
    'mf_sequence_cancel': (None, [c.c_void_p]),
    'mf_sequence_watch_progress': (None, [c.c_void_p, mf_progress_function, c.c_void_p]),
    'mf_sequence_feed_each': (c.c_int, [c.c_void_p, c.c_int, c.POINTER(c.c_int32), c.c_size_t, mf_logits_function, c.c_void_p, c.POINTER(mf_error)]),
    'mf_sequence_logits': (c.POINTER(c.c_float), [c.c_void_p]),
    'mf_sequence_model': (c.c_void_p, [c.c_void_p]),
    'mf_sequence_tokens': (c.c_int, [c.c_void_p, c.c_uint32, c.c_uint32, c.POINTER(c.c_int32), c.POINTER(c.c_int), c.POINTER(mf_error)]),
    'mf_sequence_position': (c.c_uint32, [c.c_void_p]),
    'mf_sequence_context_length': (c.c_uint32, [c.c_void_p]),
    'mf_sequence_clear': (None, [c.c_void_p]),
    'mf_sequence_checkpoint': (c.c_int, [c.c_void_p, c.POINTER(mf_error)]),
    'mf_sequence_forget': (None, [c.c_void_p, c.c_uint32]),
    'mf_sequence_truncate': (c.c_int, [c.c_void_p, c.c_uint32, c.POINTER(c.c_uint32), c.POINTER(mf_error)]),
    'mf_sequence_snapshot_bytes': (c.c_uint64, [c.c_void_p]),
    'mf_sequence_save': (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.POINTER(c.c_size_t), c.POINTER(mf_error)]),
    'mf_sequence_load': (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.POINTER(mf_error)]),
    'mf_sequence_save_file': (c.c_int, [c.c_void_p, c.c_char_p, c.POINTER(mf_error)]),
    'mf_sequence_load_file': (c.c_int, [c.c_void_p, c.c_char_p, c.POINTER(mf_error)]),
    'mf_sequence_resume': (c.c_int, [c.c_void_p, c.POINTER(c.c_int32), c.c_size_t, c.POINTER(mf_resumed), c.POINTER(mf_error)]),
    'mf_sequence_keep': (c.c_int, [c.c_void_p, c.c_int, c.POINTER(mf_error)]),
    'mf_resumed_explain': (None, [c.c_void_p, c.c_size_t, c.POINTER(mf_resumed)]),
    'mf_sequence_watch_routes': (None, [c.c_void_p, mf_routes_function, c.c_void_p]),
    'mf_model_text': (c.c_void_p, [c.c_void_p]),
    'mf_text_open': (c.c_int, [c.POINTER(c.c_void_p), c.c_char_p, c.POINTER(mf_files), c.POINTER(mf_error)]),
    'mf_text_close': (None, [c.c_void_p]),
    'mf_text_tokenize': (c.c_int, [c.c_void_p, c.POINTER(c.c_int32), c.c_size_t, c.POINTER(c.c_size_t), c.c_void_p, c.c_size_t, c.c_int, c.POINTER(mf_error)]),
    'mf_text_token_count': (c.c_size_t, [c.c_void_p]),
    'mf_text_token_bytes': (c.c_void_p, [c.c_void_p, c.c_int32, c.POINTER(c.c_size_t)]),
    'mf_text_token_name': (c.c_char_p, [c.c_void_p, c.c_int32]),
    'mf_text_find_token': (c.c_int32, [c.c_void_p, c.c_char_p]),
    'mf_text_is_special': (c.c_bool, [c.c_void_p, c.c_int32]),
    'mf_text_bos': (c.c_int32, [c.c_void_p]),
    'mf_text_bos_token': (c.c_char_p, [c.c_void_p]),
    'mf_text_eos_token': (c.c_char_p, [c.c_void_p]),
    'mf_text_family': (c.c_char_p, [c.c_void_p]),
    'mf_family_name': (c.c_char_p, [c.c_size_t]),
    'mf_text_template': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_error)]),
    'mf_template_open': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.c_size_t, c.c_char_p, c.POINTER(mf_error)]),
    'mf_template_close': (None, [c.c_void_p]),
    'mf_template_source': (c.c_char_p, [c.c_void_p]),
    'mf_template_render': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.c_char_p, c.POINTER(mf_template_problem), c.POINTER(mf_error)]),
    'mf_chat_render': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_chat_options), c.POINTER(mf_error)]),
    'mf_prompt_from_text': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.c_void_p, c.c_size_t, c.POINTER(mf_error)]),
    'mf_prompt_close': (None, [c.c_void_p]),
    'mf_prompt_text': (c.c_void_p, [c.c_void_p, c.POINTER(c.c_size_t)]),
    'mf_prompt_content': (c.POINTER(mf_range), [c.c_void_p, c.POINTER(c.c_size_t)]),
    'mf_prompt_tokens': (c.POINTER(c.c_int32), [c.c_void_p, c.POINTER(c.c_size_t)]),
    'mf_prompt_places': (c.POINTER(mf_prompt_place), [c.c_void_p, c.POINTER(c.c_size_t)]),
    'mf_prompt_reasoning': (c.c_int, [c.c_void_p]),
    'mf_text_sampling': (c.c_int, [c.c_void_p, c.POINTER(mf_sampler_options), c.POINTER(mf_error)]),
    'mf_sampler_open': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_sampler_options), c.POINTER(mf_error)]),
    'mf_sampler_close': (None, [c.c_void_p]),
    'mf_sampler_pick': (c.c_int32, [c.c_void_p, c.POINTER(c.c_float)]),
    'mf_sampler_accept_prompt': (None, [c.c_void_p, c.POINTER(c.c_int32), c.c_size_t]),
    'mf_sampler_accept': (None, [c.c_void_p, c.c_int32]),
    'mf_sampler_reset': (None, [c.c_void_p]),
    'mf_sampler_logprobs': (c.c_size_t, [c.c_void_p, c.POINTER(mf_logprob), c.c_size_t, c.POINTER(c.c_float)]),
    'mf_sampler_logprob_of': (c.c_float, [c.c_void_p, c.POINTER(c.c_float), c.c_int32]),
    'mf_constraint_open': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_constraint_options), c.POINTER(mf_error)]),
    'mf_constraint_close': (None, [c.c_void_p]),
    'mf_constraint_pick': (c.c_int32, [c.c_void_p, c.c_void_p, c.POINTER(c.c_float), c.c_size_t]),
    'mf_constraint_accept': (c.c_bool, [c.c_void_p, c.c_int32]),
    'mf_constraint_is_complete': (c.c_bool, [c.c_void_p]),
    'mf_constraint_is_finished': (c.c_bool, [c.c_void_p]),
    'mf_constraint_closing_tokens': (c.c_size_t, [c.c_void_p]),
    'mf_constraint_reset': (None, [c.c_void_p]),
    'mf_detokenizer_open': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_detokenizer_options), c.POINTER(mf_error)]),
    'mf_detokenizer_close': (None, [c.c_void_p]),
    'mf_detokenizer_push': (c.c_void_p, [c.c_void_p, c.c_int32, c.POINTER(c.c_size_t)]),
    'mf_detokenizer_flush': (c.c_void_p, [c.c_void_p, c.POINTER(c.c_size_t)]),
    'mf_stops_open': (c.c_int, [c.POINTER(c.c_void_p), c.POINTER(c.c_char_p), c.c_size_t, c.POINTER(mf_error)]),
    'mf_stops_close': (None, [c.c_void_p]),
    'mf_stops_feed': (c.c_bool, [c.c_void_p, c.c_void_p, c.c_size_t, mf_text_function, c.c_void_p]),
    'mf_stops_finish': (None, [c.c_void_p, mf_text_function, c.c_void_p]),
    'mf_stops_found': (c.c_char_p, [c.c_void_p]),
    'mf_parser_open': (c.c_int, [c.POINTER(c.c_void_p), c.POINTER(mf_parser_options), c.POINTER(mf_error)]),
    'mf_parser_close': (None, [c.c_void_p]),
    'mf_parser_feed': (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.POINTER(mf_error)]),
    'mf_parser_finish': (c.c_int, [c.c_void_p, c.POINTER(mf_error)]),
    'mf_parser_cut': (c.c_int, [c.c_void_p, c.POINTER(mf_error)]),
    'mf_parser_message': (c.c_int, [c.POINTER(c.c_char_p), c.c_void_p, c.POINTER(mf_error)]),
    'mf_sequence_stats': (c.c_int, [c.c_void_p, c.POINTER(mf_sequence_statistics), c.POINTER(mf_error)]),
    'mf_sequence_reset_stats': (None, [c.c_void_p]),
    'mf_model_stats': (c.c_int, [c.c_void_p, c.POINTER(mf_model_statistics), c.POINTER(mf_error)]),
    'mf_model_reset_stats': (None, [c.c_void_p]),
    'mf_model_experts': (c.c_int, [c.c_void_p, c.POINTER(mf_experts), c.POINTER(mf_error)]),
    'mf_model_experts_present': (c.c_int, [c.c_void_p, c.POINTER(c.c_uint8), c.c_size_t, c.POINTER(mf_error)]),
    'mf_model_watch_experts': (c.c_int, [c.c_void_p, mf_experts_function, c.c_void_p, c.POINTER(mf_error)]),
    'mf_scheduler_open': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_scheduler_options), c.POINTER(mf_error)]),
    'mf_scheduler_close': (None, [c.c_void_p]),
    'mf_scheduler_stats': (c.c_int, [c.c_void_p, c.POINTER(mf_scheduler_statistics), c.POINTER(mf_error)]),
    'mf_request_submit': (c.c_int, [c.POINTER(c.c_void_p), c.c_void_p, c.POINTER(mf_request_options), c.POINTER(mf_error)]),
    'mf_request_cancel': (None, [c.c_void_p]),
    'mf_request_wait': (c.c_int, [c.c_void_p, c.POINTER(mf_request_result), c.POINTER(mf_error)]),
    'mf_request_message': (c.c_int, [c.POINTER(c.c_char_p), c.c_void_p, c.POINTER(mf_error)]),
    'mf_request_close': (None, [c.c_void_p]),
}

STRUCTS: List[Any] = [
    mf_error,
    mf_allocator,
    mf_files,
    mf_trace_event_union,
    mf_trace_event,
    mf_engine_options,
    mf_model_options,
    mf_sequence_options,
    mf_part,
    mf_resumed,
    mf_routes,
    mf_template_problem,
    mf_chat_options,
    mf_range,
    mf_prompt_place,
    mf_logit_bias,
    mf_sampler_options,
    mf_logprob,
    mf_constraint_options,
    mf_detokenizer_options,
    mf_event,
    mf_parser_options,
    mf_sequence_statistics,
    mf_model_statistics,
    mf_experts,
    mf_expert_event,
    mf_expert_batch,
    mf_step_report,
    mf_scheduler_options,
    mf_scheduler_statistics,
    mf_request_token,
    mf_request_result,
    mf_request_options,
]
