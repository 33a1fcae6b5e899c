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
    JINJA_BUILTIN(name)                                                                            \
    {                                                                                              \
        return ask_all(run, self.string, property);                                                \
    }

QUESTION(is_alpha, unicode_is_alphabetic)
QUESTION(is_alnum, is_alphanumeric)
QUESTION(is_digit, unicode_is_decimal)
QUESTION(is_space, unicode_is_white)

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

JINJA_BUILTIN(is_upper)
{
    jinja_charge(run, self.string->length);
    return ask_case(self.string, unicode_is_upper);
}

JINJA_BUILTIN(is_lower)
{
    jinja_charge(run, self.string->length);
    return ask_case(self.string, unicode_is_lower);
}

const struct jinja_builtin jinja_string_questions[] = {
    { "isalpha", "", is_alpha },
    { "isalnum", "", is_alnum },
    { "isdigit", "", is_digit },
    { "isspace", "", is_space },
    { "isupper", "", is_upper },
    { "islower", "", is_lower },
    { 0 },
};
