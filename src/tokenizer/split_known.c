/* split_known.c: the patterns of known tokenizers, matched by hand.
 *
 * PCRE2 gives the same pieces, and a test holds the two against each other; this is some
 * times faster and, because no alternative is retried over text that it has not consumed,
 * linear on any input.  The comments show the alternatives in the order in which a regular
 * expression tries them. */
#include "tokenizer/split.h"

#include "base/utf8.h"

#include <utf8proc.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WHITE_SPACE  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PREFIX       "[^\\r\\n\\p{L}\\p{N}]?"

const char split_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char split_qwen2[] =
    CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITE_SPACE;
const char split_qwen35[] = CONTRACTIONS
    "|" PREFIX "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WHITE_SPACE;
const char split_llama3[] =
    CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITE_SPACE;

#define UPPER     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define UPPER_HAN "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER_HAN "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define CASED(upper, lower)                                                                        \
    PREFIX upper "*" lower "+" CONTRACTIONS "?|" PREFIX upper "+" lower "*" CONTRACTIONS "?|"      \
                 "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"

const char split_gpt4o[] = CASED(UPPER, LOWER) "[\\r\\n/]*|" WHITE_SPACE;
const char split_kimi[] = "[\\p{Han}]+|" CASED(UPPER_HAN, LOWER_HAN) "[\\r\\n]*|" WHITE_SPACE;

const char split_number[] = "\\p{N}";
const char split_number3[] = "\\p{N}{1,3}";
const char split_cjk[] = "[一-龥぀-ゟ゠-ヿ]+";
const char split_punctuation[] = "[\\p{P}$+<=>^`|~]+";
#define DEEPSEEK_V3(quote)                                                                         \
    "[!" quote "#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" WHITE_SPACE
const char split_deepseek_v3[] = DEEPSEEK_V3("\"");
static const char deepseek_v3_escaped[] = DEEPSEEK_V3("\\\""); /* as some files write it */

/* ------------------------------------------------------------------- characters */

enum character_class {
    UPPERCASE = 1, /* Lu Lt */
    LOWERCASE = 2, /* Ll */
    CASELESS = 4,  /* Lm Lo */
    MARK = 8,
    NUMBER = 16,
    SPACE = 32,   /* White_Space without \r and \n */
    NEWLINE = 64, /* \r \n */
    SIGN = 128,   /* P and S */
    HAN = 256,    /* the script; beside one of the others */

    LETTER = UPPERCASE | LOWERCASE | CASELESS,
    BLANK = SPACE | NEWLINE
};

/* Unicode's Script=Han. */
static bool is_han(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        { 0x2E80, 0x2E99 },   { 0x2E9B, 0x2EF3 },   { 0x2F00, 0x2FD5 },   { 0x3005, 0x3005 },
        { 0x3007, 0x3007 },   { 0x3021, 0x3029 },   { 0x3038, 0x303B },   { 0x3400, 0x4DBF },
        { 0x4E00, 0x9FFF },   { 0xF900, 0xFA6D },   { 0xFA70, 0xFAD9 },   { 0x16FE2, 0x16FE3 },
        { 0x16FF0, 0x16FF1 }, { 0x20000, 0x2A6DF }, { 0x2A700, 0x2B739 }, { 0x2B740, 0x2B81D },
        { 0x2B820, 0x2CEA1 }, { 0x2CEB0, 0x2EBE0 }, { 0x2EBF0, 0x2EE5D }, { 0x2F800, 0x2FA1D },
        { 0x30000, 0x3134A }, { 0x31350, 0x323AF },
    };
    for (size_t i = 0; i < COUNT_OF(ranges) && c >= ranges[i].first; i++)
        if (c <= ranges[i].last) return true;
    return false;
}

static unsigned category_class(utf8proc_category_t category)
{
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return UPPERCASE;
    case UTF8PROC_CATEGORY_LL:
        return LOWERCASE;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return CASELESS;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
        return SIGN;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return SPACE;
    default:
        return 0; /* controls, formats, unassigned */
    }
}

static unsigned class_of(uint32_t c)
{
    if (c >= 0x4E00 && c <= 0x9FFF) return CASELESS | HAN;
    if (c == UTF8_INVALID) return 0;
    if (c == 0x85) return SPACE;
    unsigned class = category_class(utf8proc_category((utf8proc_int32_t)c));
    return c >= 0x2E80 && is_han(c) ? class | HAN : class;
}

#define S SPACE
#define N NEWLINE
#define P SIGN
#define D NUMBER
#define U UPPERCASE
#define L LOWERCASE
static const uint8_t ascii_class[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, N, S, S, N, 0, 0, /* 00 */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* 10 */
    S, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, /* space ! " # … */
    D, D, D, D, D, D, D, D, D, D, P, P, P, P, P, P, /* 0 … 9 : ; < = > ? */
    P, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, /* @ A … */
    U, U, U, U, U, U, U, U, U, U, U, P, P, P, P, P, /* P … Z [ \ ] ^ _ */
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* ` a … */
    L, L, L, L, L, L, L, L, L, L, L, P, P, P, P, 0, /* p … z { | } ~ */
};
#undef S
#undef N
#undef P
#undef D
#undef U
#undef L

/* The class of the character at `at`; *next is where it ends.  0 at the end of the text. */
static inline unsigned class_at(const char *at, const char *end, const char **next)
{
    *next = at;
    if (at == end) return 0;
    if (!((uint8_t)*at & 0x80)) {
        *next = at + 1;
        return ascii_class[(uint8_t)*at];
    }
    uint32_t character;
    *next = at + utf8_decode(&character, at, (size_t)(end - at));
    return class_of(character);
}

/* [mask]*: the end of the run of characters that have a bit of `mask`. */
static inline const char *run_of(const char *at, const char *end, unsigned mask)
{
    const char *next;
    while (class_at(at, end, &next) & mask) at = next;
    return at;
}

/* [^mask]*, up to `end`. */
static inline const char *run_without(const char *at, const char *end, unsigned mask)
{
    const char *next;
    while (at < end && !(class_at(at, end, &next) & mask)) at = next;
    return at;
}

bool character_is_space(uint32_t character)
{
    if (character < 128) return ascii_class[character] & BLANK;
    return class_of(character) & BLANK;
}

bool character_is_word(uint32_t character)
{
    if (character == '_' || character == 0x200C || character == 0x200D) return true;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)character);
    if (category == UTF8PROC_CATEGORY_PC || category == UTF8PROC_CATEGORY_NL) return true;
    return category == UTF8PROC_CATEGORY_ND || category_class(category) & (LETTER | MARK);
}

/* ----------------------------------------------------- parts that patterns share */

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) at `at`: its end, or `at`. */
static const char *match_contraction(const char *at, const char *end)
{
    if (end - at < 2 || *at != '\'') return at;
    int first = at[1] | 0x20, second = end - at > 2 ? at[2] | 0x20 : 0;
    switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return at + 2;
    case 'r':
    case 'v':
        return second == 'e' ? at + 3 : at;
    case 'l':
        return second == 'l' ? at + 3 : at;
    default: /* U+017F, the long s, is an s when case does not count */
        return end - at > 2 && memcmp(at + 1, "\xC5\xBF", 2) == 0 ? at + 3 : at;
    }
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ where a blank stands: up to the last newline of the run, else all
 * of it, less its last character when something follows that a blank may lead. */
static const char *match_blanks(const char *at, const char *end, bool newlines)
{
    const char *after_newline = NULL, *last = at, *here = at, *next;
    unsigned class;
    while ((class = class_at(here, end, &next)) & BLANK) {
        if (newlines && class & NEWLINE) after_newline = next;
        last = here;
        here = next;
    }
    if (after_newline) return after_newline;
    return here == end || last == at ? here : last;
}

/* [\r\n]*, for MiniMax [\r\n/]* */
static inline const char *skip_newlines(const char *at, const char *end, bool slashes)
{
    while (at < end && (*at == '\r' || *at == '\n' || (slashes && *at == '/'))) at++;
    return at;
}

/* \p{N}{1,limit} where a number stands. */
static inline const char *match_numbers(const char *at, const char *end, unsigned limit)
{
    const char *next;
    for (unsigned i = 0; i < limit && class_at(at, end, &next) & NUMBER; i++) at = next;
    return at;
}

/* " ?[^\s…]+" where `skipped` has the classes in the brackets: its end, or `at`. */
static inline const char *match_signs(const char *at, const char *end, unsigned skipped)
{
    const char *from = at + (*at == ' ');
    const char *stop = run_without(from, end, skipped);
    return stop > from ? stop : at;
}

/* ------------------------------------------------------------- Qwen, Llama 3, GLM */

/* contraction | [^\r\n\p{L}\p{N}]?word+ | \p{N}{1,digits} | ?[^\s word \p{N}]+[\r\n]* | blanks */
static inline const char *next_by_words(const char *at, const char *end, unsigned word,
                                        unsigned digits)
{
    const char *next, *stop = match_contraction(at, end);
    if (stop > at) return stop;

    unsigned class = class_at(at, end, &next);
    if (!(class & (NEWLINE | LETTER | NUMBER))) {
        stop = run_of(next, end, word);
        if (stop > next) return stop;
    }
    if (class & word) return run_of(next, end, word);
    if (class & NUMBER) return match_numbers(at, end, digits);
    stop = match_signs(at, end, BLANK | word | NUMBER);
    if (stop > at) return skip_newlines(stop, end, false);
    return match_blanks(at, end, true);
}

static const char *next_qwen2(const char *at, const char *end)
{
    return next_by_words(at, end, LETTER, 1);
}

static const char *next_qwen35(const char *at, const char *end)
{
    return next_by_words(at, end, LETTER | MARK, 1);
}

static const char *next_llama3(const char *at, const char *end)
{
    return next_by_words(at, end, LETTER, 3);
}

/* -------------------------------------------------------------------------- GPT-2 */

/* 's|'t|'re|'ve|'m|'ll|'d: lower case only. */
static const char *match_small_contraction(const char *at, const char *end)
{
    const char *stop = match_contraction(at, end);
    for (const char *c = at + 1; c < stop; c++)
        if (*c < 'a' || *c > 'z') return at;
    return stop;
}

static const char *next_gpt2(const char *at, const char *end)
{
    const char *next, *stop = match_small_contraction(at, end);
    if (stop > at) return stop;

    const char *from = at + (*at == ' ');
    unsigned class = class_at(from, end, &next);
    if (class & LETTER) return run_of(next, end, LETTER);
    if (class & NUMBER) return run_of(next, end, NUMBER);
    stop = match_signs(at, end, BLANK | LETTER | NUMBER);
    return stop > at ? stop : match_blanks(at, end, false);
}

/* -------------------------------------------------------- GPT-4o, MiniMax and Kimi */

/* Kimi keeps Han characters out of words; the others do not look at the script. */
static inline unsigned word_class(const char *at, const char *end, const char **next, bool han)
{
    unsigned class = class_at(at, end, next);
    return han && class & HAN ? 0 : class;
}

enum { UPPER_PART = UPPERCASE | CASELESS | MARK, LOWER_PART = LOWERCASE | CASELESS | MARK };

/* upper*lower+ from `at`: its end, or NULL.  The upper part takes all it can.  If no lower
 * character follows, it gives back up to the last one that is both. */
static const char *match_capitalised(const char *at, const char *end, bool han)
{
    const char *after_both = NULL, *next;
    unsigned class;
    while ((class = word_class(at, end, &next, han)) & UPPER_PART) {
        at = next;
        if (class & LOWER_PART) after_both = at;
    }
    if (!(class & LOWERCASE)) return after_both;
    do at = next;
    while (word_class(at, end, &next, han) & LOWER_PART);
    return at;
}

/* upper+lower*, once the alternative above has failed: no lower character is near. */
static const char *match_capitals(const char *at, const char *end, bool han)
{
    const char *begin = at, *next;
    while (word_class(at, end, &next, han) & UPPER_PART) at = next;
    return at > begin ? at : NULL;
}

/* [^\r\n\p{L}\p{N}]? and a word: with the prefix if that works, else without it. */
static const char *match_word(const char *at, const char *end, bool han,
                              const char *(*match)(const char *, const char *, bool))
{
    const char *next, *stop = NULL;
    unsigned class = class_at(at, end, &next);
    if (!(class & (NEWLINE | LETTER | NUMBER))) stop = match(next, end, han);
    if (!stop) stop = match(at, end, han);
    return stop ? match_contraction(stop, end) : NULL;
}

static inline const char *next_by_case(const char *at, const char *end, bool han)
{
    const char *next, *stop;
    unsigned class = class_at(at, end, &next);
    if (han && class & HAN) return run_of(next, end, HAN);

    stop = match_word(at, end, han, match_capitalised);
    if (!stop) stop = match_word(at, end, han, match_capitals);
    if (stop) return stop;
    if (class & NUMBER) return match_numbers(at, end, 3);
    stop = match_signs(at, end, BLANK | LETTER | NUMBER);
    if (stop > at) return skip_newlines(stop, end, !han);
    return match_blanks(at, end, true);
}

static const char *next_gpt4o(const char *at, const char *end)
{
    return next_by_case(at, end, false);
}

static const char *next_kimi(const char *at, const char *end)
{
    return next_by_case(at, end, true);
}

/* ------------------------------------------------------------- DeepSeek, three steps */

static const char *next_number(const char *at, const char *end)
{
    const char *next;
    if (class_at(at, end, &next) & NUMBER) return next;
    return run_without(next, end, NUMBER);
}

static const char *next_number3(const char *at, const char *end)
{
    const char *next;
    if (class_at(at, end, &next) & NUMBER) return match_numbers(at, end, 3);
    return run_without(next, end, NUMBER);
}

static bool cjk_at(const char *at, const char *end, const char **next)
{
    uint32_t c;
    *next = at + utf8_decode(&c, at, (size_t)(end - at));
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

static const char *next_cjk(const char *at, const char *end)
{
    const char *next;
    bool cjk = cjk_at(at, end, &next);
    do at = next;
    while (at < end && cjk_at(at, end, &next) == cjk);
    return at;
}

static bool is_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The end of a match of the third pattern at `at`; `at` when none begins there. */
static const char *match_deepseek_v3(const char *at, const char *end)
{
    const char *next, *stop;
    unsigned class = class_at(at, end, &next);
    if (class & SIGN && next == at + 1 && next < end && is_ascii_letter(*next)) {
        while (next < end && is_ascii_letter(*next)) next++;
        return next;
    }
    if (!(class & (NEWLINE | LETTER | SIGN))) {
        stop = run_of(next, end, LETTER | MARK);
        if (stop > next) return stop;
    }
    if (class & (LETTER | MARK)) return run_of(next, end, LETTER | MARK);

    const char *from = at + (*at == ' ');
    stop = run_of(from, end, SIGN);
    if (stop > from) return skip_newlines(stop, end, false);
    return class & BLANK ? match_blanks(at, end, true) : at;
}

static const char *next_deepseek_v3(const char *at, const char *end)
{
    const char *stop = match_deepseek_v3(at, end);
    if (stop > at) return stop;
    do class_at(at, end, &at); /* a gap: up to the next match */
    while (at < end && match_deepseek_v3(at, end) == at);
    return at;
}

/* -------------------------------------------------------------------- the table */

static const struct known {
    const char *pattern;
    split_function next;
    bool covers_all; /* leaves no gaps */
} known[] = {
    { split_qwen2, next_qwen2, true },
    { split_qwen35, next_qwen35, true },
    { split_llama3, next_llama3, true },
    { split_gpt2, next_gpt2, true },
    { split_kimi, next_kimi, true },
    { split_gpt4o, next_gpt4o, true },
    { split_number, next_number, false },
    { split_number3, next_number3, false },
    { split_cjk, next_cjk, false },
    { split_deepseek_v3, next_deepseek_v3, false },
    { deepseek_v3_escaped, next_deepseek_v3, false },
};

split_function split_known_find(const char *pattern, enum split_keep keep)
{
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        /* The functions do not tell matches from gaps. */
        bool serves = keep == SPLIT_KEEP_ALL || (keep == SPLIT_DROP_GAPS && known[i].covers_all);
        if (serves && strcmp(known[i].pattern, pattern) == 0) return known[i].next;
    }
    return NULL;
}

const char *split_known_pattern(size_t index)
{
    return index < COUNT_OF(known) ? known[index].pattern : NULL;
}
