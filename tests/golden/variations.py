#!/usr/bin/env python3
"""variations.py PROGRAM DECODED SOURCE [--all] [NAME…]: shapes and options of no golden fixture.

Each is a tiny random checkpoint (tiny_checkpoints.py), written as people have them, and its logits
and greedy tokens are compared with plain arithmetic (plain.py), which is itself held to the numbers
of the golden fixtures first; those of the tuned path, as a prompt and token by token (decoded.c),
with the same arithmetic and the roundings that are documented (rounded.py).  Those take most of the
time: every fourth case has them, with --all every one."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import tiny_checkpoints as tiny
from plain import Model, family_of, gpt_oss
from rounded import Rounded

TOLERANCE = 2e-4            # of the largest logit, for the reference path
# The tuned path in every row, from arithmetic that rounds as it does.  Most rows are off by 1e-7;
# but a number in the middle between two roundings may go the other way, and these tiny random
# models enlarge that, the worst of them to 1.4e-2.  Token by token f16 alone is rounded to, and
# activations to 15 bits where weights are integers, which rounded.py does not do: 8e-4.
PROMPT_TOLERANCE, DECODE_TOLERANCE = 3e-2, 2e-3
# Between experts: closer ones may be told apart otherwise.  What a rounding to bf16 that went the
# other way does to the scores of later tokens was seen to turn a decision by 6e-4.
GAP, ROUNDED_GAP = 1e-4, 1e-3
PROMPT, GREEDY = 40, 6

BASE = dict(hidden_size=32, num_hidden_layers=3, vocab_size=48, rms_norm_eps=1e-6,
            num_experts_per_tok=2, moe_intermediate_size=16, max_position_embeddings=256)
QWEN = dict(BASE, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=6,
            intermediate_size=40)
HYBRID = dict(QWEN, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
              linear_value_head_dim=8, shared_expert_intermediate_size=24,
              full_attention_interval=2, rope_theta=1e4)
LATENT = dict(BASE, num_attention_heads=2, q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8,
              qk_rope_head_dim=4, v_head_dim=8, n_routed_experts=8, n_shared_experts=1,
              intermediate_size=40, first_k_dense_replace=1, n_group=1, topk_group=1)
GLM = dict(BASE, num_attention_heads=4, num_key_value_heads=2, head_dim=16, n_routed_experts=8,
           intermediate_size=40, n_group=1, topk_group=1)
YARN = dict(type="yarn", factor=4.0, original_max_position_embeddings=16)
CONFIGS = {
    "qwen3_moe": dict(QWEN, model_type="qwen3_moe"),
    "qwen3_next": dict(HYBRID, model_type="qwen3_next"),
    "qwen3_5_moe": dict(HYBRID, model_type="qwen3_5_moe_text"),
    "deepseek_v3": dict(LATENT, model_type="deepseek_v3"),
    "deepseek_v2": dict(LATENT, model_type="deepseek_v2"),
    "glm4_moe": dict(GLM, model_type="glm4_moe", attention_bias=True),
    "glm4_moe_lite": dict(LATENT, model_type="glm4_moe_lite", v_head_dim=12),
    "minimax_m2": dict(BASE, model_type="minimax_m2", num_attention_heads=4,
                       num_key_value_heads=2, head_dim=12, num_local_experts=6,
                       intermediate_size=16, rotary_dim=6),
}
CONFIGS["gemma4"] = dict(
    BASE, model_type="gemma4_text", num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=9,
    layer_types=["sliding_attention", "full_attention", "full_attention"], num_experts=6,
    top_k_experts=2, intermediate_size=40, tie_word_embeddings=True, num_experts_per_tok=None)
CONFIGS["gpt_oss"] = dict(
    BASE, model_type="gpt_oss", num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    num_local_experts=6, intermediate_size=32, sliding_window=9,
    rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64,
                      beta_fast=4.0, beta_slow=0.5, truncate=False))
del CONFIGS["gpt_oss"]["moe_intermediate_size"]      # it is the other one
NEXTN = {"blk.3.nextn.eh_proj.weight": [32, 64], "blk.3.attn_norm.weight": [32]}
FULL, LINEAR, SLIDING = "full_attention", "linear_attention", "sliding_attention"

# name: (family, changes of its config, writer, options of the writer); None takes a field out
HF, MLX, FP8, GGUF = (tiny.write_hugging_face, tiny.write_mlx, tiny.write_fp8, tiny.write_gguf)
CASES = {
    # grouped-query attention
    "qwen3_moe": ("qwen3_moe", {}, HF, {}),
    "head_dim_absent": ("qwen3_moe", dict(head_dim=None), HF, {}),
    "head_dim_odd_ones": ("qwen3_moe", dict(head_dim=10, num_attention_heads=3,
                                            num_key_value_heads=1), HF, {}),
    "as_many_kv_heads": ("qwen3_moe", dict(num_key_value_heads=4), HF, {}),
    "one_kv_head": ("qwen3_moe", dict(num_key_value_heads=1), HF, {}),
    "epsilon": ("qwen3_moe", dict(rms_norm_eps=1e-3), HF, {}),
    "theta": ("qwen3_moe", dict(rope_theta=1e6), HF, {}),
    "theta_in_parameters": ("qwen3_moe", dict(rope_parameters=dict(
        rope_type="default", rope_theta=5e5)), HF, {}),
    "scaling_null": ("qwen3_moe", dict(rope_scaling="null"), HF, {}),
    "tied": ("qwen3_moe", dict(tie_word_embeddings=True), HF, {}),
    "tied_with_a_head": ("qwen3_moe", dict(tie_word_embeddings=True), HF,
                         dict(extra={"lm_head.weight": [48, 32]})),
    # experts and dense layers
    "norm_topk_prob_true": ("qwen3_moe", dict(norm_topk_prob=True), HF, {}),
    "norm_topk_prob_false": ("qwen3_moe", dict(norm_topk_prob=False), HF, {}),
    "local_experts": ("qwen3_moe", dict(num_experts=None, num_local_experts=6), HF, {}),
    "all_experts": ("qwen3_moe", dict(num_experts_per_tok=6), HF, {}),
    "one_expert": ("qwen3_moe", dict(num_experts_per_tok=1), HF, {}),
    "mlp_only_first": ("qwen3_moe", dict(mlp_only_layers=[0]), HF, {}),
    "mlp_only_all_but_one": ("qwen3_moe", dict(mlp_only_layers=[0, 2]), HF, {}),
    "sparse_step_2": ("qwen3_moe", dict(decoder_sparse_step=2), HF, {}),
    "sparse_step_and_mlp_only": ("qwen3_moe", dict(
        decoder_sparse_step=2, mlp_only_layers=[1], num_hidden_layers=4), HF, {}),
    "stacked_experts": ("qwen3_moe", {}, HF, dict(stacked=True)),
    "half": ("qwen3_moe", {}, HF, dict(dtype="F16")),
    # YaRN on Qwen
    "yarn": ("qwen3_moe", dict(rope_scaling=YARN), HF, {}),
    "yarn_rope_type": ("qwen3_moe", dict(rope_scaling=dict(
        rope_type="yarn", factor=8.0, original_max_position_embeddings=8)), HF, {}),
    "yarn_betas": ("qwen3_moe", dict(rope_scaling=dict(YARN, beta_fast=4, beta_slow=0.5)), HF, {}),
    "yarn_attention_factor": ("qwen3_moe", dict(rope_scaling=dict(YARN, attention_factor=1.5)), HF,
                              {}),
    "yarn_in_parameters": ("qwen3_moe", dict(rope_parameters=dict(
        YARN, rope_theta=1e5, rope_type="yarn")), HF, {}),
    "yarn_of_the_whole_context": ("qwen3_moe", dict(rope_scaling=dict(
        type="yarn", factor=4.0), max_position_embeddings=32), HF, {}),
    "yarn_partial": ("qwen3_next", dict(rope_scaling=YARN, partial_rotary_factor=0.5), HF, {}),
    # hybrids
    "qwen3_next": ("qwen3_next", {}, HF, {}),
    "next_bf16": ("qwen3_next", {}, HF, dict(dtype="BF16")),
    "next_epsilon": ("qwen3_next", dict(rms_norm_eps=1e-4), HF, {}),
    "next_interval_3": ("qwen3_next", dict(full_attention_interval=3), HF, {}),
    "next_interval_absent": ("qwen3_next", dict(full_attention_interval=None,
                                                num_hidden_layers=5), HF, {}),
    "next_layer_types": ("qwen3_next", dict(layer_types=[FULL, LINEAR, FULL]), HF, {}),
    "next_all_linear": ("qwen3_next", dict(layer_types=[LINEAR] * 3), HF, {}),
    "next_all_full": ("qwen3_next", dict(layer_types=[FULL] * 3), HF, {}),
    "next_dense_layers": ("qwen3_next", dict(mlp_only_layers=[1]), HF, {}),
    "next_sparse_step": ("qwen3_next", dict(decoder_sparse_step=2), HF, {}),
    "next_not_renormalised": ("qwen3_next", dict(norm_topk_prob=False), HF, {}),
    "next_no_shared_expert": ("qwen3_next", dict(shared_expert_intermediate_size=0), HF, {}),
    "next_equal_heads": ("qwen3_next", dict(linear_num_value_heads=2), HF, {}),
    "next_three_to_one": ("qwen3_next", dict(linear_num_value_heads=6), HF, {}),
    "next_widths_differ": ("qwen3_next", dict(linear_key_head_dim=6, linear_value_head_dim=10), HF,
                           {}),
    "next_two_taps": ("qwen3_next", dict(linear_conv_kernel_dim=2), HF, {}),
    "next_rotary_all": ("qwen3_next", dict(partial_rotary_factor=1.0), HF, {}),
    "next_rotary_half": ("qwen3_next", dict(rope_parameters=dict(
        rope_theta=1e4, partial_rotary_factor=0.5)), HF, {}),
    "next_tied": ("qwen3_next", dict(tie_word_embeddings=True), HF, {}),
    "next_mtp": ("qwen3_next", {}, HF, dict(extra={"mtp.fc.weight": [32, 64],
                                                   "mtp.norm.weight": [32]})),
    "qwen3_5_moe": ("qwen3_5_moe", {}, HF, dict(stacked=True)),
    "3_5_experts_apart": ("qwen3_5_moe", {}, HF, {}),
    "3_5_norm_topk_prob_ignored": ("qwen3_5_moe", dict(norm_topk_prob=False), HF, {}),
    "3_5_nested": ("qwen3_5_moe", dict(nested=True), HF, dict(
        prefix="model.language_model.", stacked=True,
        extra={"model.visual.patch_embed.weight": [3, 3], "mtp.fc.weight": [32, 64]})),
    "3_5_nested_tied_outside": ("qwen3_5_moe", dict(nested=True, tied_outside=True), HF, dict(
        prefix="model.language_model.")),
    "3_5_mrope": ("qwen3_5_moe", dict(rope_parameters=dict(
        rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
        mrope_interleaved=True)), HF, {}),
    "3_5_layer_types": ("qwen3_5_moe", dict(layer_types=[LINEAR, FULL, FULL]), HF, {}),
    # latent attention
    "deepseek_v3": ("deepseek_v3", {}, HF, {}),
    "v3_no_q_lora": ("deepseek_v3", dict(q_lora_rank="null"), HF, {}),
    "v3_groups": ("deepseek_v3", dict(n_group=4, topk_group=2), HF, {}),
    "v3_groups_of_two": ("deepseek_v3", dict(n_group=4, topk_group=3, num_experts_per_tok=6), HF,
                         {}),
    "v3_one_group_of_two": ("deepseek_v3", dict(n_group=2, topk_group=1, num_experts_per_tok=3), HF,
                            {}),
    "v3_groups_with_negative_scores": ("deepseek_v3", dict(
        n_group=4, topk_group=2, num_experts_per_tok=4, bias=-3.0), HF, {}),
    "v3_not_renormalised": ("deepseek_v3", dict(norm_topk_prob=False), HF, {}),
    "v3_scale": ("deepseek_v3", dict(routed_scaling_factor=1.0), HF, {}),
    "v3_no_dense_layers": ("deepseek_v3", dict(first_k_dense_replace=0), HF, {}),
    "v3_dense_but_one": ("deepseek_v3", dict(first_k_dense_replace=2), HF, {}),
    "v3_no_shared_experts": ("deepseek_v3", dict(n_shared_experts=0), HF, {}),
    "v3_shared_experts_null": ("deepseek_v3", dict(n_shared_experts="null"), HF, {}),
    "v3_three_shared_experts": ("deepseek_v3", dict(n_shared_experts=3), HF, {}),
    "v3_half_split_rope": ("deepseek_v3", dict(rope_interleave=False), HF, {}),
    "v3_value_width": ("deepseek_v3", dict(v_head_dim=6, qk_nope_head_dim=10), HF, {}),
    "v3_square_widths": ("deepseek_v3", dict(v_head_dim=16, qk_nope_head_dim=16), HF, {}),
    "v3_epsilon": ("deepseek_v3", dict(rms_norm_eps=1e-3), HF, {}),
    "v3_tied": ("deepseek_v3", dict(tie_word_embeddings=True), HF, {}),
    "v3_mtp": ("deepseek_v3", dict(num_nextn_predict_layers=1), HF, dict(extra={
        "model.layers.3.enorm.weight": [32], "model.layers.3.self_attn.o_proj.weight": [32, 16]})),
    "v3_yarn": ("deepseek_v3", dict(rope_scaling=dict(YARN, mscale=1.0, mscale_all_dim=1.0)), HF,
                {}),
    "v3_yarn_scales_differ": ("deepseek_v3", dict(rope_scaling=dict(
        YARN, mscale=0.5, mscale_all_dim=1.5)), HF, {}),
    "v3_yarn_no_all_dim": ("deepseek_v3", dict(rope_scaling=dict(
        YARN, mscale=0.7, mscale_all_dim=0)), HF, {}),
    "v3_yarn_equal_betas": ("deepseek_v3", dict(rope_theta=5e4, rope_scaling=dict(
        YARN, beta_fast=1, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)), HF, {}),
    "kimi_k2": ("deepseek_v3", dict(model_type="kimi_k2", routed_scaling_factor=2.827), HF, {}),
    "deepseek_v2": ("deepseek_v2", dict(q_lora_rank="null", n_shared_experts=2), HF, {}),
    "v2_greedy_with_groups": ("deepseek_v2", dict(topk_method="greedy", n_group=4, topk_group=1),
                              HF, {}),
    "v2_group_limited": ("deepseek_v2", dict(topk_method="group_limited_greedy", n_group=4,
                                             topk_group=2, routed_scaling_factor=16.0), HF, {}),
    "v2_groups_without_method": ("deepseek_v2", dict(n_group=4, topk_group=1), HF, {}),
    "v2_groups_null": ("deepseek_v2", dict(topk_method="greedy", n_group="null",
                                           topk_group="null"), HF, {}),
    "v2_yarn": ("deepseek_v2", dict(rope_scaling=dict(YARN, mscale=0.707, mscale_all_dim=0.707)),
                HF, {}),
    "v3_biases": ("deepseek_v3", dict(attention_bias=True), HF, {}),
    # GLM
    "glm4_moe": ("glm4_moe", {}, HF, {}),
    "glm_no_bias": ("glm4_moe", dict(attention_bias=None, n_shared_experts=2), HF, {}),
    "glm_qk_norm": ("glm4_moe", dict(use_qk_norm=True, n_group=4, topk_group=2,
                                     routed_scaling_factor=2.5), HF, {}),
    "glm_no_shared_expert": ("glm4_moe", dict(n_shared_experts=0, norm_topk_prob=False), HF, {}),
    "glm_no_dense_layers": ("glm4_moe", dict(first_k_dense_replace=0, head_dim=None), HF, {}),
    "glm_layer_types": ("glm4_moe", dict(mlp_layer_types=["sparse", "dense", "sparse"]), HF, {}),
    "glm_mtp": ("glm4_moe", {}, HF, dict(dtype="BF16", extra={
        "model.layers.3.enorm.weight": [32], "model.layers.3.mlp.gate.weight": [8, 32]})),
    "glm_yarn": ("glm4_moe", dict(rope_scaling=YARN, tie_word_embeddings=True), HF, {}),
    "glm4_moe_lite": ("glm4_moe_lite", {}, HF, {}),
    "glm_lite_layer_types": ("glm4_moe_lite", dict(
        mlp_layer_types=["dense", "dense", "sparse"], q_lora_rank="null", head_dim=4), HF, {}),
    "glm_lite_biases": ("glm4_moe_lite", dict(attention_bias=True, n_group=2, topk_group=1,
                                              rope_interleave=False), HF, {}),
    # MiniMax
    "minimax_m2": ("minimax_m2", {}, HF, {}),
    "minimax_factor": ("minimax_m2", dict(rotary_dim=None, head_dim=16, rope_parameters=dict(
        rope_theta=1e4, rope_type="default", partial_rotary_factor=0.25)), HF, {}),
    "minimax_rotary_dim_first": ("minimax_m2", dict(rope_parameters=dict(
        rope_theta=1e4, rope_type="default"), partial_rotary_factor=1.0), HF, {}),
    "minimax_half": ("minimax_m2", dict(rotary_dim=None, num_key_value_heads=1), HF, {}),
    "minimax_mtp": ("minimax_m2", dict(num_mtp_modules=3, use_mtp=True), HF, dict(extra={
        "model.layers.3.mlp.gate.weight": [8, 32], "model.layers.5.norm.weight": [32]})),
    "minimax_fp8": ("minimax_m2", {}, FP8, dict(tile=(16, 8))),
    "glm_fp8_channels": ("glm4_moe", {}, FP8, dict(strategy="channel")),
    "glm_fp8_channels_bf16": ("glm4_moe", dict(hidden_size=64, moe_intermediate_size=32), FP8,
                              dict(strategy="channel", scale_type="BF16")),
    "glm_fp8_blocks": ("glm4_moe", {}, FP8, dict(strategy="block", tile=(16, 8))),
    "v3_fp8": ("deepseek_v3", {}, FP8, {}),
    "v3_fp8_tiles": ("deepseek_v3", {}, FP8, dict(tile=(16, 8))),
    "v3_fp8_exponents": ("deepseek_v3", {}, FP8, dict(tile=(8, 16), scale_type="F8_E8M0")),
    # Gemma
    "gemma4": ("gemma4", {}, HF, dict(stacked=True)),
    "gemma_own_values": ("gemma4", dict(attention_k_eq_v=False, final_logit_softcapping=5.0), HF,
                         dict(stacked=True)),
    "gemma_last_is_full": ("gemma4", dict(layer_types=["sliding_attention"] * 3), HF,
                           dict(stacked=True)),
    "gemma_no_list": ("gemma4", dict(layer_types=None, num_hidden_layers=7, sliding_window=4), HF,
                      dict(stacked=True)),
    "gemma_sizes_by_layer": ("gemma4", dict(
        global_head_dim=None, num_global_key_value_heads=None, per_layer_config={
            str(n): dict(head_dim=24, num_key_value_heads=4) for n in (1, 2)}), HF,
                             dict(stacked=True)),
    "gemma_rope": ("gemma4", dict(rope_parameters=dict(
        full_attention=dict(rope_type="proportional", rope_theta=1e3, partial_rotary_factor=0.5),
        sliding_attention=dict(rope_type="default", rope_theta=50.0))), HF, dict(stacked=True)),
    "gemma_nested": ("gemma4", dict(nested=True, tied_outside=True, rms_norm_eps=1e-3), HF, dict(
        prefix="model.language_model.", stacked=True, dtype="BF16",
        extra={"model.vision_tower.patch.weight": [3, 3], "model.embed_audio.x.weight": [3]})),
    "gemma_untied": ("gemma4", dict(tie_word_embeddings=False, top_k_experts=6), HF,
                     dict(stacked=True)),
    # MLX
    "mlx_4": ("qwen3_moe", {}, MLX, dict(bits={"": 4})),
    "mlx_every_width": ("qwen3_moe", dict(hidden_size=64, moe_intermediate_size=32), MLX, dict(
        bits={"": 4, "q_proj": 2, "k_proj": 3, "v_proj": (5, 64), "self_attn.o_proj": (6, 32),
              "mlp.gate": (8, 64), "switch_mlp.gate_proj": (3, 64), "switch_mlp.up_proj": 6,
              "embed_tokens": (8, 64), "lm_head": (5, 64), "layers.1.switch_mlp.down_proj": 2})),
    "mlx_left_out": ("qwen3_moe", {}, MLX, dict(bits={"": 4, "mlp.gate": 0, "lm_head": 0})),
    "mlx_tied": ("qwen3_moe", dict(tie_word_embeddings=True), MLX, dict(
        bits={"": 4, "embed_tokens": 6})),
    "mlx_groups_of_128": ("qwen3_moe", dict(hidden_size=128, moe_intermediate_size=128), MLX, dict(
        bits={"": 3}, group=128)),
    "mlx_nested": ("qwen3_5_moe", dict(nested=True), MLX, dict(
        prefix="language_model.model.", bits={"": 4, "in_proj_a": 8, "shared_expert_gate": 8})),
    "mlx_text_only": ("qwen3_5_moe", {}, MLX, dict(bits={"": 5})),
    "mlx_latent": ("deepseek_v3", dict(kv_lora_rank=32, qk_nope_head_dim=32, v_head_dim=16), MLX,
                   dict(bits={"": 4, "mlp.gate": 0})),
    "mlx_latent_split": ("deepseek_v3", dict(kv_lora_rank=32, qk_nope_head_dim=32, v_head_dim=16),
                         MLX, dict(split_kv_b=True, bits={"": 4, "mlp.gate": 0, "embed_q": 6})),
    "mlx_glm": ("glm4_moe", {}, MLX, dict(bits={"": 4, "mlp.gate": 0})),
    "mlx_glm_lite": ("glm4_moe_lite", dict(kv_lora_rank=32, qk_nope_head_dim=32, v_head_dim=16),
                     MLX, dict(split_kv_b=True, bits={"": 4, "mlp.gate": 0})),
    "mlx_minimax": ("minimax_m2", dict(model_type="minimax"), MLX, dict(
        bits={"": 4, "mlp.gate": 8})),
    "gemma_mlx": ("gemma4", dict(hidden_size=64, moe_intermediate_size=32, nested=True), MLX, dict(
        prefix="language_model.model.", bits={"": 4, "router.proj": 8})),
    # GGUF
    "gemma_gguf": ("gemma4", dict(final_logit_softcapping=8.0), GGUF, dict(fused_gate_up=True)),
    "gemma_gguf_own_values": ("gemma4", dict(attention_k_eq_v=False), GGUF, {}),
    "gemma_gguf_no_list": ("gemma4", dict(layer_types=None, num_hidden_layers=7), GGUF,
                           dict(silent_pattern=True)),
    "gemma_gguf_rope": ("gemma4", dict(rope_parameters=dict(
        full_attention=dict(rope_type="proportional", rope_theta=1e3, partial_rotary_factor=0.5),
        sliding_attention=dict(rope_type="default", rope_theta=50.0))), GGUF, {}),
    "gguf_qwen3moe": ("qwen3_moe", dict(norm_topk_prob=True), GGUF, {}),
    "gguf_version_2": ("qwen3_moe", dict(norm_topk_prob=True), GGUF, dict(version=2, dtype="F16")),
    "gguf_alignment_4096": ("qwen3_moe", dict(norm_topk_prob=True), GGUF, dict(
        alignment=4096, dtype="BF16")),
    "gguf_alignment_1": ("qwen3_moe", dict(norm_topk_prob=True), GGUF, dict(
        alignment=1, dtype="F16")),
    "gguf_fused": ("qwen3_moe", dict(norm_topk_prob=True), GGUF, dict(
        fused_qkv=True, fused_gate_up=True)),
    "gguf_tied": ("qwen3_moe", dict(norm_topk_prob=True, tie_word_embeddings=True), GGUF, {}),
    "gguf_yarn": ("qwen3_moe", dict(norm_topk_prob=True, rope_scaling=YARN), GGUF, {}),
    "gguf_yarn_attention_factor": ("qwen3_moe", dict(norm_topk_prob=True, rope_scaling=dict(
        YARN, attention_factor=1.5, beta_fast=4)), GGUF, {}),
    "gguf_qwen3next": ("qwen3_next", {}, GGUF, {}),
    "gguf_next_legacy": ("qwen3_next", {}, GGUF, dict(legacy_ssm_in=True)),
    "gguf_next_fused": ("qwen3_next", {}, GGUF, dict(fused_qkv=True, fused_gate_up=True)),
    "gguf_next_recurrent_layers": ("qwen3_next", dict(layer_types=[FULL, LINEAR, FULL]), GGUF, {}),
    "gguf_next_nextn": ("qwen3_next", {}, GGUF, dict(nextn=1, extra={
        "blk.3.nextn.eh_proj.weight": [32, 64], "blk.3.attn_norm.weight": [32]})),
    "gguf_qwen35moe": ("qwen3_5_moe", {}, GGUF, {}),
    "gguf_35_three_to_one": ("qwen3_5_moe", dict(linear_num_value_heads=6,
                                                 linear_value_head_dim=6), GGUF, {}),
    "gguf_35_equal_heads": ("qwen3_5_moe", dict(linear_num_value_heads=2), GGUF, {}),
    "gguf_deepseek2": ("deepseek_v3", {}, GGUF, {}),
    "gguf_deepseek2_kv_b": ("deepseek_v3", {}, GGUF, dict(legacy_kv_b=True, version=2)),
    "gguf_deepseek2_groups": ("deepseek_v3", dict(n_group=4, topk_group=2), GGUF, {}),
    "gguf_deepseek2_lite": ("deepseek_v2", dict(q_lora_rank="null", n_shared_experts=2), GGUF,
                            dict(gating=False)),
    "gguf_deepseek2_yarn": ("deepseek_v3", dict(rope_scaling=dict(
        YARN, mscale=0.707, mscale_all_dim=0.707)), GGUF, {}),
    "gguf_deepseek2_square": ("deepseek_v3", dict(v_head_dim=16, qk_nope_head_dim=16), GGUF, {}),
    "gguf_glm4moe": ("glm4_moe", dict(routed_scaling_factor=2.5), GGUF, dict(
        nextn=1, gating=False, extra=NEXTN)),
    "gguf_glm4moe_qk_norm": ("glm4_moe", dict(
        attention_bias=None, use_qk_norm=True, n_group=4, topk_group=2, n_shared_experts=2), GGUF,
                             dict(nextn=1, silent_nextn=True, extra=NEXTN)),
    "gguf_glm4moe_fused": ("glm4_moe", dict(norm_topk_prob=False, tie_word_embeddings=True), GGUF,
                           dict(fused_qkv=True, fused_gate_up=True)),
    "gguf_glm4lite": ("glm4_moe_lite", {}, GGUF, dict(nextn=1, extra=NEXTN)),
    "gguf_minimax": ("minimax_m2", {}, GGUF, {}),
    "gguf_minimax_silent": ("minimax_m2", dict(num_key_value_heads=4), GGUF, dict(gating=False)),
    # gpt-oss
    "gpt_oss": ("gpt_oss", {}, HF, {}),
    "gpt_oss_mxfp4": ("gpt_oss", dict(layer_types=[FULL, SLIDING, SLIDING]), HF, dict(mxfp4=True)),
    "gpt_oss_truncated": ("gpt_oss", dict(rope_scaling=dict(YARN, truncate=True, rope_type="yarn")), HF,
                          {}),
    "gpt_oss_silent_rope": ("gpt_oss", dict(rope_scaling="null", attention_bias=False,
                                            num_key_value_heads=1), HF, dict(dtype="BF16")),
    "gpt_oss_plain_rope": ("gpt_oss", dict(rope_scaling=None, rope_parameters=dict(
        rope_type="default", rope_theta=1e3)), HF, dict(mxfp4=True)),
    "gpt_oss_mlx": ("gpt_oss", {}, MLX, dict(bits={"": 4, "mlp.gate": 8})),
    "gpt_oss_mlx_mxfp4": ("gpt_oss", {}, MLX, dict(bits={
        "": "mxfp4", "mlp.gate": 8, "o_proj": 8, "lm_head": 6})),
    "gpt_oss_gguf": ("gpt_oss", {}, GGUF, {}),
    "gpt_oss_gguf_pattern": ("gpt_oss", dict(layer_types=[SLIDING, SLIDING, FULL]), GGUF, dict(
        dtype="BF16", more_metadata=[("gpt-oss.attention.sliding_window_pattern", tiny.U32, 3)])),
}

# --------------------------------------------------------------------------
# the reference against golden fixtures


def read_golden(directory):
    """Tensors of a folder as plain.py wants them; bf16 and f32 checkpoints."""
    config = json.loads((directory / "config.json").read_text())
    family, out, packed = family_of(config), {}, {}
    for path in sorted(directory.glob("model*.safetensors")):
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + size]).items():
            if (name == "__metadata__" or "visual." in name or name.startswith("mtp.") or
                    "vision" in name):
                continue
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            raw = data[begin:end]
            if entry["dtype"] == "U8":
                packed[name.removeprefix("model.")] = (entry["shape"], raw)
                continue
            if entry["dtype"] == "BF16":
                wide = bytearray(2 * len(raw))
                wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
                raw = bytes(wide)
            values = struct.unpack(f"<{len(raw) // 4}f", raw)
            short = name.removeprefix("model.").removeprefix("language_model.")
            short = plain_name(short)
            if tiny.is_zero_centred(family, short):
                values = [1 + x for x in values]
            put_golden(out, config, short, [n for n in entry["shape"] if n != 1 or "_gate" in name] or [1],
                       list(values))
    for name, (shape, raw) in packed.items():
        if name.endswith("_blocks"):
            values = gpt_oss.read_blocks(raw, packed[name.replace("_blocks", "_scales")][1])
            rows = [values[i:i + 32 * shape[2]] for i in range(0, len(values), 32 * shape[2])]
            put_gpt_oss(out, name.removesuffix("_blocks"), shape, rows)
    return config, out


def plain_name(name):
    """The name in plain.py of what MiniMax and gpt-oss call otherwise."""
    name = name.replace(".mlp.router.", ".mlp.gate.")
    if ".block_sparse_moe." not in name:
        return name
    name = name.replace(".block_sparse_moe.", ".mlp.").replace("mlp.e_score", "mlp.gate.e_score")
    for part, letter in ("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2"):
        name = name.replace(f".{letter}.", f".{part}.")
    return name


def put_golden(out, config, name, shape, values):
    if len(shape) == 1:
        out[name] = values
        return
    rows = [values[i:i + shape[-1]] for i in range(0, len(values), shape[-1])]
    if family_of(config) == gpt_oss.FAMILY and ".experts." in name:
        if not name.endswith("_bias"):     # one column after the other
            rows = [list(row) for e in range(shape[0])
                    for row in zip(*rows[e * shape[1]:(e + 1) * shape[1]])]
            shape = [shape[0], shape[2]]
        put_gpt_oss(out, name, shape, rows)
        return
    if ".experts.gate_up_proj" in name or ".experts.down_proj" in name:
        stem, count = name.rsplit(".", 1)[0], shape[1]
        for e in range(shape[0]):
            block = rows[e * count:(e + 1) * count]
            if "down" in name:
                out[f"{stem}.{e}.down_proj.weight"] = block
            else:
                out[f"{stem}.{e}.gate_proj.weight"] = block[:count // 2]
                out[f"{stem}.{e}.up_proj.weight"] = block[count // 2:]
    elif name.endswith(("in_proj_qkvz.weight", "in_proj_ba.weight")):
        split_golden(out, config, name, rows)
    else:
        out[name] = rows


def put_gpt_oss(out, name, shape, rows):
    """Experts, or their biases: those of gate and of up alternate."""
    stem, module = name.rsplit(".", 1)
    kind = "bias" if module.endswith("_bias") else "weight"
    for e in range(shape[0]):
        own = rows[e] if kind == "bias" else rows[e * shape[1]:(e + 1) * shape[1]]
        for i, part in enumerate(("gate", "up") if "gate_up" in module else ("down",)):
            step = 2 if "gate_up" in module else 1
            out[f"{stem}.{e}.{part}_proj.{kind}"] = own[i::step]


def split_golden(out, config, name, rows):
    heads, dk = config["linear_num_key_heads"], config["linear_key_head_dim"]
    r, dv = config["linear_num_value_heads"] // heads, config["linear_value_head_dim"]
    qkvz = "qkvz" in name
    widths = [dk, dk, r * dv, r * dv] if qkvz else [r, r]
    parts = [[] for _ in widths]
    at = 0
    for _ in range(heads):
        for part, width in zip(parts, widths):
            part += rows[at:at + width]
            at += width
    stem = name.rsplit("in_proj_", 1)[0] + "in_proj_"
    if qkvz:
        out[stem + "qkv.weight"] = parts[0] + parts[1] + parts[2]
        out[stem + "z.weight"] = parts[3]
    else:
        out[stem + "b.weight"], out[stem + "a.weight"] = parts


def check_reference(directory):
    """The last logits of the second prompt, in float64 as the fixture has them."""
    config, weights = read_golden(directory)
    golden = json.loads((directory / "golden.json").read_text())
    ids = golden["prompts"][1]["ids"]
    found = Model(config, weights).run(ids)[-1]
    data = (directory / "golden.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    begin = 8 + size + json.loads(data[8:8 + size])["logits_last_f64"]["data_offsets"][0]
    count = len(found)
    expected = struct.unpack_from(f"<{count}d", data, begin + 8 * count)
    error = max(abs(a - b) for a, b in zip(found, expected)) / max(map(abs, expected))
    print(f"plain.py on {directory.name}: off by {error:.1e} of the largest logit")
    return error < 1e-11


# --------------------------------------------------------------------------
# cases


def make_config(family, changes):
    config, changes = dict(CONFIGS[family]), dict(changes)
    nested, outside = changes.pop("nested", False), changes.pop("tied_outside", False)
    bias = changes.pop("bias", 0.0)
    for key, value in changes.items():
        if value is None:
            config.pop(key)
        else:
            config[key] = None if value == "null" else value
    if nested:
        outer = config["model_type"].removesuffix("_text")
        config = dict(model_type=outer, text_config=config, tie_word_embeddings=outside)
    return config, bias


class Expected:
    """What plain and rounding arithmetic make of a checkpoint: the logits of every token."""

    def __init__(self, config, weights, ids, matrix_unit, tuned):
        self.plain = Model(config, weights)
        self.logits = self.plain.run(ids)
        self.decided = self.plain.smallest_gap > GAP
        self.prompt = self.decode = None
        if self.decided and tuned:
            self.prompt, self.decode = (self.run_rounded(config, weights, ids, prompt, matrix_unit)
                                        for prompt in (True, False))

    def run_rounded(self, *arguments):
        config, weights, ids, prompt, matrix_unit = arguments
        model = Rounded(config, weights, prompt, matrix_unit)
        logits = model.run(ids)
        gap = ROUNDED_GAP if model.matrix_unit else GAP
        self.decided = self.decided and model.smallest_gap > gap
        return logits


def make_checkpoint(directory, matrix_unit, tuned, family, changes, writer, options):
    """A checkpoint whose routers are decided: its path and what is expected of it."""
    config, bias = make_config(family, changes)
    count = min(PROMPT, config.get("max_position_embeddings", PROMPT + 8) - 8)
    ids = [(7 * i * i + 3 * i) % 48 for i in range(count)]
    for seed in range(1, 100):
        weights = tiny.make_weights(config, seed)
        for name, w in weights.items():
            if name.endswith("e_score_correction_bias"):
                weights[name] = [tiny.f32(x + bias) for x in w]
        path = writer(directory, config, weights, **options) or directory
        expected = Expected(config, weights, ids, matrix_unit, tuned)
        if expected.decided:
            return path, ids, expected
    sys.exit(f"no seed decides the routers of {family} {changes}")


def compare(found, expected):
    """The largest difference in a row, in parts of its largest logit."""
    return max(max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))
               for a, b in zip(found, expected))


def greedy(model, logits):
    """Greedy tokens of the reference, up to one that is not clear."""
    out = []
    for _ in range(GREEDY):
        last = logits[-1]
        order = sorted(range(len(last)), key=lambda i: -last[i])
        if last[order[0]] - last[order[1]] < 1e-2 or model.smallest_gap < GAP:
            break
        out.append(order[0])
        logits = model.run(order[:1])
    return out


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True)
    return done.stdout, done.stderr.decode().strip()


def rows_of(answer, vocab, count):
    raw, complaint = answer
    rows = list(struct.iter_unpack(f"<{vocab}f", raw)) if len(raw) % (4 * vocab) == 0 else []
    if len(rows) != count:
        sys.exit(complaint)
    return rows


def logits_of(program, path, backend, ids, vocab):
    return rows_of(run(program, "logits", "-m", path, "--backend", backend, "--tokens", ids,
                       "--all", "-o", "-"), vocab, ids.count(",") + 1)


def has_matrix_unit(program, source):
    """Whether this machine multiplies prompts in bf16."""
    out, _ = run(program, "selftest", source / "tests/fixtures/golden/qwen3_next_sharded")
    return any(b"reference against " + kernels in out for kernels in (b"amx", b"avx512bf16"))


def check_tuned(programs, path, text, expected):
    """How far the tuned path is off in a prompt and token by token."""
    program, decoded = programs
    vocab = len(expected.logits[0])
    prompt = compare(logits_of(program, path, "cpu", text, vocab), expected.prompt)
    decode = compare(rows_of(run(decoded, path, text), vocab, text.count(",") + 1), expected.decode)
    print(f"    cpu {prompt:.1e} in prompts and {decode:.1e} token by token")
    return prompt <= PROMPT_TOLERANCE and decode <= DECODE_TOLERANCE


def check_case(programs, matrix_unit, tuned, name, directory):
    program = programs[0]
    path, ids, expected = make_checkpoint(directory, matrix_unit, tuned, *CASES[name])
    text, vocab = ",".join(map(str, ids)), len(expected.logits[0])
    exact = compare(logits_of(program, path, "reference", text, vocab), expected.logits)
    wanted = greedy(expected.plain, expected.logits)
    out, _ = run(program, "generate", "-m", path, "--backend", "reference", "--tokens", text, "-n",
                 GREEDY, "--temp", "0", "--ids", "--ignore-eos")
    tokens = [int(t) for t in out.decode().split(",")][:len(wanted)]
    good = exact <= TOLERANCE and tokens == wanted
    if tuned:
        good = check_tuned(programs, path, text, expected) and good
    print(f"{name}: off by {exact:.1e}, {len(tokens)} greedy tokens{'' if tokens == wanted else ' of others'}"
          f"{'' if good else '   FAILED'}", flush=True)
    return good


def main():
    programs, source = sys.argv[1:3], pathlib.Path(sys.argv[3])
    names = [name for name in sys.argv[4:] if name != "--all"]
    every = 1 if names or "--all" in sys.argv else 4
    results, matrix_unit = [], has_matrix_unit(programs[0], source)
    if not names:
        for case in ("qwen3_next_sharded", "qwen3_5_moe_sharded", "deepseek_v3_sharded",
                     "glm4_moe_qknorm_sharded", "minimax_m2_a", "gpt_oss_mxfp4"):
            results.append(check_reference(source / "tests/fixtures/golden" / case))
    for i, name in enumerate(names or CASES):
        with tempfile.TemporaryDirectory() as directory:
            tuned = i % every == 0
            results.append(check_case(programs, matrix_unit, tuned, name,
                                      pathlib.Path(directory)))
    print(f"{sum(results)} of {len(results)} agree")
    sys.exit(0 if all(results) else 1)


main()
