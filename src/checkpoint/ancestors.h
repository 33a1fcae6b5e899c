/* ancestors.h: the layout of the project's ancestors into a tensor directory.
 *
 *     artifacts/model_weights.bin     every tensor but the experts
 *     artifacts/model_weights.json    its manifest: name → offset, size, shape, dtype
 *     root/packed_experts/layer_NN.bin       experts one after the other, 4 bits
 *     root/packed_experts_2bit/layer_NN.bin  the same with 2 bits
 *       …/layout.json                        optional; must agree with the sizes
 *
 * A layer file is E blobs of equal size, each gate, up, down, each of these
 * weights | scales | biases, MLX affine in groups of 64 with BF16 scales:
 *
 *     wb = I·H·bits/8    sb = I·(H/64)·2    blk = wb + 2·sb    blob = 3·blk
 *     gate at 0, up at blk, down at 2·blk; scales at + wb, biases at + wb + sb
 *
 * The tensors of expert X of layer N are called
 *
 *     model.layers.N.mlp.experts.X.{gate,up,down}_proj.{weight,scales,biases}
 *
 * H is the size of an input_layernorm, E the rows of a router (mlp.gate.weight),
 * both in the manifest, and I follows from the size of a layer file.
 *
 * A layer that has a router and no file is tolerated: its tensors are there, and
 * reading one says which file is missing. */
#ifndef CHECKPOINT_ANCESTORS_H
#define CHECKPOINT_ANCESTORS_H

#include "checkpoint/tensor_directory.h"

struct ancestors_paths {
    const char *weights;  /* model_weights.bin */
    const char *manifest; /* model_weights.json */
    const char *experts;  /* the directory with packed_experts, or NULL: none are wanted */
    bool two_bit;         /* take packed_experts_2bit even if packed_experts is there */
};

/* All tensors into `directory`, which was initialised and is empty; finished when
 * this returns MF_OK.  After a failure it is still to be freed. */
mf_status ancestors_open(struct tensor_directory *directory, const mf_files *files,
                         const struct ancestors_paths *paths, mf_error *why);

/* The same with the usual names under `parent`, as drawn above. */
mf_status ancestors_open_parent(struct tensor_directory *directory, const mf_files *files,
                                const char *parent, bool two_bit, mf_error *why);

/* Whether `parent` has a manifest at its usual place. */
mf_status ancestors_probe(bool *present, const mf_files *files, const char *parent, mf_error *why);

#endif
