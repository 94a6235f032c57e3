"""The operators that an exported graph may call: tensors in, tensors out, and nothing else reached.

A positive list, of names and of what their schemas may take. Left out on purpose: what opens files (`from_file`), what
shows memory that was never written (`empty`), what gives a tensor another storage or shape in place (`set_`, `resize_`,
`as_strided`), what changes the process (`manual_seed`, `set_grad_enabled`), sparse, quantised and nested tensors,
backward kernels, other back ends' private kernels, and every namespace but `aten`. Operators with subgraphs are those
whose subgraphs stand in the same file and are judged with it.
"""

from __future__ import annotations

import re

_NAMES = """
abs acos acosh add addbmm addcdiv addcmul addmm addmv addr alias all amax amin aminmax angle any arange argmax argmin
argsort asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
bitwise_xor bmm bucketize cdist ceil clamp clamp_max clamp_min clone copysign cos cosh cosine_similarity count_nonzero
cross cummax cummin cumprod cumsum diff div divide dot einsum eq erf erfc erfinv exp exp2 expm1 floor floor_divide
fmax fmin fmod frac ge gt hypot isclose isfinite isinf isnan kron kthvalue le lerp lgamma linalg_cross linalg_det
linalg_inv linalg_matrix_norm linalg_norm linalg_vecdot linalg_vector_norm log log10 log1p log2 logaddexp logaddexp2
logcumsumexp logical_and logical_not logical_or logical_xor logit logsumexp lt matmul maximum max mean median min
minimum mm mul multiply mv nan_to_num ne neg norm outer pow prod reciprocal remainder round rsqrt rsub searchsorted
sigmoid sign signbit sin sinc sinh sort sqrt square std std_mean sub subtract sum tan tanh tensordot topk trace
true_divide trunc var var_mean xlogy

adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
affine_grid_generator avg_pool1d avg_pool2d avg_pool3d batch_norm celu channel_shuffle constant_pad_nd conv1d conv2d
conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution dropout elu embedding feature_dropout gelu glu
grid_sampler grid_sampler_2d group_norm hardshrink hardsigmoid hardswish hardtanh instance_norm layer_norm leaky_relu
linear log_sigmoid lstm log_softmax max_pool1d max_pool2d max_pool2d_with_indices max_pool3d mish native_batch_norm
native_dropout native_group_norm native_layer_norm one_hot pad pixel_shuffle pixel_unshuffle prelu reflection_pad1d
reflection_pad2d relu relu6 replication_pad1d replication_pad2d rms_norm scaled_dot_product_attention selu silu
softmax softplus softshrink threshold upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
upsample_nearest2d upsample_trilinear3d _adaptive_avg_pool2d _log_softmax _native_batch_norm_legit
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _prelu_kernel _safe_softmax
_scaled_dot_product_flash_attention_for_cpu _softmax _upsample_bicubic2d_aa _upsample_bilinear2d_aa
_upsample_nearest_exact2d

alias_copy as_tensor broadcast_tensors broadcast_to cat chunk col2im column_stack concat concatenate contiguous copy
detach detach_copy diag diag_embed diagonal expand expand_as expand_copy eye fill flatten flip full full_like gather
hsplit hstack im2col index index_add index_copy index_fill index_put index_select isin lift_fresh_copy linspace
masked_fill masked_scatter masked_select meshgrid movedim narrow new_full new_ones new_zeros nonzero numpy_T ones
ones_like permute permute_copy positive rand rand_like randn randn_like ravel repeat repeat_interleave reshape
reshape_as roll scalar_tensor scatter scatter_add scatter_reduce select select_copy select_scatter slice slice_copy
slice_scatter split split_copy split_with_sizes split_with_sizes_copy squeeze squeeze_copy swapaxes swapdims stack t
t_copy take take_along_dim tensor_split tile to transpose transpose_copy tril triu type_as unbind unbind_copy
unflatten unfold unsqueeze unsqueeze_copy view view_as view_copy vsplit vstack where zeros zeros_like _reshape_copy
_to_copy _unsafe_index _unsafe_view

add_ addcmul_ bitwise_and_ clamp_ clamp_max_ clamp_min_ copy_ detach_ div_ dropout_ elu_ exp_ fill_ floor_ gelu_
hardsigmoid_ hardswish_ hardtanh_ index_put_ leaky_relu_ lift_fresh logical_and_ masked_fill_ mish_ mul_ neg_ pow_
reciprocal_ relu_ relu6_ rsqrt_ scatter_ selu_ sigmoid_ silu_ sqrt_ squeeze_ sub_ tanh_ unsqueeze_ zero_

item sym_numel sym_size sym_storage_offset sym_stride sym_constrain_range sym_constrain_range_for_size _assert_async
_assert_scalar _assert_tensor_metadata _local_scalar_dense
"""
OPERATORS = frozenset(_NAMES.split())
"""Names of `aten`, whatever the overload, as long as its schema takes `TYPES` and `WORDS` alone."""

TYPES = frozenset(
    f"{outer}{inner}{']' * outer.count('[')}"
    for inner in ("Tensor", "int", "float", "bool", "number", "Device")
    for outer in ("", "Optional[", "List[", "Optional[List[", "List[Optional[")
)
_WORDS = "approximate assert_msg equation indexing mode norm ord padding reduce rounding_mode side"
WORDS = frozenset(_WORDS.split())
"""Arguments that are texts: each chooses among the ways of one operator."""

LEFT_OUT = frozenset({("lstm", "data"), ("to", "prim_Device"), ("to", "prim_dtype")})
"""Overloads of names on the list: one believes the lengths of sequences that it is given, two look up a number that is
to be a `dtype`."""
SCALARS = frozenset(("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size"))
"""Operators without any tensor. Others are TorchScript's arithmetic; some end the process at a division by 0."""
SUBGRAPHS = frozenset(("cond", "wrap_with_set_grad_enabled", "wrap_with_autocast"))
NUMBERS = re.compile(
    r"_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|not_|xor|getitem)|"
    r"math\.(ceil|floor|trunc|sqrt)|torch\.(sym_(int|float|max|min|not|ite|sum)|_sym_sqrt)"
)
"""Arithmetic on sizes."""


def is_tensor_operator(target: str) -> bool:
    """Whether a node's target is on the list."""
    import torch

    if NUMBERS.fullmatch(target):
        return True
    parts = re.fullmatch(r"torch\.ops\.(aten|higher_order)\.(\w+)(?:\.(\w+))?", target)
    if parts is None:
        return False
    space, name, overload = parts.groups()
    if space == "higher_order":
        return name in SUBGRAPHS and overload is None
    if name not in OPERATORS or overload is None or (name, overload) in LEFT_OUT:
        return False
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or overload not in packet.overloads():
        return False
    schema = getattr(packet, overload)._schema
    tensors = any("Tensor" in str(each.type) for each in (*schema.arguments, *schema.returns))
    return takes_tensors(schema) and (tensors or name in SCALARS)


def takes_tensors(schema: object) -> bool:
    """Whether an operator's arguments are tensors, numbers, devices and words; none is a result to write into."""
    arguments = schema.arguments  # type: ignore[attr-defined]
    return all(
        not argument.is_out
        and (str(argument.type) in TYPES or ("str" in str(argument.type) and argument.name in WORDS))
        for argument in arguments
    )
