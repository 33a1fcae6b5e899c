/* svg.h: the elements that the programs' plots are made of, and the scale of an axis. */
#ifndef COMMON_SVG_H
#define COMMON_SVG_H

#include <stdio.h>

/* `style` may be NULL, or a <style> element.  The figure is white, or has class "paper" where
 * there is a style. */
void svg_begin(FILE *out, int width, int height, const char *style);
void svg_end(FILE *out);

/* Character data: markup is escaped, control characters are left out. */
void svg_write_text(FILE *out, const char *text);

/* `attributes` as in "stroke=\"#444\"" or "class=\"axis\"". */
void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *attributes);
void svg_circle(FILE *out, double x, double y, double radius, const char *attributes);

/* A label; `anchor` is "start", "middle" or "end". */
void svg_label(FILE *out, double x, double y, const char *anchor, const char *attributes,
               const char *text);

/* 1, 2 or 5 times a power of ten: about five of them up to `highest`, which is above 0. */
double svg_nice_step(double highest);

#endif
