"""The arguments of PyTorch's events that have a column name of their own."""

from __future__ import annotations

from htareport.hta.configs.default_values import AttributeSpec, ValueType, YamlVersion

_INT, _FLOAT, _TEXT, _ANY = ValueType.Int, ValueType.Float, ValueType.String, ValueType.Object
_LATER = {"cpu_op::kernel_hash": YamlVersion(1, 1, 0)} | dict.fromkeys(
    ("nccl::input_tensors_start", "nccl::output_tensors_start"), YamlVersion(1, 2, 0)
)
_ROWS: dict[str, tuple[str, str, ValueType, object]] = {  # Key: column, name in the file, type, default.
    "index::ev_idx": ("ev_idx", "Ev Idx", _INT, -1),
    "index::external_id": ("external_id", "External id", _INT, -1),
    "index::python_id": ("python_id", "Python id", _INT, -1),
    "index::python_parent_id": ("python_parent_id", "Python parent id", _INT, -1),
    "cpu_op::concrete_inputs": ("concrete_inputs", "Concrete Inputs", _ANY, "[]"),
    "cpu_op::fwd_thread": ("fwd_thread_id", "Fwd thread id", _INT, -1),
    "cpu_op::input_dims": ("input_dims", "Input Dims", _ANY, "-1"),
    "cpu_op::input_type": ("input_type", "Input type", _ANY, "-1"),
    "cpu_op::input_strides": ("input_strides", "Input Strides", _ANY, "-1"),
    "cpu_op::sequence_number": ("sequence", "Sequence number", _INT, -1),
    "cpu_op::kernel_backend": ("kernel_backend", "kernel_backend", _TEXT, ""),
    "cpu_op::kernel_hash": ("kernel_hash", "kernel_hash", _TEXT, ""),
    "correlation::cbid": ("cbid", "cbid", _INT, -1),
    "correlation::cpu_gpu": ("correlation", "correlation", _INT, -1),
    "sm::blocks": ("blocks_per_sm", "blocks per SM", _ANY, "[]"),
    "sm::occupancy": ("est_occupancy", "est. achieved occupancy %", _INT, -1),
    "sm::warps": ("warps_per_sm", "warps per SM", _FLOAT, 0.0),
    "data::bytes": ("bytes", "bytes", _INT, -1),
    "data::bandwidth": ("memory_bw_gbps", "memory bandwidth (GB/s)", _FLOAT, 0.0),
    "cuda::context": ("context", "context", _INT, -1),
    "cuda::device": ("device", "device", _INT, -1),
    "cuda::stream": ("stream", "stream", _INT, -1),
    "kernel::queued": ("queued", "queued", _INT, -1),
    "kernel::shared_memory": ("shared_memory", "shared memory", _INT, -1),
    "threads::block": ("block", "block", _ANY, "[]"),
    "threads::grid": ("grid", "grid", _ANY, "[]"),
    "threads::registers": ("registers_per_thread", "registers per thread", _INT, -1),
    "cuda_sync::stream": ("wait_on_stream", "wait_on_stream", _INT, -1),
    "cuda_sync::event": ("wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_record_corr_id", _INT, -1),
    "info::finished": ("finished", "finished", _TEXT, ""),
    "info::labels": ("labels", "labels", _TEXT, ""),
    "info::name": ("name", "name", _INT, -1),
    "info::op_count": ("op_count", "Op count", _INT, -1),
    "info::sort_index": ("sort_index", "sort_index", _INT, -1),
    "nccl::collective_name": ("collective_name", "Collective name", _TEXT, ""),
    "nccl::in_msg_nelems": ("in_msg_nelems", "In msg nelems", _INT, 0),
    "nccl::out_msg_nelems": ("out_msg_nelems", "Out msg nelems", _INT, 0),
    "nccl::in_msg_size": ("in_msg_size", "In msg size", _INT, 0),
    "nccl::out_msg_size": ("out_msg_size", "Out msg size", _INT, 0),
    "nccl::group_size": ("group_size", "Group size", _INT, 0),
    "nccl::dtype": ("msg_dtype", "dtype", _TEXT, ""),
    "nccl::in_split_size": ("in_split_size", "In split size", _ANY, "[]"),
    "nccl::out_split_size": ("out_split_size", "Out split size", _ANY, "[]"),
    "nccl::input_tensors_start": ("input_tensors_start", "Input Tensors start", _ANY, "[]"),
    "nccl::output_tensors_start": ("output_tensors_start", "Output Tensors start", _ANY, "[]"),
    "nccl::process_group_name": ("process_group_name", "Process Group Name", _TEXT, ""),
    "nccl::process_group_desc": ("process_group_desc", "Process Group Description", _TEXT, ""),
    "nccl::process_group_ranks": ("process_group_ranks", "Process Group Ranks", _ANY, "[]"),
    "nccl::rank": ("process_rank", "Rank", _INT, -1),
    "nccl::seq": ("seq_num", "Seq", _INT, -1),
    "inference::batch_size": ("batch_size", "batchSize", _INT, -1),
    "inference::batch_id": ("batch_id", "batchId", _TEXT, ""),
}
OLDEST, NEWEST = YamlVersion(1, 0, 0), YamlVersion(1, 2, 0)
ARGUMENTS = {key: AttributeSpec(*row, _LATER.get(key, OLDEST)) for key, row in _ROWS.items()}

_INDEX = ("index::external_id", "index::python_id", "index::python_parent_id")
_MINIMUM = ("cuda::stream", "correlation::cpu_gpu")
_BANDWIDTH = ("data::bytes", "data::bandwidth")
_SYNC = ("cuda_sync::stream", "cuda_sync::event")
_SHAPES = ("cpu_op::input_dims", "cpu_op::input_type", "cpu_op::input_strides")
_COMMUNICATION = tuple(
    f"nccl::{name}"
    for name in (
        *("collective_name", "in_msg_nelems", "out_msg_nelems", "dtype", "group_size", "rank", "in_split_size"),
        "out_split_size",
    )
)
SETS = {
    "ARGS_INPUT_SHAPE": _SHAPES,
    "ARGS_BANDWIDTH": _BANDWIDTH,
    "ARGS_SYNC": _SYNC,
    "ARGS_MINIMUM": _MINIMUM,
    "ARGS_COMPLETE": tuple(key for key in _ROWS if not key.startswith("info")),
    "ARGS_INFO": ("info::labels", "info::name", "info::sort_index"),
    "ARGS_COMMUNICATION": _COMMUNICATION,
    "ARGS_TRITON_KERNELS": ("cpu_op::kernel_backend", "cpu_op::kernel_hash"),
    "ARGS_DEFAULT": (*_MINIMUM, *_BANDWIDTH, *_SYNC, *_SHAPES, *_INDEX, *_COMMUNICATION),
}
