/* info.h: what a model's chat template can do, found out by rendering. */
#ifndef VIEW_INFO_H
#define VIEW_INFO_H

#include "moeflux.h"

bool info_knows_thinking(const mf_text *text); /* enable_thinking */
bool info_knows_effort(const mf_text *text);   /* reasoning_effort */
bool info_knows_tools(const mf_text *text);

#endif
