/* str.isdigit and its kin: does every character of a text, and there is one, have a property? */
#include "jinja/run.h"
#include "base/unicode.h"

static bool is_alphanumeric(uint32_t c)
{
    return unicode_is_alphabetic(c) || unicode_is_numeric(c);
}

static struct jinja_value ask_all(struct jinja_run *run, const struct jinja_string *text,
                                  bool (*property)(uint32_t))
{
    bool all = text->length > 0;
    jinja_charge(run, text->length);
    for (size_t offset = 0, bytes; all && offset < text->length; offset += bytes)
        all = property(unicode_decode(text->data + offset, &bytes));
    return jinja_bool(all);
}

#define QUESTION(name, property)                                                                   \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value self,                 \
                                   const struct jinja_arguments *given)                            \
    {                                                                                              \
        (void)given;                                                                               \
        return ask_all(run, self.string, property);                                                \
    }

QUESTION(is_alpha, unicode_is_alphabetic)
QUESTION(is_alnum, is_alphanumeric)
QUESTION(is_digit, unicode_is_decimal)
QUESTION(is_numeric, unicode_is_numeric)
QUESTION(is_space, unicode_is_white)

/* These two hold for the empty text as well. */
static struct jinja_value is_ascii(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *given)
{
    (void)run;
    (void)given;
    return jinja_bool(self.string->length == self.string->characters);
}

static struct jinja_value is_printable(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *given)
{
    (void)given;
    if (!self.string->length) return jinja_bool(true);
    return ask_all(run, self.string, unicode_is_printable);
}

static struct jinja_value is_identifier(struct jinja_run *run, struct jinja_value self,
                                        const struct jinja_arguments *given)
{
    (void)run;
    (void)given;
    const struct jinja_string *text = self.string;
    size_t length = unicode_identifier_prefix(text->data, text->length);
    return jinja_bool(length > 0 && length == text->length);
}

/* Every letter that has a case has this one, and there is such a letter. */
static struct jinja_value ask_case(const struct jinja_string *text, bool (*wanted)(uint32_t))
{
    bool any = false;
    for (size_t offset = 0, bytes; offset < text->length; offset += bytes) {
        uint32_t c = unicode_decode(text->data + offset, &bytes);
        if (!unicode_is_cased(c)) continue;
        if (!wanted(c)) return jinja_bool(false);
        any = true;
    }
    return jinja_bool(any);
}

static struct jinja_value is_upper(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *given)
{
    (void)given;
    jinja_charge(run, self.string->length);
    return ask_case(self.string, unicode_is_upper);
}

static struct jinja_value is_lower(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *given)
{
    (void)given;
    jinja_charge(run, self.string->length);
    return ask_case(self.string, unicode_is_lower);
}

static struct jinja_value is_title(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *given)
{
    (void)given;
    const struct jinja_string *text = self.string;
    bool any = false, inside = false;
    jinja_charge(run, text->length);
    for (size_t offset = 0, bytes; offset < text->length; offset += bytes) {
        uint32_t c = unicode_decode(text->data + offset, &bytes);
        bool cased = unicode_is_cased(c);
        if (cased && inside == !unicode_is_lower(c)) return jinja_bool(false);
        any = any || cased;
        inside = cased;
    }
    return jinja_bool(any);
}

const struct jinja_builtin jinja_string_questions[] = {
    { "isalpha", "", is_alpha },
    { "isalnum", "", is_alnum },
    { "isdigit", "", is_digit },
    { "isdecimal", "", is_digit },
    { "isnumeric", "", is_numeric },
    { "isspace", "", is_space },
    { "isupper", "", is_upper },
    { "islower", "", is_lower },
    { "istitle", "", is_title },
    { "isascii", "", is_ascii },
    { "isprintable", "", is_printable },
    { "isidentifier", "", is_identifier },
    { 0 },
};
