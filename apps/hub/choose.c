#include "hub/choose.h"

#include "common/lists.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* ------------------------------------------------------------------- names */

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t end_length = strlen(end);

    return length >= end_length && strncasecmp(text + length - end_length, end, end_length) == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The length of `path` without "-00001-of-00003.gguf" or ".gguf"; *parts is 0 for the latter. */
static size_t stem_length(unsigned long *parts, const char *path)
{
    static const char form[] = "-00000-of-00000";
    size_t length = strlen(path) - strlen(".gguf");

    *parts = 0;
    if (length < sizeof form) return length;
    const char *tail = path + length - (sizeof form - 1);
    for (size_t i = 0; i < sizeof form - 1; i++) {
        bool fits = form[i] == '0' ? isdigit((unsigned char)tail[i]) != 0
                                   : tolower((unsigned char)tail[i]) == form[i];
        if (!fits) return length;
    }
    *parts = strtoul(tail + sizeof form - 6, NULL, 10);
    return (size_t)(tail - path);
}

/* Whether `word` is a quantisation's name, and what it says. */
static bool read_quantisation(struct hub_candidate *out, const char *word, size_t length)
{
    static const struct {
        const char *name;
        unsigned bits;
    } whole[] = { { "F16", 16 }, { "FP16", 16 }, { "BF16", 16 }, { "F32", 32 }, { "FP32", 32 } };
    /* Q4_0_4_4, Q4_0_4_8 and Q4_0_8_8 are layouts of blocks that llama.cpp no longer reads either. */
    static const char *const unread[] = { "IQ1",   "IQ2",    "IQ3",    "TQ",    "Q1_",
                                          "NVFP4", "Q4_0_4", "Q4_0_8", "MXFP6", "MXFP8" };

    out->runs = true;
    for (size_t i = 0; i < COUNT_OF(whole); i++) {
        if (length != strlen(whole[i].name) || strncasecmp(word, whole[i].name, length) != 0)
            continue;
        out->bits = whole[i].bits;
        return true;
    }
    for (size_t i = 0; i < COUNT_OF(unread); i++) {
        if (strncasecmp(word, unread[i], min_size(length, strlen(unread[i]))) == 0 &&
            length >= strlen(unread[i]))
            out->runs = false;
    }
    bool grouped = strncasecmp(word, "MX", 2) == 0 || strncasecmp(word, "NV", 2) == 0;
    if (grouped && length >= 5 && strncasecmp(word + 2, "FP", 2) == 0 &&
        isdigit((unsigned char)word[4])) { /* MXFP4, MXFP4_MOE, NVFP4 */
        out->bits = (unsigned)(word[4] - '0');
        return true;
    }
    size_t letters = length > 1 && strchr("iItT", word[0]) ? 1 : 0;
    if (length < letters + 2 || tolower((unsigned char)word[letters]) != 'q') return false;
    if (!isdigit((unsigned char)word[letters + 1])) return false;
    out->bits = (unsigned)(word[letters + 1] - '0');
    return true;
}

/* The last word of the stem that is a quantisation, with "UD-" before it if it is there. */
static void find_label(struct hub_candidate *out)
{
    const char *stem = out->stem;
    size_t end = strlen(stem), begin;

    for (;; end = begin - 1) {
        for (begin = end; begin > 0 && !strchr("-./", stem[begin - 1]);) begin--;
        if (read_quantisation(out, stem + begin, end - begin)) break;
        if (begin > 0) continue;
        out->bits = 0;
        out->runs = true;
        snprintf(out->label, sizeof out->label, "%.150s", *base_name(stem) ? base_name(stem) : "?");
        return;
    }
    if (begin >= 3 && strncasecmp(stem + begin - 3, "UD-", 3) == 0) begin -= 3;
    snprintf(out->label, sizeof out->label, "%.*s", (int)min_size(end - begin, 150), stem + begin);
    for (char *at = out->label; *at; at++) *at = (char)toupper((unsigned char)*at);
}

/* -------------------------------------------------- files of safetensors */

/* Weights at the top of a repository.  The library opens what model.safetensors.index.json names; without
 * it model.safetensors; without that all of model*.safetensors. */
enum weights {
    NO_WEIGHTS,
    WEIGHTS_SINGLE,  /* model.safetensors */
    WEIGHTS_PART,    /* model-00001-of-00002.safetensors */
    WEIGHTS_MODEL,   /* another model*.safetensors */
    WEIGHTS_OTHER,   /* mtp.safetensors: only an index can name it */
    WEIGHTS_VARIANT, /* model.fp16.safetensors, consolidated.safetensors: the same model again */
    WEIGHTS_KINDS
};

/* "model-1-of-62.safetensors"; *of is the last number. */
static bool is_part(unsigned long *of, const char *path)
{
    char *end;

    if (strncmp(path, "model-", 6) != 0 || !isdigit((unsigned char)path[6])) return false;
    strtoul(path + 6, &end, 10);
    if (strncmp(end, "-of-", 4) != 0 || !isdigit((unsigned char)end[4])) return false;
    *of = strtoul(end + 4, &end, 10);
    return strcmp(end, ".safetensors") == 0;
}

static enum weights kind_of_weights(unsigned long *of, const char *path)
{
    static const char *const variants[] = { "model.", "consolidated", "adapter", "original" };

    *of = 0;
    if (strchr(path, '/') || path[0] == '.' || !ends_with(path, strlen(path), ".safetensors"))
        return NO_WEIGHTS;
    if (strcmp(path, "model.safetensors") == 0) return WEIGHTS_SINGLE;
    if (is_part(of, path)) return WEIGHTS_PART;
    for (size_t i = 0; i < COUNT_OF(variants); i++) {
        if (strncmp(path, variants[i], strlen(variants[i])) == 0) return WEIGHTS_VARIANT;
    }
    return strncmp(path, "model", 5) == 0 ? WEIGHTS_MODEL : WEIGHTS_OTHER;
}

/* A text or a table that belongs to a safetensors checkpoint. */
static bool is_text_of_checkpoint(const char *path)
{
    static const char *const endings[] = { ".json", ".txt", ".model", ".jinja", ".tiktoken" };

    if (strchr(path, '/') || path[0] == '.') return false;
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        if (ends_with(path, strlen(path), endings[i])) return true;
    }
    return false;
}

/* Which kinds of weights a checkpoint is made of, and whether an index names them; false: there is no
 * checkpoint. */
static bool choose_weights(bool wanted[WEIGHTS_KINDS], bool *indexed,
                           const struct hub_listing *listing)
{
    bool there[WEIGHTS_KINDS] = { false }, index = false;
    unsigned long of;

    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->files[i].path;
        there[kind_of_weights(&of, path)] = true;
        index |= strcmp(path, HUB_WEIGHTS_INDEX) == 0;
    }
    memset(wanted, 0, WEIGHTS_KINDS * sizeof *wanted);
    *indexed = index;
    wanted[WEIGHTS_PART] = index || !there[WEIGHTS_SINGLE];
    wanted[WEIGHTS_SINGLE] = !(wanted[WEIGHTS_PART] && there[WEIGHTS_PART]);
    wanted[WEIGHTS_OTHER] = index;
    wanted[WEIGHTS_MODEL] = index || !(there[WEIGHTS_SINGLE] || there[WEIGHTS_PART]);
    return there[WEIGHTS_SINGLE] || there[WEIGHTS_PART] || there[WEIGHTS_MODEL] ||
           (index && there[WEIGHTS_OTHER]);
}

/* -------------------------------------------------------------- candidates */

static mf_status add_file(struct hub_candidate *candidate, const struct hub_listing *listing,
                          size_t index, mf_error *why)
{
    mf_status status = list_reserve((void **)&candidate->files, &candidate->file_capacity,
                                    sizeof *candidate->files, candidate->file_count + 1, why);

    if (status != MF_OK) return status;
    candidate->files[candidate->file_count++] = index;
    candidate->bytes += listing->files[index].size;
    candidate->missing_bytes = candidate->disk_bytes = candidate->bytes;
    return MF_OK;
}

static mf_status add_candidate(struct hub_candidate **out, struct hub_candidates *candidates,
                               mf_error *why)
{
    mf_status status = list_reserve((void **)&candidates->items, &candidates->capacity,
                                    sizeof *candidates->items, candidates->count + 1, why);

    if (status != MF_OK) return status;
    *out = &candidates->items[candidates->count++];
    **out = (struct hub_candidate){ .runs = true };
    return MF_OK;
}

/* Whether one of the words that a path is made of is in the list. */
static bool has_word(const char *path, const char *const *words, size_t count)
{
    static const char between[] = "-._/ ";

    for (const char *at = path; *at; at += strspn(at, between)) {
        size_t length = strcspn(at, between);
        for (size_t i = 0; i < count; i++) {
            if (strlen(words[i]) == length && strncasecmp(at, words[i], length) == 0) return true;
        }
        at += length;
    }
    return false;
}

/* What a GGUF file is, by its name.  A companion is a model that serves another one, unless it is all
 * that the repository has. */
enum gguf_kind { GGUF_NONE, GGUF_COMPANION, GGUF_MODEL };

static enum gguf_kind kind_of_gguf(const char *path)
{
    /* The vision part of a model, what quantising used, changes of a model, a tokenizer alone. */
    static const char *const none[] = { "mmproj",  "imatrix", "lora",   "qlora",
                                        "adapter", "vocab",   "cvector" };
    static const char *const companions[] = { "draft", "eagle", "eagle3", "speculator" };
    static const char *const whole[] = { "merged", "merge" };

    if (!ends_with(path, strlen(path), ".gguf")) return GGUF_NONE;
    if (strncasecmp(base_name(path), "mmproj", 6) == 0 || strcasestr(base_name(path), "imatrix"))
        return GGUF_NONE;
    if (has_word(path, none, COUNT_OF(none)) && !has_word(path, whole, COUNT_OF(whole)))
        return GGUF_NONE;
    return has_word(path, companions, COUNT_OF(companions)) ? GGUF_COMPANION : GGUF_MODEL;
}

static mf_status add_gguf(struct hub_candidates *out, const struct hub_listing *listing,
                          size_t index, mf_error *why)
{
    const char *path = listing->files[index].path;
    unsigned long parts;
    size_t length = stem_length(&parts, path);
    struct hub_candidate *candidate = NULL;

    /* Files are sorted, so the parts of a model follow each other. */
    if (parts && out->count > 0) candidate = &out->items[out->count - 1];
    if (candidate && candidate->gguf && candidate->parts == parts &&
        strlen(candidate->stem) == length && memcmp(candidate->stem, path, length) == 0) {
        return add_file(candidate, listing, index, why);
    }
    mf_status status = add_candidate(&candidate, out, why);
    if (status != MF_OK) return status;
    candidate->gguf = true;
    candidate->parts = parts;
    snprintf(candidate->stem, sizeof candidate->stem, "%.*s", (int)length, path);
    find_label(candidate);
    return add_file(candidate, listing, index, why);
}

static mf_status add_safetensors(struct hub_candidates *out, const struct hub_listing *listing,
                                 mf_error *why)
{
    struct hub_candidate *candidate = NULL;
    bool wanted[WEIGHTS_KINDS], indexed;
    unsigned long of, parts = 0, found = 0;

    if (!choose_weights(wanted, &indexed, listing)) return MF_OK;
    mf_status status = add_candidate(&candidate, out, why);
    for (size_t i = 0; status == MF_OK && i < listing->count; i++) {
        const char *path = listing->files[i].path;
        enum weights kind = kind_of_weights(&of, path);
        if (!wanted[kind] && !is_text_of_checkpoint(path)) continue;
        if (kind == WEIGHTS_PART) {
            parts = of > parts ? of : parts;
            found++;
        }
        status = add_file(candidate, listing, i, why);
    }
    if (status != MF_OK) return status;
    candidate->missing_files = !indexed && parts > found ? parts - found : 0;
    candidate->bits = 16; /* most are BF16; what it is only the files say */
    snprintf(candidate->label, sizeof candidate->label, "safetensors");
    return MF_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const struct hub_candidate *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : strcmp(x->label, y->label);
}

mf_status hub_candidates_find(struct hub_candidates *out, const struct hub_listing *listing,
                              mf_error *why)
{
    mf_status status = MF_OK;

    *out = (struct hub_candidates){ NULL, 0, 0 };
    for (enum gguf_kind kind = GGUF_MODEL; kind > GGUF_NONE && out->count == 0; kind--) {
        for (size_t i = 0; status == MF_OK && i < listing->count; i++) {
            if (kind_of_gguf(listing->files[i].path) == kind)
                status = add_gguf(out, listing, i, why);
        }
    }
    if (status == MF_OK) status = add_safetensors(out, listing, why);
    if (status != MF_OK) hub_candidates_free(out);
    if (out->count > 0) qsort(out->items, out->count, sizeof *out->items, by_bytes);
    return status;
}

void hub_candidates_free(struct hub_candidates *candidates)
{
    for (size_t i = 0; i < candidates->count; i++) free(candidates->items[i].files);
    free(candidates->items);
    *candidates = (struct hub_candidates){ NULL, 0, 0 };
}

mf_status hub_candidate_check(const struct hub_candidate *candidate, mf_error *why)
{
    if (candidate->missing_files > 0) {
        return fail(why, MF_ERR_FORMAT, "%zu files of the weights are missing",
                    candidate->missing_files);
    }
    if (candidate->parts == 0 || candidate->parts == candidate->file_count) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "%.64s has %lu parts, and the repository holds %zu of them",
                candidate->label, candidate->parts, candidate->file_count);
}

/* ------------------------------------------------------------------ choice */

/* "Q4_K_M, Q8_0, …" */
static void list_labels(char *out, size_t capacity, const struct hub_candidates *candidates)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < candidates->count; i++) {
        const char *label = candidates->items[i].label;
        if (used + strlen(label) + 8 >= capacity) {
            snprintf(out + used, capacity - used, ", …");
            return;
        }
        used += (size_t)snprintf(out + used, capacity - used, "%s%s", i ? ", " : "", label);
    }
}

static bool is_stem(const char *stem, const char *name, size_t length)
{
    return strlen(stem) == length && strncasecmp(stem, name, length) == 0;
}

enum hub_fit hub_candidate_fit(const struct hub_candidate *candidate, const char *name)
{
    const char *label = candidate->label, *stem = candidate->stem;
    size_t length = strlen(name);

    if (strcasecmp(label, name) == 0) return HUB_FIT_LABEL;
    if (strncmp(label, "UD-", 3) == 0 && strcasecmp(label + 3, name) == 0)
        return HUB_FIT_SHORT_LABEL;
    if (ends_with(name, length, ".gguf")) length -= 5;
    if (length == 0 || strlen(stem) < length) return HUB_FIT_NONE;
    if (is_stem(stem, name, length) || is_stem(base_name(stem), name, length)) return HUB_FIT_FILE;
    for (const char *at = stem; *at; at++) {
        if (strncasecmp(at, name, length) == 0) return HUB_FIT_PART;
    }
    return HUB_FIT_NONE;
}

mf_status hub_choose_named(const struct hub_candidate **out,
                           const struct hub_candidates *candidates, const char *name, mf_error *why)
{
    char labels[320];
    enum hub_fit best = HUB_FIT_NONE;
    size_t count = 0;

    *out = NULL;
    for (size_t i = 0; i < candidates->count; i++) {
        enum hub_fit found = hub_candidate_fit(&candidates->items[i], name);
        if (found == HUB_FIT_NONE || found < best) continue;
        count = found > best ? 1 : count + 1;
        best = found;
        *out = &candidates->items[i];
    }
    if (count == 1) return MF_OK;
    list_labels(labels, sizeof labels, candidates);
    if (count > 1) {
        return fail(why, MF_ERR_ARGUMENT,
                    "%zu models of the repository fit \"%.64s\": say more of the file's name",
                    count, name);
    }
    return fail(why, MF_ERR_ARGUMENT, "there is no \"%.64s\" in the repository; it has %s", name,
                labels[0] ? labels : "no model");
}

/* What a candidate has to fit into. */
struct room {
    uint64_t memory_bytes, disk_bytes;
};

/* Nothing that lacks parts is chosen by itself. */
static bool can_be_chosen(const struct hub_candidate *candidate)
{
    return candidate->runs && hub_candidate_check(candidate, NULL) == MF_OK;
}

/* Why there is none to be chosen. */
static mf_status explain_none(const struct hub_candidates *candidates, uint64_t disk_bytes,
                              mf_error *why)
{
    const struct hub_candidate *incomplete = NULL;

    if (candidates->count == 0) {
        return fail(why, MF_ERR_UNSUPPORTED,
                    "the repository has neither GGUF files nor model*.safetensors");
    }
    for (size_t i = 0; i < candidates->count; i++) {
        const struct hub_candidate *c = &candidates->items[i];
        if (can_be_chosen(c))
            return fail(why, MF_ERR_IO,
                        "none of the repository's models fits on the disk of the cache: the "
                        "smallest has %.1f GiB, and %.1f GiB are free",
                        (double)c->bytes / 0x1p30, (double)disk_bytes / 0x1p30);
        if (c->runs) incomplete = c;
    }
    if (incomplete) return hub_candidate_check(incomplete, why);
    return fail(why, MF_ERR_UNSUPPORTED,
                "moeflux reads none of the quantisations in the repository");
}

/* The largest (or smallest) candidate that has room and whose bits are low … high. */
static const struct hub_candidate *extreme(const struct hub_candidates *candidates, bool largest,
                                           struct room room, unsigned low, unsigned high)
{
    const struct hub_candidate *found = NULL;

    for (size_t i = 0; i < candidates->count; i++) {
        const struct hub_candidate *c = &candidates->items[i];
        if (!can_be_chosen(c) || c->bits < low || c->bits > high) continue;
        if (c->bytes > room.memory_bytes || c->disk_bytes > room.disk_bytes) continue;
        if (largest || !found) found = c;
    }
    return found;
}

mf_status hub_choose_best(const struct hub_candidate **out, const char **reason,
                          const struct hub_candidates *candidates, uint64_t memory_bytes,
                          uint64_t disk_bytes, mf_error *why)
{
    /* A fifth is for state and everything else. */
    struct room inside = { memory_bytes - memory_bytes / 5, disk_bytes };
    struct room outside = { UINT64_MAX, disk_bytes };

    *reason = "the best that fits into memory";
    *out = extreme(candidates, true, inside, 0, 8);
    if (!*out) *out = extreme(candidates, true, inside, 0, 32);
    if (!*out && (*out = extreme(candidates, false, outside, 4, 32)))
        *reason = "larger than memory: experts will be read from disk";
    if (!*out && (*out = extreme(candidates, true, outside, 0, 32)))
        *reason = "the largest that fits on the disk";
    if (*out && candidates->count == 1) *reason = "the only one there is";
    return *out ? MF_OK : explain_none(candidates, disk_bytes, why);
}
