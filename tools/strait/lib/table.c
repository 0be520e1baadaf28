/* SPDX-License-Identifier: MIT */
#include "lib/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cli.h"

void table_column(struct table *t, const char *head)
{
	assert(t->cols < TABLE_COLS && !t->cells);
	t->head[t->cols++] = head;
}

void table_begin(struct table *t, ...)
{
	const char *head;
	va_list ap;

	memset(t, 0, sizeof(*t));
	va_start(ap, t);
	while ((head = va_arg(ap, const char *)))
		table_column(t, head);
	va_end(ap);
}

void table_cell(struct table *t, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = xstrdup("");
	va_end(ap);
	t->cell = xrealloc(t->cell, (t->cells + 1) * sizeof(*t->cell));
	t->cell[t->cells++] = text;
}

/* Columns on the screen: bytes that continue a UTF-8 character take none. */
static unsigned int width_of(const char *s)
{
	unsigned int n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static void print_row(const struct table *t, const unsigned int *width, FILE *out, unsigned int indent, char **cell)
{
	fprintf(out, "%*s", (int)indent, "");
	for (unsigned int c = 0; c < t->cols; c++) {
		const char *head = t->head[c];
		bool right = *head == '>';
		const char *text = cell ? cell[c] : head + right;
		int pad = (int)(width[c] - width_of(text));

		if (right)
			fprintf(out, "%*s%s", pad, "", text);
		else if (c + 1 < t->cols)
			fprintf(out, "%s%*s", text, pad, "");
		else
			fputs(text, out);
		fputs(c + 1 < t->cols ? "  " : "\n", out);
	}
}

void table_print(struct table *t, FILE *out, unsigned int indent)
{
	unsigned int width[TABLE_COLS];

	for (unsigned int c = 0; c < t->cols; c++)
		width[c] = width_of(t->head[c] + (*t->head[c] == '>'));
	for (unsigned int i = 0; i < t->cells; i++)
		if (width_of(t->cell[i]) > width[i % t->cols])
			width[i % t->cols] = width_of(t->cell[i]);
	print_row(t, width, out, indent, NULL);
	for (unsigned int i = 0; i + t->cols <= t->cells; i += t->cols)
		print_row(t, width, out, indent, t->cell + i);
}

void table_free(struct table *t)
{
	for (unsigned int i = 0; i < t->cells; i++)
		free(t->cell[i]);
	free(t->cell);
	memset(t, 0, sizeof(*t));
}
