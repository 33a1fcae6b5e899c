#include "doctor/doctor.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

void doctor_examine(struct findings *out, const struct doctor_subject *subject)
{
    doctor_check_kernels(out, subject);
    doctor_check_threads(out, subject);
    doctor_check_clock(out, subject);
    doctor_check_memory(out, subject);
    doctor_check_huge_pages(out, subject);
    doctor_check_locked_memory(out, subject);
    doctor_check_io_uring(out, subject);
    doctor_check_disk(out, subject);
    doctor_check_read_ahead(out, subject);
    doctor_check_gpu(out, subject);
}

/* There is room for all that the checks can find: the last entry is a net for mistakes. */
struct finding *doctor_add(struct findings *out, const char *check)
{
    struct finding *finding = &out->items[min_size(out->count, FINDINGS_MAX - 1)];
    if (out->count < FINDINGS_MAX) out->count++;
    *finding = (struct finding){ .check = check };
    return finding;
}

bool doctor_read(char *out, size_t capacity, const struct doctor_subject *subject, const char *path)
{
    char full[PATH_CAPACITY];
    snprintf(full, sizeof full, "%s%s", subject->root, path);
    FILE *file = fopen(full, "re");
    if (!file) return false;
    size_t length = fread(out, 1, capacity - 1, file);
    bool read = !ferror(file);
    fclose(file);
    out[length] = '\0';
    return read;
}

bool doctor_read_line(char *out, size_t capacity, const struct doctor_subject *subject,
                      const char *path)
{
    if (!doctor_read(out, capacity, subject, path)) return false;
    out[strcspn(out, "\n")] = '\0';
    return out[0] != '\0';
}

bool doctor_read_number(uint64_t *out, const struct doctor_subject *subject, const char *path)
{
    char line[64];
    if (!doctor_read_line(line, sizeof line, subject, path)) return false;
    if (!isdigit((unsigned char)line[0])) return false;
    *out = strtoull(line, NULL, 10);
    return true;
}

bool doctor_has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        bool begins = at == text || isspace((unsigned char)at[-1]);
        if (begins && (at[length] == '\0' || isspace((unsigned char)at[length]))) return true;
    }
    return false;
}

const char *doctor_size(char out[32], uint64_t bytes)
{
    double gibibytes = (double)bytes / (1 << 30);
    if (gibibytes >= 1)
        snprintf(out, 32, "%.1f GiB", gibibytes);
    else
        snprintf(out, 32, "%.1f MiB", (double)bytes / (1 << 20));
    return out;
}
