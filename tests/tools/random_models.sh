#!/bin/sh
# random_models.sh READ_MODEL: the checkpoints that the tools make are read, every type of them.
. "$MOEFLUX_SOURCE/tests/tools/scratch.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
small="--experts 4 --vocab 512"

for arch in qwen3moe qwen3next qwen35moe deepseek2 glm4moe glm4lite minimax-m2 gemma4; do
    expect 0 '' "$python" tools/make_random_gguf.py --preset tiny-$arch $small --pool-mib 1 \
        --layers 4 --quant mixed --out $arch.gguf
    expect 0 ': ok' "$python" tools/make_random_gguf.py --check $arch.gguf
    expect 0 '' "$python" tools/make_random_mlx.py --preset tiny-$arch $small --layers 4 --out $arch
done
expect 0 '' "$python" tools/make_random_gguf.py --preset tiny-gpt-oss $small --pool-mib 1 \
    --quant mxfp4 --out gpt-oss.gguf
expect 0 ': ok' "$python" tools/make_random_gguf.py --check gpt-oss.gguf
for type in q5_0 bf16; do # the others are in "mixed"
    expect 0 '' "$python" tools/make_random_gguf.py --preset tiny-qwen3moe $small --pool-mib 1 \
        --layers 1 --quant $type --out $type.gguf
done
for bits in 2 3 5 6 8; do
    expect 0 '' "$python" tools/make_random_mlx.py --preset tiny-qwen3moe $small --layers 1 \
        --bits $bits --shards 2 --scales F16 --out mlx$bits
done
for type in BF16 F16 FP8; do
    expect 0 '' "$python" tools/make_random_floats.py --preset tiny-qwen3moe $small --layers 1 \
        --dtype $type --out qwen3moe-$type
    expect 0 '' "$python" tools/make_random_floats.py --preset tiny-deepseek2 $small --layers 2 \
        --dtype $type --out deepseek2-$type
done
expect 0 '' "$python" tools/make_random_gguf.py --preset tiny-qwen3moe $small --pool-mib 1 \
    --layers 2 --split 3 --out split.gguf
expect 0 'in 3 files: sane' "$1" split-00001-of-00003.gguf
expect 1 'part 1 of 3 was expected' "$1" split-00002-of-00003.gguf
rm split-*.gguf
expect 0 sane "$1" *.gguf qwen3moe qwen3next qwen35moe deepseek2 glm4moe glm4lite minimax-m2 gemma4 mlx? *-BF16 *-F16 *-FP8
exit $status
