#include "options.h"

#include "common/error.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* ----------------------------------------------------------------- numbers */

bool parse_count(uint64_t *out, const char *text)
{
    uint64_t value = 0;

    if (*text == '\0') return false;
    for (; *text; text++) {
        if (!isdigit((unsigned char)*text)) return false;
        if (!checked_multiply(&value, value, 10)) return false;
        if (!checked_add(&value, value, (uint64_t)(*text - '0'))) return false;
    }
    *out = value;
    return true;
}

bool parse_real(double *out, const char *text)
{
    char *end = NULL;

    /* strtod also takes leading space, "inf", "nan" and hexadecimal. */
    if (!isdigit((unsigned char)*text) && !strchr("+-.", *text)) return false;
    if (strpbrk(text, "xXnN")) return false;
    errno = 0;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

/* `base` to the power that K, M, G or T stands for, 1 for any other letter. */
static uint64_t prefix_factor(char letter, uint64_t base)
{
    static const char letters[] = "KMGT";
    const char *found = letter ? strchr(letters, toupper((unsigned char)letter)) : NULL;
    uint64_t factor = 1;

    for (const char *smaller = letters; found && smaller <= found; smaller++) factor *= base;
    return factor;
}

/* 1024 to the power that the unit says; 0: not a unit. */
static uint64_t unit_bytes(const char *unit)
{
    uint64_t factor = prefix_factor(*unit, 1024);

    if (*unit == '\0' || strcmp(unit, "B") == 0) return 1;
    if (factor == 1) return 0;
    if (unit[1] != '\0' && strcmp(unit + 1, "B") != 0 && strcmp(unit + 1, "iB") != 0) return 0;
    return factor;
}

/* The digits and points that `text` begins with; returns what follows, NULL: too many or none. */
static const char *cut_number(char *number, size_t capacity, const char *text)
{
    size_t length = strspn(text, "0123456789.");

    if (length == 0 || length >= capacity) return NULL;
    memcpy(number, text, length);
    number[length] = '\0';
    return text + length;
}

bool parse_size(uint64_t *out, const char *text)
{
    char number[32];
    const char *rest = cut_number(number, sizeof number, text);
    uint64_t unit = rest ? unit_bytes(rest) : 0;
    uint64_t whole;
    double real;

    if (unit == 0) return false;
    if (parse_count(&whole, number)) return checked_multiply(out, whole, unit);
    if (!isdigit((unsigned char)*number) || !parse_real(&real, number)) return false;
    if (real * (double)unit >= 0x1p63) return false;
    *out = (uint64_t)(real * (double)unit);
    return true;
}

bool parse_rate(double *out, const char *text)
{
    char number[32];
    const char *unit = cut_number(number, sizeof number, text);
    uint64_t factor;

    if (!unit || *unit == '\0' || *unit == '/') return false;
    factor = prefix_factor(*unit, unit[1] == 'i' ? 1024 : 1000);
    if (factor > 1) unit += unit[1] == 'i' ? 2 : 1;
    if (*unit == 'B') unit++;
    if (strcmp(unit, "") != 0 && strcmp(unit, "/s") != 0) return false;
    if (!parse_real(out, number) || *out <= 0) return false;
    *out *= (double)factor;
    return true;
}

/* -------------------------------------------------------------- suggestions */

enum { NAME_LIMIT = 63 };

size_t edit_distance(const char *a, const char *b)
{
    /* Rows of the usual table: two before, one before, and this one. */
    size_t rows[3][NAME_LIMIT + 1];
    size_t *older = rows[0], *old = rows[1], *now = rows[2];
    size_t a_length = strlen(a), b_length = strlen(b);

    if (a_length > NAME_LIMIT || b_length > NAME_LIMIT) return max_size(a_length, b_length);
    for (size_t j = 0; j <= b_length; j++) old[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *spare = older;
        now[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = old[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = min_size(replaced, 1 + min_size(old[j], now[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) now[j] = min_size(now[j], older[j - 2] + 1);
        }
        older = old;
        old = now;
        now = spare;
    }
    return old[b_length];
}

size_t nearest_name(const char *word, const char *const *names, size_t count)
{
    size_t length = strlen(word);
    size_t best = count, best_distance = length / 3 + 2; /* a third of the letters may be wrong */

    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(word, names[i]);
        /* "temperature" for "temp" and "tok" for "tokens" are near, whatever the distance. */
        size_t shared = min_size(length, strlen(names[i]));
        if (shared >= 3 && strncmp(word, names[i], shared) == 0) distance = min_size(distance, 1);
        if (distance >= best_distance || distance >= max_size(length, strlen(names[i]))) continue;
        best = i;
        best_distance = distance;
    }
    return best;
}

/* ----------------------------------------------------------------- parsing */

struct parser {
    void *settings;
    const struct option_group *groups;
    size_t group_count;
    char **words;
    size_t count;
    size_t next; /* index of the word after the current one */
    mf_error *why;
};

static bool is_named(const struct option *option, const char *name, size_t length, char letter)
{
    if (letter) return option->letter == letter;
    return strlen(option->name) == length && strncmp(option->name, name, length) == 0;
}

/* By its letter, or by its name where `letter` is 0; *group (may be NULL) is where it stands. */
static const struct option *find_option(const struct parser *parser, const char *name,
                                        size_t length, char letter,
                                        const struct option_group **group)
{
    for (size_t g = 0; g < parser->group_count; g++) {
        for (size_t i = 0; i < parser->groups[g].count; i++) {
            const struct option *option = &parser->groups[g].options[i];
            if (!is_named(option, name, length, letter)) continue;
            if (group) *group = &parser->groups[g];
            return option;
        }
    }
    return NULL;
}

static bool is_option_name(const struct parser *parser, const char *word)
{
    if (word[0] != '-' || word[1] == '\0') return false;
    if (word[1] != '-') return word[2] == '\0' && find_option(parser, NULL, 0, word[1], NULL);
    return find_option(parser, word + 2, strcspn(word + 2, "="), 0, NULL) != NULL;
}

static void unknown_option(const struct parser *parser, const char *word)
{
    const char *names[96];
    size_t count = 0;
    char typed[NAME_LIMIT + 1];
    size_t near;

    for (size_t g = 0; g < parser->group_count; g++) {
        for (size_t i = 0; i < parser->groups[g].count && count < COUNT_OF(names); i++) {
            names[count++] = parser->groups[g].options[i].name;
        }
    }
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(word, "="), word);
    near = nearest_name(typed + strspn(typed, "-"), names, count);
    if (near < count) {
        fail(parser->why, MF_ERR_ARGUMENT, "there is no option %.64s; did you mean --%s?", typed,
             names[near]);
    } else {
        fail(parser->why, MF_ERR_ARGUMENT, "there is no option %.64s", typed);
    }
}

/* "-n, --count" as the user can type it. */
static const char *option_text(const struct option *option, char *out, size_t capacity)
{
    if (option->letter) {
        snprintf(out, capacity, "-%c (--%s)", option->letter, option->name);
    } else {
        snprintf(out, capacity, "--%s", option->name);
    }
    return out;
}

static bool store_choice(const struct parser *parser, void *field, const struct option *option,
                         const char *value)
{
    size_t count = 0, near;
    char list[256] = "";

    for (; option->choices[count]; count++) {
        if (strcmp(option->choices[count], value) == 0) {
            memcpy(field, &option->choices[count], sizeof(const char *));
            return true;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", count ? ", " : "",
                 option->choices[count]);
    }
    near = nearest_name(value, option->choices, count);
    if (near < count) {
        fail(parser->why, MF_ERR_ARGUMENT, "--%s: \"%.64s\" is not one of %s; did you mean %s?",
             option->name, value, list, option->choices[near]);
    } else {
        fail(parser->why, MF_ERR_ARGUMENT, "--%s: \"%.64s\" is not one of %s", option->name, value,
             list);
    }
    return false;
}

static bool store_texts(const struct parser *parser, struct text_list *list,
                        const struct option *option, const char *value)
{
    if (list->count == TEXT_LIST_LIMIT) {
        fail(parser->why, MF_ERR_ARGUMENT, "--%s is given more than %d times", option->name,
             TEXT_LIST_LIMIT);
        return false;
    }
    list->values[list->count++] = value;
    return true;
}

static bool in_range(const struct option *option, double value)
{
    if (option->low == 0 && option->high == 0) return true;
    return value >= option->low && value <= option->high;
}

static bool store_count(const struct parser *parser, void *field, const struct option *option,
                        const char *value)
{
    struct maybe_count count = { .given = true };
    char text[96];

    if (option->kind == OPTION_SIZE) {
        if (!parse_size(&count.value, value)) {
            fail(parser->why, MF_ERR_ARGUMENT, "%s: \"%.64s\" is not a size such as 8G or 512M",
                 option_text(option, text, sizeof text), value);
            return false;
        }
    } else if (!parse_count(&count.value, value)) {
        fail(parser->why, MF_ERR_ARGUMENT, "%s: \"%.64s\" is not a whole number of 0 or more",
             option_text(option, text, sizeof text), value);
        return false;
    }
    if (!in_range(option, (double)count.value)) {
        fail(parser->why, MF_ERR_ARGUMENT, "%s: %.64s is outside %.0f … %.0f",
             option_text(option, text, sizeof text), value, option->low, option->high);
        return false;
    }
    memcpy(field, &count, sizeof count);
    return true;
}

/* "512,4096": the numbers of the list, each as a count. */
static bool store_counts(const struct parser *parser, void *field, const struct option *option,
                         const char *value)
{
    struct count_list list = { 0 };
    char text[96];

    for (const char *at = value; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        struct maybe_count count;
        char number[32];
        if (list.count == COUNT_OF(list.values)) {
            fail(parser->why, MF_ERR_ARGUMENT, "%s: more than %zu numbers",
                 option_text(option, text, sizeof text), COUNT_OF(list.values));
            return false;
        }
        snprintf(number, sizeof number, "%.*s", (int)min_size(strcspn(at, ","), 31), at);
        if (!store_count(parser, &count, option, number)) return false;
        list.values[list.count++] = count.value;
    }
    memcpy(field, &list, sizeof list);
    return true;
}

static bool store_real(const struct parser *parser, void *field, const struct option *option,
                       const char *value)
{
    struct maybe_real real = { .given = true };
    char text[96];

    if (!parse_real(&real.value, value)) {
        fail(parser->why, MF_ERR_ARGUMENT, "%s: \"%.64s\" is not a number",
             option_text(option, text, sizeof text), value);
        return false;
    }
    if (!in_range(option, real.value)) {
        fail(parser->why, MF_ERR_ARGUMENT, "%s: %.64s is outside %g … %g",
             option_text(option, text, sizeof text), value, option->low, option->high);
        return false;
    }
    memcpy(field, &real, sizeof real);
    return true;
}

static bool store_rate(const struct parser *parser, void *field, const struct option *option,
                       const char *value)
{
    struct maybe_real rate = { .given = true };
    char text[96];

    if (!parse_rate(&rate.value, value)) {
        fail(parser->why, MF_ERR_ARGUMENT,
             "%s: \"%.64s\" is not a rate with a unit, such as 3GB/s or 500MB/s",
             option_text(option, text, sizeof text), value);
        return false;
    }
    memcpy(field, &rate, sizeof rate);
    return true;
}

static bool store(const struct parser *parser, void *field, const struct option *option,
                  const char *value)
{
    const bool yes = true;

    switch (option->kind) {
    case OPTION_FLAG:
        memcpy(field, &yes, sizeof yes);
        return true;
    case OPTION_TEXT:
        memcpy(field, &value, sizeof value);
        return true;
    case OPTION_TEXTS:
        return store_texts(parser, field, option, value);
    case OPTION_CHOICE:
        return store_choice(parser, field, option, value);
    case OPTION_COUNT:
    case OPTION_SIZE:
        return store_count(parser, field, option, value);
    case OPTION_COUNTS:
        return store_counts(parser, field, option, value);
    case OPTION_REAL:
        return store_real(parser, field, option, value);
    case OPTION_RATE:
        return store_rate(parser, field, option, value);
    }
    return false;
}

/* `joined` is what stands behind "=" or the letter, or NULL. */
static bool take_option(struct parser *parser, void *field, const struct option *option,
                        const char *joined)
{
    char text[96];

    option_text(option, text, sizeof text);
    if (option->kind == OPTION_FLAG) {
        if (!joined) return store(parser, field, option, NULL);
        fail(parser->why, MF_ERR_ARGUMENT, "%s takes no value", text);
        return false;
    }
    if (joined) return store(parser, field, option, joined);
    if (parser->next == parser->count) {
        fail(parser->why, MF_ERR_ARGUMENT, "%s needs a value: %s", text, option->value);
        return false;
    }
    if (is_option_name(parser, parser->words[parser->next])) {
        fail(parser->why, MF_ERR_ARGUMENT, "%s needs a value (%s), and %.64s is an option", text,
             option->value, parser->words[parser->next]);
        return false;
    }
    return store(parser, field, option, parser->words[parser->next++]);
}

static bool take_word(struct parser *parser, const char *word)
{
    const struct option_group *group = NULL;
    const struct option *option;
    const char *joined;

    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        option = find_option(parser, word + 2, length, 0, &group);
        joined = word[2 + length] == '=' ? word + 2 + length + 1 : NULL;
    } else {
        option = find_option(parser, NULL, 0, word[1], &group);
        joined = word[2] ? word + 2 + (word[2] == '=') : NULL;
        /* "-temp" is a misspelt --temp, not "-t emp"; a letter's joined value is a number. */
        if (option && isalpha((unsigned char)word[2])) option = NULL;
    }
    if (!option) {
        unknown_option(parser, word);
        return false;
    }
    return take_option(parser, (char *)parser->settings + group->base + option->offset, option,
                       joined);
}

enum parse_result options_parse(void *settings, struct arguments *arguments,
                                const struct option_group *groups, size_t group_count, char **words,
                                size_t count, mf_error *why)
{
    struct parser parser = { settings, groups, group_count, words, count, 0, why };
    bool options_ended = false;
    size_t kept = 0;

    while (parser.next < count) {
        char *word = words[parser.next++];
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            words[kept++] = word; /* kept ≤ next: never overwrites what is not read yet */
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            return PARSE_HELP;
        } else if (strcmp(word, "--version") == 0) {
            return PARSE_VERSION;
        } else if (!take_word(&parser, word)) {
            return PARSE_FAILED;
        }
    }
    arguments->values = (const char *const *)words;
    arguments->count = kept;
    return PARSE_DONE;
}

/* -------------------------------------------------------------------- help */

/* Of UTF-8: bytes that continue a character do not count. */
static unsigned count_characters(const char *text, size_t length)
{
    unsigned count = 0;

    for (size_t i = 0; i < length; i++) count += (text[i] & 0xc0) != 0x80;
    return count;
}

/* `text` from column `indent` on, broken at spaces before `width`. */
static void print_wrapped(FILE *out, const char *text, unsigned indent, unsigned width)
{
    unsigned column = indent;

    while (*text) {
        size_t length = strcspn(text, " ");
        unsigned columns = count_characters(text, length);
        if (column > indent && column + 1 + columns > width) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)length, text);
        column += columns;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void options_print(FILE *out, const struct option_group *group, unsigned width)
{
    enum { COLUMN = 27 };

    fprintf(out, "%s:\n", group->title);
    for (size_t i = 0; i < group->count; i++) {
        const struct option *option = &group->options[i];
        char name[64];
        unsigned used;
        snprintf(name, sizeof name, "  %c%c%c --%s%s%s", option->letter ? '-' : ' ',
                 option->letter ? option->letter : ' ', option->letter ? ',' : ' ', option->name,
                 option->value ? " " : "", option->value ? option->value : "");
        used = count_characters(name, strlen(name));
        fprintf(out, "%s%*s", name, used < COLUMN ? (int)(COLUMN - used) : 0, "");
        if (used >= COLUMN) fprintf(out, "\n%*s", COLUMN, "");
        print_wrapped(out, option->help, COLUMN, width);
    }
}
