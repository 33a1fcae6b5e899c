/* ancestors.h: reads the file layout of the ancestors (the earlier engines of this project) into a
 * tensor directory.
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
 * A layer that has a router but no file is accepted: its tensors are listed, and reading one fails
 * with the name of the missing file. */
#ifndef CHECKPOINT_ANCESTORS_H
#define CHECKPOINT_ANCESTORS_H

#include "checkpoint/tensor_directory.h"

struct ancestors_paths {
    const char *weights;  /* model_weights.bin */
    const char *manifest; /* model_weights.json */
    const char *experts;  /* directory that contains packed_experts; NULL: skip experts */
    bool two_bit;         /* use packed_experts_2bit even if packed_experts exists */
};

/* Adds all tensors to `directory`, which is initialised and empty, and finishes it.  The caller
 * frees it, also after a failure. */
mf_status ancestors_open(struct tensor_directory *directory, const mf_files *files,
                         const struct ancestors_paths *paths, mf_error *why);

/* The same with the names above under `parent`. */
mf_status ancestors_open_parent(struct tensor_directory *directory, const mf_files *files,
                                const char *parent, bool two_bit, mf_error *why);

/* Whether `parent`/artifacts/model_weights.json exists. */
mf_status ancestors_probe(bool *present, const mf_files *files, const char *parent, mf_error *why);

#endif
