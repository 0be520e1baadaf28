/* SPDX-License-Identifier: MIT */
#include "verbs/bench/svg.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "lib/cli.h"
#include "lib/size.h"

enum {
	WIDTH = 860,
	HEIGHT = 500,
	LEFT = 76,
	RIGHT = WIDTH - 28,
	TOP = 108,
	BOTTOM = HEIGHT - 66,
};

/* The palette of Okabe and Ito, distinguishable with colour blindness and in print. */
static const char *const colours[PLOT_SERIES] = {
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444", "#b8a800",
};

struct scale {
	double x_low, x_high; /* log2 of bytes */
	double y_high, y_step;
	unsigned int decimals;
	bool bars;
};

static double log2_of(uint64_t v)
{
	int whole = 63 - __builtin_clzll(v);
	double rest = (double)v / (double)(1ull << whole), log = whole, bit = 0.5;

	/* Squaring doubles the logarithm: each time it passes 2 the next binary digit is a one. */
	for (int i = 0; i < 20; i++, bit /= 2) {
		rest *= rest;
		if (rest >= 2) {
			rest /= 2;
			log += bit;
		}
	}
	return log;
}

/* Five to ten steps of 1, 2 or 5 times a power of ten. */
static void fit_y(struct scale *s, double max)
{
	static const double nice[] = { 1, 2, 5, 10 };
	double power = 1;
	unsigned int i = 0;

	if (max <= 0)
		max = 1;
	while (power * 10 <= max / 5)
		power *= 10;
	while (power > max / 5) {
		power /= 10;
		s->decimals++;
	}
	while (i < ARRAY_SIZE(nice) - 1 && max / (nice[i] * power) > 8)
		i++;
	if (i == ARRAY_SIZE(nice) - 1 && s->decimals)
		s->decimals--;
	s->y_step = nice[i] * power;
	for (s->y_high = s->y_step; s->y_high < max * 1.02;)
		s->y_high += s->y_step;
}

static void fit(struct scale *s, const struct plot *p)
{
	uint64_t low = UINT64_MAX, high = 1;
	double max = 0;

	for (unsigned int i = 0; i < p->n; i++) {
		for (unsigned int k = 0; k < p->series[i].n; k++) {
			uint64_t x = p->series[i].point[k].x;

			low = x < low ? x : low;
			high = x > high ? x : high;
			if (p->series[i].point[k].y > max)
				max = p->series[i].point[k].y;
		}
	}
	*s = (struct scale){ .bars = low >= high };
	s->x_low = log2_of(low == UINT64_MAX ? 1 : low);
	s->x_high = log2_of(high);
	fit_y(s, max);
}

static double x_at(const struct scale *s, uint64_t x)
{
	return LEFT + 24 + (log2_of(x) - s->x_low) / (s->x_high - s->x_low) * (RIGHT - LEFT - 48);
}

static double y_at(const struct scale *s, double y)
{
	return BOTTOM - y / s->y_high * (BOTTOM - TOP);
}

static void put_text(FILE *out, double x, double y, int size, const char *anchor, const char *colour, const char *text)
{
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\" fill=\"%s\">", x, y, size, anchor,
		colour);
	for (; *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		default:
			/* Control characters are not allowed in XML at all. */
			fputc((unsigned char)*text < 0x20 ? '?' : *text, out);
		}
	}
	fputs("</text>\n", out);
}

static void put_line(FILE *out, double x1, double y1, double x2, double y2, const char *colour, double width)
{
	fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n",
		x1, y1, x2, y2, colour, width);
}

static void put_y_axis(const struct plot *p, const struct scale *s, FILE *out)
{
	char text[32];

	for (unsigned int i = 0; s->y_step * i <= s->y_high * 1.0001; i++) {
		double y = y_at(s, s->y_step * i);

		put_line(out, LEFT, y, RIGHT, y, i ? "#e3e3e3" : "#333333", i ? 1 : 1.5);
		snprintf(text, sizeof(text), "%.*f", (int)s->decimals, s->y_step * i);
		put_text(out, LEFT - 10, y + 4, 12, "end", "#333333", text);
	}
	fprintf(out, "<g transform=\"translate(22 %d) rotate(-90)\">\n", (TOP + BOTTOM) / 2);
	put_text(out, 0, 0, 13, "middle", "#333333", p->y_label);
	fputs("</g>\n", out);
}

static const char *x_text(const struct plot *p, uint64_t x, char *text)
{
	if (!p->x_counts)
		return size_short(x, text);
	snprintf(text, SIZE_TEXT, "%" PRIu64, x);
	return text;
}

static void put_x_axis(const struct plot *p, const struct scale *s, FILE *out)
{
	double last = -1e9;
	char text[SIZE_TEXT];

	put_text(out, (LEFT + RIGHT) / 2.0, HEIGHT - 18, 13, "middle", "#333333", p->x_label);
	if (s->bars) {
		if (p->n && p->series[0].n)
			put_text(out, (LEFT + RIGHT) / 2.0, BOTTOM + 20, 12, "middle", "#333333",
				 x_text(p, p->series[0].point[0].x, text));
		return;
	}
	/* All series have the same points. */
	for (unsigned int k = 0; k < p->series[0].n; k++) {
		uint64_t v = p->series[0].point[k].x;
		double x = x_at(s, v);

		put_line(out, x, BOTTOM, x, BOTTOM + 5, "#333333", 1);
		if (x - last < 46)
			continue;
		put_text(out, x, BOTTOM + 20, 12, "middle", "#333333", x_text(p, v, text));
		last = x;
	}
}

static void put_curve(const struct plot_series *s, const struct scale *scale, const char *colour, FILE *out)
{
	fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.4\" stroke-linejoin=\"round\" points=\"",
		colour);
	for (unsigned int k = 0; k < s->n; k++)
		fprintf(out, "%s%.1f,%.1f", k ? " " : "", x_at(scale, s->point[k].x), y_at(scale, s->point[k].y));
	fputs("\"/>\n", out);
	for (unsigned int k = 0; k < s->n; k++)
		fprintf(out,
			"<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"#ffffff\" stroke=\"%s\" stroke-width=\"2\"/>\n",
			x_at(scale, s->point[k].x), y_at(scale, s->point[k].y), colour);
}

static void put_bar(const struct plot *p, unsigned int i, const struct scale *scale, FILE *out)
{
	double slot = (double)(RIGHT - LEFT) / (p->n + 1), width = slot * 0.6 > 110 ? 110 : slot * 0.6;
	double x = LEFT + slot * (i + 1) - width / 2, y = y_at(scale, p->series[i].point[0].y);
	char text[32];

	fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width,
		BOTTOM - y, colours[i]);
	snprintf(text, sizeof(text), "%.*f", (int)scale->decimals + 1, p->series[i].point[0].y);
	put_text(out, x + width / 2, y - 6, 12, "middle", "#333333", text);
}

static void put_legend(const struct plot *p, FILE *out)
{
	double x = LEFT, y = 82;

	for (unsigned int i = 0; i < p->n; i++) {
		double width = 40 + 6.6 * (double)strlen(p->series[i].name);

		if (i && x + width > RIGHT) {
			x = LEFT;
			y += 17;
		}
		put_line(out, x, y - 4, x + 20, y - 4, colours[i], 4);
		put_text(out, x + 26, y, 12, "start", "#333333", p->series[i].name);
		x += width;
	}
}

void plot_write(const struct plot *p, FILE *out)
{
	struct scale scale;

	fit(&scale, p);
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\">\n"
		"<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
	put_text(out, LEFT, 32, 18, "start", "#111111", p->title);
	put_text(out, LEFT, 54, 12, "start", "#666666", p->subtitle);
	put_y_axis(p, &scale, out);
	put_x_axis(p, &scale, out);
	for (unsigned int i = 0; i < p->n; i++) {
		if (!p->series[i].n)
			continue;
		if (scale.bars)
			put_bar(p, i, &scale, out);
		else
			put_curve(&p->series[i], &scale, colours[i], out);
	}
	put_legend(p, out);
	fputs("</svg>\n", out);
}
