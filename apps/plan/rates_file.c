#include "plan/rates_file.h"

#include "cli/streams.h"
#include "common/basics.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { RATES_VERSION = 1, MACHINES_MAX = 64 };

/* ------------------------------------------------------------------- names */

void rates_fingerprint(char out[FINGERPRINT_BYTES], const char *cpuinfo, unsigned threads,
                       const char *kernels)
{
    static const char *const labels[] = { "model name", "CPU part" };
    const char *name = "unknown CPU";
    size_t length = strlen(name);
    for (size_t i = 0; i < COUNT_OF(labels); i++) {
        const char *line = strstr(cpuinfo, labels[i]);
        if (!line) continue;
        const char *colon = line + strcspn(line, ":\n");
        if (*colon != ':') continue;
        name = colon + 1 + strspn(colon + 1, " \t");
        length = strcspn(name, "\n");
        break;
    }
    snprintf(out, FINGERPRINT_BYTES, "%.*s, %u threads, %.32s, moeflux %.32s",
             (int)min_size(length, 64), name, threads, kernels, mf_version());
}

bool rates_directory(char *out, size_t capacity)
{
    static const struct {
        const char *variable, *below;
    } places[] = { { "XDG_CACHE_HOME", "moeflux" }, { "HOME", ".cache/moeflux" } };
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        const char *base = getenv(places[i].variable);
        if (!base || base[0] != '/') continue;
        return (size_t)snprintf(out, capacity, "%s/%s", base, places[i].below) < capacity;
    }
    return false;
}

/* -------------------------------------------------------------------- disks */

double rates_disk(const struct known_rates *known, const char *name)
{
    for (size_t i = 0; i < known->disk_count; i++)
        if (strcmp(known->disks[i].name, name) == 0) return known->disks[i].bytes;
    return 0;
}

/* The oldest one makes room. */
void rates_set_disk(struct known_rates *known, const char *name, double bytes)
{
    size_t i = 0;
    known->changed = true;
    while (i < known->disk_count && strcmp(known->disks[i].name, name) != 0) i++;
    if (i == RATES_DISKS) {
        memmove(known->disks, known->disks + 1, (RATES_DISKS - 1) * sizeof *known->disks);
        i--;
    } else if (i == known->disk_count) {
        known->disk_count++;
    }
    snprintf(known->disks[i].name, sizeof known->disks[i].name, "%s", name);
    known->disks[i].bytes = bytes;
}

/* ------------------------------------------------------------------ reading */

/* A number above 0, or 0. */
static double positive(const json_t *value)
{
    double number = json_number_value(value);
    return isfinite(number) && number > 0 ? number : 0;
}

static void load_format(mf_format_rates *out, const json_t *found)
{
    const json_t *prompt = json_object_get(found, "prompt");
    mf_format_rates rates = { .struct_size = sizeof rates };
    double before = 0;
    rates.decode_bytes = positive(json_object_get(found, "decode_bytes"));
    rates.narrow_decode_bytes = positive(json_object_get(found, "narrow_decode_bytes"));
    for (size_t i = 0; i < MF_RATE_POINTS; i++) {
        const json_t *point = json_array_get(prompt, i);
        rates.prompt_rows[i] = positive(json_array_get(point, 0));
        rates.prompt_flops[i] = positive(json_array_get(point, 1));
        rates.narrow_prompt_flops[i] = positive(json_array_get(point, 2));
        if (rates.prompt_rows[i] <= before || rates.prompt_flops[i] <= 0) return;
        if (rates.narrow_prompt_flops[i] <= 0) return; /* of an earlier build: measured anew */
        before = rates.prompt_rows[i];
    }
    if (rates.decode_bytes > 0 && rates.narrow_decode_bytes > 0) *out = rates;
}

static void load_machine(struct known_rates *out, const json_t *machine)
{
    const json_t *formats = json_object_get(machine, "formats");
    json_t *disks = json_object_get(machine, "disks"), *rate;
    const char *name;
    const json_t *measured = json_object_get(machine, "measured");
    out->measured = json_is_integer(measured) ? (int64_t)json_integer_value(measured) : 0;
    out->load = positive(json_object_get(machine, "load"));
    out->rates.memory_bytes = positive(json_object_get(machine, "memory_bytes"));
    out->rates.matrix_flops = positive(json_object_get(machine, "matrix_flops"));
    out->rates.layer_seconds = positive(json_object_get(machine, "layer_seconds"));
    for (uint32_t f = 0; f < mf_format_count() && f < FORECAST_FORMATS; f++)
        load_format(&out->rates.formats[f], json_object_get(formats, mf_format_name(f)));
    json_object_foreach(disks, name, rate)
    {
        if (out->disk_count == RATES_DISKS || positive(rate) == 0) continue;
        rates_set_disk(out, name, positive(rate));
    }
    out->changed = false;
}

/* The file, or an empty one; the caller owns it. */
static json_t *read_file_new(const char *path)
{
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    bool usable = json_integer_value(json_object_get(root, "version")) == RATES_VERSION &&
                  json_is_object(json_object_get(root, "machines"));
    if (usable) return root;
    json_decref(root);
    return json_pack("{s:i,s:{}}", "version", (int)RATES_VERSION, "machines");
}

void rates_load(struct known_rates *out, const char *path, const char *fingerprint)
{
    *out = (struct known_rates){ .changed = false };
    json_t *root = read_file_new(path);
    load_machine(out, json_object_get(json_object_get(root, "machines"), fingerprint));
    json_decref(root);
}

/* ------------------------------------------------------------------ writing */

static json_t *format_json_new(const mf_format_rates *rates)
{
    json_t *prompt = json_array();
    for (size_t i = 0; i < MF_RATE_POINTS; i++)
        json_array_append_new(prompt,
                              json_pack("[f,f,f]", rates->prompt_rows[i], rates->prompt_flops[i],
                                        rates->narrow_prompt_flops[i]));
    return json_pack("{s:f,s:f,s:o}", "decode_bytes", rates->decode_bytes, "narrow_decode_bytes",
                     rates->narrow_decode_bytes, "prompt", prompt);
}

static json_t *machine_json_new(const struct known_rates *known)
{
    const struct machine_rates *rates = &known->rates;
    json_t *formats = json_object(), *disks = json_object();
    for (uint32_t f = 0; f < mf_format_count() && f < FORECAST_FORMATS; f++)
        if (rates->formats[f].decode_bytes > 0)
            json_object_set_new(formats, mf_format_name(f), format_json_new(&rates->formats[f]));
    for (size_t i = 0; i < known->disk_count; i++)
        json_object_set_new(disks, known->disks[i].name, json_real(known->disks[i].bytes));
    return json_pack("{s:I,s:f,s:f,s:f,s:f,s:o,s:o}", "measured", (json_int_t)known->measured,
                     "load", known->load, "memory_bytes", rates->memory_bytes, "matrix_flops",
                     rates->matrix_flops, "layer_seconds", rates->layer_seconds, "formats", formats,
                     "disks", disks);
}

/* Of the file's path; those that exist are left alone. */
static void make_directories(const char *path)
{
    char directory[PATH_CAPACITY];
    snprintf(directory, sizeof directory, "%s", path);
    for (char *slash = strchr(directory + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(directory, 0700); /* what cannot be made is reported by the file's own failure */
        *slash = '/';
    }
}

mf_status rates_save(const struct known_rates *known, const char *path, const char *fingerprint,
                     mf_error *why)
{
    struct output_file file;
    json_t *root = read_file_new(path), *machines = json_object_get(root, "machines");
    if (json_object_size(machines) >= MACHINES_MAX) json_object_clear(machines);
    json_object_set_new(machines, fingerprint, machine_json_new(known));
    make_directories(path);
    mf_status status = output_file_open(&file, path, why);
    if (status == MF_OK) {
        json_dumpf(root, file.stream, JSON_INDENT(1));
        fputc('\n', file.stream);
        status = output_file_commit(&file, why);
    }
    json_decref(root);
    return status;
}
