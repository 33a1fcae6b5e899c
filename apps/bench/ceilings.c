#include "bench/ceilings.h"

#include "common/basics.h"

#include <stdio.h>

double ceilings_matrix_flops(const mf_ceilings *ceilings)
{
    if (ceilings->amx_bf16_flops > 0) return ceilings->amx_bf16_flops;
    return ceilings->bf16_flops > ceilings->f32_flops ? ceilings->bf16_flops : ceilings->f32_flops;
}

const char *ceilings_matrix_name(const mf_ceilings *ceilings)
{
    if (ceilings->amx_bf16_flops > 0) return "AMX bf16";
    return ceilings->bf16_flops > ceilings->f32_flops ? "bf16" : "f32";
}

json_t *ceilings_json_new(const mf_ceilings *c)
{
    json_t *out = json_pack("{s:I,s:s?,s:f,s:f}", "threads", (json_int_t)c->thread_count,
                            "instruction_set", c->instruction_set, "memory_bytes_per_second",
                            c->memory_bytes, "f32_flops", c->f32_flops);
    if (c->bf16_flops > 0) json_object_set_new(out, "bf16_flops", json_real(c->bf16_flops));
    if (c->amx_bf16_flops > 0)
        json_object_set_new(out, "amx_bf16_flops", json_real(c->amx_bf16_flops));
    if (c->amx_int8_ops > 0) json_object_set_new(out, "amx_int8_ops", json_real(c->amx_int8_ops));
    if (c->disk_bytes > 0) {
        json_object_set_new(out, "disk_bytes_per_second", json_real(c->disk_bytes));
        json_object_set_new(out, "disk_direct", json_boolean(c->disk_direct));
    }
    return out;
}

void ceilings_describe(const mf_ceilings *c, char *out, size_t capacity)
{
    int used =
        snprintf(out, capacity, "memory %.1f GB/s, f32 %.2f TFLOP/s (%s)", c->memory_bytes * 1e-9,
                 c->f32_flops * 1e-12, c->instruction_set ? c->instruction_set : "?");
    const struct {
        double value, unit;
        const char *format;
    } more[] = {
        { c->bf16_flops, 1e-12, ", bf16 %.2f TFLOP/s" },
        { c->amx_bf16_flops, 1e-12, ", AMX bf16 %.2f TFLOP/s" },
        { c->amx_int8_ops, 1e-12, ", AMX int8 %.2f TOP/s" },
        { c->disk_bytes, 1e-9,
          c->disk_direct ? ", disk %.2f GB/s" : ", disk %.2f GB/s through the page cache" },
    };
    for (size_t i = 0; i < COUNT_OF(more) && used >= 0 && (size_t)used < capacity; i++)
        if (more[i].value > 0)
            used += snprintf(out + used, capacity - (size_t)used, more[i].format,
                             more[i].value * more[i].unit);
}
