#include "common/svg.h"

#include <math.h>

void svg_begin(FILE *out, int width, int height, const char *style)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n%s"
            "<rect width=\"%d\" height=\"%d\" %s/>\n",
            width, height, width, height, style ? style : "", width, height,
            style ? "class=\"paper\"" : "fill=\"white\"");
}

void svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

void svg_write_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<') {
            fputs("&lt;", out);
        } else if (*text == '>') {
            fputs("&gt;", out);
        } else if (*text == '&') {
            fputs("&amp;", out);
        } else if ((unsigned char)*text >= ' ') {
            fputc(*text, out);
        }
    }
}

void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *attributes)
{
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2,
            attributes);
}

void svg_circle(FILE *out, double x, double y, double radius, const char *attributes)
{
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" %s/>\n", x, y, radius, attributes);
}

void svg_label(FILE *out, double x, double y, const char *anchor, const char *attributes,
               const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>", x, y, anchor, attributes);
    svg_write_text(out, text);
    fputs("</text>\n", out);
}

double svg_nice_step(double highest)
{
    double power = pow(10, floor(log10(highest / 5))), step = highest / 5 / power;

    return power * (step <= 1.3 ? 1 : step <= 2.6 ? 2 : step <= 6.5 ? 5 : 10);
}
